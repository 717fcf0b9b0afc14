# %% [markdown]
# # The five articles, by hand
#
# Ropewalk grew out of five Chinese articles on the Transformer and its position encodings. Here are five of their
# claims, written out in a few lines each and compared with the library. The course in the documentation has all of
# them, with the errata.

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
# ## Attention is a weighted mean of values
#
# The weights are a softmax of scaled products. Dividing by sqrt(d) brings the scores of random vectors to variance 1.

# %%
q, k, v = torch.randn(3, 1, 2, 6, 16, dtype=torch.float64)
weights = torch.softmax(q @ k.mT / math.sqrt(16), -1)
nothing = rw.encodings.NoPE().at(rw.positions.plain(6))
ours = rw.attend(q, k, v, rw.Score(nothing, rw.Rule(causal=False)))
print("difference", (weights @ v - ours).abs().max().item())
assert torch.allclose(weights @ v, ours)

# %% [markdown]
# ## Without positions, word order is lost
#
# Shuffle the keys and values, and nothing changes.

# %%
shuffled = torch.randperm(6)
again = rw.attend(q, k[:, :, shuffled], v[:, :, shuffled], rw.Score(nothing, rw.Rule(causal=False)))
assert torch.allclose(ours, again)
print("shuffled: the same")

# %% [markdown]
# ## Sinusoids count like a binary counter
#
# Fast features change with every token, slow ones seldom. Wavelengths grow by the factor 10000^(2/d) from pair to
# pair: one of the articles prints a radix of 10000^(2/d) 2 pi, and the ratio of neighbours shows which is right.

# %%
width = 64
lengths = [2 * math.pi * 10_000 ** (2 * i / width) for i in range(width // 2)]
ratio = lengths[1] / lengths[0]
radix = 10_000 ** (2 / width)
print(f"ratio {ratio:.4f}; 10000^(2/d) is {radix:.4f}, times 2 pi {radix * 2 * math.pi:.4f}")
assert math.isclose(ratio, radix)
rw.plot.sinusoids()

# %% [markdown]
# ## RoPE is a product of rotations
#
# In the complex plane a pair is one number, and its rotation a product with e^(i m omega). The score of two rotated
# vectors depends on the difference of their positions.

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
# ## From interpolation to YaRN
#
# Position interpolation divides every frequency by s. NTK-aware scaling raises the base so that the slowest pair is
# divided by s and the fastest kept. YaRN keeps the fast pairs, divides the slow ones and blends between.

# %%
s, trained = 4, 4096
plain = rw.scaling.Linear(factor=1).frequencies(10_000, 128)
for scaling in (rw.scaling.Linear(factor=s), rw.scaling.NTK(factor=s), rw.scaling.YaRN(factor=s, trained=trained)):
    divided = [float(old / new) for old, new in zip(plain, scaling.frequencies(10_000, 128), strict=True)]
    fastest, middle, slowest = divided[0], divided[32], divided[-1]
    print(f"{scaling.kind:7} fastest pair divided by {fastest:.2f}, middle {middle:.2f}, slowest {slowest:.2f}")
    assert math.isclose(slowest, s, rel_tol=1e-9)
rw.plot.scalings(rw.encodings.RoPE(head_width=128), trained=trained, to=s * trained)
