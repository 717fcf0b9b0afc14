# %% [markdown]
# # Extend and measure
#
# A small model is trained here on 128 tokens and read at 1,024. What happens past the trained length, what do
# scalings change, and is any of them better than throwing the far text away? The same questions as for a large model,
# in seconds.

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
# ## A text that needs positions
#
# Each token is the one two places before, but for every seventh or so. To say it, a model must know which key stands
# two places back.


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
# ## The same tokens, more context
#
# The loss of the last 64 tokens of each document, first with 128 tokens of context (cropped), then with all 1,024.
# The same weights serve under every scaling: position modules hold no tensors.

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
# Plain RoPE breaks past its length, scalings break less, and cropping is best here: this text says nothing farther
# back than two tokens. A loss that stays flat at a longer length is no proof that the far text is used.

# %% [markdown]
# ## Loss by position

# %%
places = list(range(0, LONGER, 32))
curves = {}
for name, scaling in ways.items():
    means = losses(scaling).unflatten(1, (-1, 32)).mean(2)
    curves[name] = {"at": places, "losses": means.tolist()}
rw.plot.loss(curves, trained=TRAINED)

# %% [markdown]
# ## With a real model
#
# `ropewalk extend MODEL OUT --to 16384 --text books` does this for a checkpoint: every known scaling, rounds that
# keep the better half, finalists judged on documents that chose nothing, and the winner written and proved in the
# engines. "Cropping is as good" is one of its answers.
