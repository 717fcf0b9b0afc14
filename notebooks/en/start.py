# %% [markdown]
# # Start: what a position encoding does, and how to test one
#
# Ropewalk computes Transformer position encodings from explicit integer positions. This notebook rotates a query and
# a key, shows that their score depends on the distance alone, swaps the encoding, and tests an implementation. It
# runs on a CPU in seconds.

# %%
try:
    import ropewalk as rw
except ImportError:
    # %pip install -q "ropewalk[plot] @ git+https://github.com/ropewalk/ropewalk"
    import ropewalk as rw

import torch

torch.manual_seed(0)

# %% [markdown]
# ## One score, anywhere
#
# RoPE turns each pair of features by an angle proportional to the position. The score of a query at `m` and a key at
# `n` depends on `m - n` alone, and here it does so at position 2^30 as at 0.

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
# Angles computed as a product in float32, as most code does, are fine at short lengths and lose their digits further
# out. At 131,072 they are off by some thousandths of a radian, at 2^30 they are noise.

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
# ## Clocks
#
# Every pair of features is a clock hand. The first one turns by a radian a token, the last ones hardly move.

# %%
rw.plot.clocks(rope, trained=8192)

# %% [markdown]
# ## Another encoding, the same lines
#
# Attention asks an encoding for what it does: rotate queries and keys, or add a bias to the scores.

# %%
at = rw.positions.plain(16)
query, key, value = torch.randn(3, 1, 8, 16, 64)
for encoding in (rope, rw.encodings.ALiBi(heads=8), rw.encodings.T5(heads=8)):
    signal = encoding.at(at)
    turned = signal.rotate(query, "query"), signal.rotate(key, "key")
    out = rw.attend(*turned, value, rw.Score(signal, rw.Rule(causal=True)))
    print(f"{encoding.config.kind:6} {tuple(out.shape)}")

# %% [markdown]
# ## Is this implementation right?
#
# A target says what it claims to be and how to rotate. Here is a RoPE with one mistake: frequencies rounded to
# bfloat16, as a cast of the whole model does. It is right at position 0 and wrong further on.

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
