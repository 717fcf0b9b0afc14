# %% [markdown]
# # 开始：位置编码做什么，怎样检验
#
# Ropewalk 根据明确给出的整数位置计算 Transformer 的位置编码。本 notebook 旋转一个 query 和一个 key，
# 验证分数只取决于距离；换一种编码；再检验一份实现。在 CPU 上几秒钟就能跑完。

# %%
try:
    import ropewalk as rw
except ImportError:
    # %pip install -q "ropewalk[plot] @ git+https://github.com/ropewalk/ropewalk"
    import ropewalk as rw

import torch

torch.manual_seed(0)

# %% [markdown]
# ## 同一个分数，无论在哪里
#
# RoPE 把每对特征旋转一个与位置成正比的角度。位置 `m` 上的 query 和位置 `n` 上的 key，分数只取决于 `m - n`；
# 在这里，位置 2^30 处和 0 处一样准。

# %%
rope = rw.encodings.RoPE(head_width=64, base=500_000)
q, k = torch.randn(2, 1, 1, 1, 64)


def score(query_at, key_at):
    turned_q = rope.at([query_at]).rotate(q, "query")
    turned_k = rope.at([key_at]).rotate(k, "key")
    return (turned_q * turned_k).sum().item()


for start in (0, 1_000_000, 2**30):
    print(f"distance 7 from {start:>13,}: {score(start + 7, start):.6f}")
assert abs(score(2**30 + 7, 2**30) - score(7, 0)) < 1e-4

# %% [markdown]
# 大多数代码用 float32 计算“位置乘频率”：位置近时没问题，越远有效数字越少。在 131,072 处角度偏差有千分之几弧度，
# 在 2^30 处就只剩噪声了。

# %%
exact = rope.at([131_071]).rotate(q, "query")
frequency = torch.tensor(500_000.0) ** (-torch.arange(0, 64, 2) / 64)
angle = 131_071 * frequency
first, second = q[..., :32], q[..., 32:]
in_float32 = torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1)
error = (exact - in_float32).abs().max().item()
print(f"float32 product at position 131,071: off by up to {error:.0e}")
assert 1e-5 < error < 0.1

# %% [markdown]
# ## 时钟
#
# 每对特征是一根指针。第一根每个词元转一弧度，最后几根几乎不动。

# %%
rw.plot.clocks(rope, trained=8192)

# %% [markdown]
# ## 换一种编码，代码不变
#
# 注意力只问编码要做什么：旋转 query 和 key，还是给分数加偏置。

# %%
at = rw.positions.plain(16)
query, key, value = torch.randn(3, 1, 8, 16, 64)
for encoding in (rope, rw.encodings.ALiBi(heads=8), rw.encodings.T5(heads=8)):
    signal = encoding.at(at)
    turned = signal.rotate(query, "query"), signal.rotate(key, "key")
    out = rw.attend(*turned, value, rw.Score(signal, rw.Rule(causal=True)))
    print(f"{encoding.config.kind:6} {tuple(out.shape)}")

# %% [markdown]
# ## 这份实现对吗？
#
# 被测对象要说明自己是什么、怎样旋转。下面的 RoPE 有一个错误：频率被舍入成了 bfloat16，
# 把整个模型转换精度时就会这样。位置 0 处是对的，往后就错了。

# %%
from ropewalk.conformance import Spec


class Rounded:
    spec = Spec(kind="rope", head_width=64, heads=8, base=10_000, layout="half", longest=8192)

    def build(self):
        return (10_000.0 ** (-torch.arange(0, 64, 2) / 64)).bfloat16().float()

    def cos_sin(self, frequencies, positions):
        angles = positions[..., None] * frequencies
        return angles.cos(), angles.sin()


report = rw.verify(Rounded(), only="N07")
print(report)
assert report.failed
