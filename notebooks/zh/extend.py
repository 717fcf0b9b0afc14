# %% [markdown]
# # 扩展并测量
#
# 这里用 128 个词元训练一个小模型，再让它读 1,024 个。
# 超出训练长度会怎样？各种缩放改变了什么？有没有哪种比直接丢掉远处的文本更好？问题与大模型相同，只要几秒钟。

# %%
try:
    import ropewalk as rw
except ImportError:
    # %pip install -q "ropewalk[plot] @ git+https://github.com/ropewalk/ropewalk"
    import ropewalk as rw

import torch
from torch.nn import functional as F

torch.manual_seed(0)
TRAINED, LONGER, VOCABULARY, TAIL = 128, 1024, 64, 64

# %% [markdown]
# ## 需要位置的文本
#
# 每个词元都与两个位置之前的相同，大约每七个有一个例外。要预测对，模型必须知道哪个 key 在两个位置之前。


# %%
def draw(rows, length):
    tokens = torch.randint(0, VOCABULARY, (rows, length))
    new = torch.rand(rows, length) < 0.15
    for place in range(2, length):
        tokens[:, place] = torch.where(new[:, place], tokens[:, place], tokens[:, place - 2])
    return tokens


def build(scaling=None):
    encoding = {"kind": "rope", "base": 10_000.0, "scaling": scaling}
    sizes = {"width": 32, "heads": 1, "key_heads": 1, "layers": 1, "hidden": 32}
    return rw.Transformer(rw.preset("llama", **sizes, vocabulary=VOCABULARY, encoding=encoding))


model = build()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
for step in range(300):
    optimizer.param_groups[0]["lr"] = 1e-2 * (1 - step / 300)
    rows = draw(8, TRAINED + 1)
    loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 100 == 99:
        print(f"step {step + 1}: loss {loss.item():.3f}")

# %% [markdown]
# ## 同样的词元，更多的上下文
#
# 每篇文档最后 64 个词元的损失：先给 128 个词元的上下文（截断），再给全部 1,024 个。同一份权重可以用于任何缩放：
# 位置模块里没有张量。

# %%
documents = draw(8, LONGER + 1)


@torch.no_grad()
def losses(scaling=None, context=LONGER):
    other = build(scaling).eval()
    other.load_state_dict(model.state_dict())
    seen = documents[:, -context - 1 :]
    # (documents, context)
    return F.cross_entropy(other(seen[:, :-1]).mT, seen[:, 1:], reduction="none")


factor = LONGER / TRAINED
ways = {
    "as it is": None,
    "linear": {"kind": "linear", "factor": factor},
    "ntk": {"kind": "ntk", "factor": factor},
    "yarn": {"kind": "yarn", "factor": factor, "trained": TRAINED},
}
crop = losses(context=TRAINED)[:, -TAIL:].mean(1)
print(f"{'cropped':9} {crop.mean():.3f}")
tails = {}
for name, scaling in ways.items():
    tails[name] = losses(scaling)[:, -TAIL:].mean(1)
    gain = crop - tails[name]
    half = 2.36 * gain.std() / len(gain) ** 0.5  # 95 % for 8 documents
    print(f"{name:9} {tails[name].mean():.3f}, gain over cropping {gain.mean():+.3f} +- {half:.3f}")
assert tails["as it is"].mean() > crop.mean() + 0.3
assert min(tails[name].mean() for name in ("linear", "ntk", "yarn")) < tails["as it is"].mean()

# %% [markdown]
# 普通的 RoPE 超出训练长度就崩溃，缩放之后好一些，而这里截断最好：这种文本里，两个词元之外的内容毫无用处。
# 更长时损失持平，并不能证明用上了远处的文本。

# %% [markdown]
# ## 各位置的损失

# %%
places = list(range(0, LONGER, 32))
curves = {}
for name, scaling in ways.items():
    means = losses(scaling).unflatten(1, (-1, 32)).mean(2)
    curves[name] = {"at": places, "losses": means.tolist()}
rw.plot.loss(curves, trained=TRAINED)

# %% [markdown]
# ## 换成真正的模型
#
# `ropewalk extend MODEL OUT --to 16384 --text books` 对检查点做同样的事：测量所有已知的缩放，每轮留下较好的一半，
# 在没有参与选择的文档上评判，再把胜者写入检查点，并在各引擎里加以验证。“截断也一样好”是它可能的答案之一。
