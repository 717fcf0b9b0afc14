# %% [markdown]
# # 五篇文章，亲手算一遍
#
# Ropewalk 源于五篇讲 Transformer 及其位置编码的中文文章。这里选了其中五个结论，每个用几行代码写出来，
# 再与库的结果比较。文档里的课程收录了全部结论和勘误。

# %%
try:
    import ropewalk as rw
except ImportError:
    # %pip install -q "ropewalk[plot] @ git+https://github.com/ropewalk/ropewalk"
    import ropewalk as rw

import math

import torch

torch.manual_seed(0)

# %% [markdown]
# ## 注意力是 value 的加权平均
#
# 权重是缩放点积的 softmax。除以 sqrt(d)，使随机向量的分数方差为 1。

# %%
q, k, v = torch.randn(3, 1, 2, 6, 16, dtype=torch.float64)
weights = torch.softmax(q @ k.mT / math.sqrt(16), -1)
nothing = rw.encodings.NoPE().at(rw.positions.plain(6))
ours = rw.attend(q, k, v, rw.Score(nothing, rw.Rule(causal=False)))
print("difference", (weights @ v - ours).abs().max().item())
assert torch.allclose(weights @ v, ours)

# %% [markdown]
# ## 没有位置，就没有词序
#
# 打乱 key 和 value，结果不变。

# %%
shuffled = torch.randperm(6)
again = rw.attend(q, k[:, :, shuffled], v[:, :, shuffled], rw.Score(nothing, rw.Rule(causal=False)))
assert torch.allclose(ours, again)
print("shuffled: the same")

# %% [markdown]
# ## 正弦编码像二进制计数器
#
# 快的特征每个词元都变，慢的很少变。相邻两对的波长之比是 10000^(2/d)：有一篇文章把进制写成 10000^(2/d) 2 pi，
# 算一下相邻两对之比就知道哪个对。

# %%
width = 64
lengths = [2 * math.pi * 10_000 ** (2 * i / width) for i in range(width // 2)]
ratio = lengths[1] / lengths[0]
radix = 10_000 ** (2 / width)
print(f"ratio {ratio:.4f}; 10000^(2/d) is {radix:.4f}, times 2 pi {radix * 2 * math.pi:.4f}")
assert math.isclose(ratio, radix)
rw.plot.sinusoids()

# %% [markdown]
# ## RoPE 是若干旋转的乘积
#
# 在复平面上，一对特征是一个数，旋转就是乘以 e^(i m omega)。两个向量旋转后，分数只取决于位置之差。

# %%
rope = rw.encodings.RoPE(head_width=8, layout="pairs")
x = torch.randn(1, 1, 1, 8)
turned = rope.at([5]).rotate(x, "query")
omega = 10_000.0 ** (-torch.arange(0, 8, 2) / 8)
by_hand = torch.view_as_complex(x.reshape(-1, 4, 2)) * torch.polar(torch.ones(4), 5 * omega)
assert torch.allclose(turned.flatten(), torch.view_as_real(by_hand).flatten(), atol=1e-5)


def score(m, n):
    key = torch.arange(8.0).view(1, 1, 1, 8)
    return (rope.at([m]).rotate(x, "query") * rope.at([n]).rotate(key, "key")).sum().item()


print(f"score at (12, 5) {score(12, 5):.5f}, at (1012, 1005) {score(1012, 1005):.5f}")
assert abs(score(12, 5) - score(1012, 1005)) < 1e-3

# %% [markdown]
# ## 从内插到 YaRN
#
# 位置内插把每个频率都除以 s。NTK-aware 缩放加大底数，使最慢的一对除以 s，最快的不变。YaRN 保留快的特征对，
# 慢的除以 s，中间平滑过渡。

# %%
s, trained = 4, 4096
plain = rw.scaling.Linear(factor=1).frequencies(10_000, 128)
for scaling in (rw.scaling.Linear(factor=s), rw.scaling.NTK(factor=s), rw.scaling.YaRN(factor=s, trained=trained)):
    divided = [float(old / new) for old, new in zip(plain, scaling.frequencies(10_000, 128), strict=True)]
    fastest, middle, slowest = divided[0], divided[32], divided[-1]
    print(f"{scaling.kind:7} fastest pair divided by {fastest:.2f}, middle {middle:.2f}, slowest {slowest:.2f}")
    assert math.isclose(slowest, s, rel_tol=1e-9)
rw.plot.scalings(rw.encodings.RoPE(head_width=128), trained=trained, to=s * trained)
