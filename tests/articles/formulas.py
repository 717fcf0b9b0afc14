"""The articles' equations and programs in plain torch and Python, to hold the library against. Imports no ropewalk.

The five articles are named by topic, and their sections by number or by what they are about:

    attention      from scaled dot products to RoPE, six sections
    why_positions  two essays in notes: why sines and cosines; the positional encoding
    rope           rotary positions derived over the real numbers, with programs
    blocks         every block of a Transformer, sections 1.1 to 1.4
    sinusoids      relative positions from X + P, with a program
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

Vector = list[float]


def softmax(scores: Vector) -> Vector:
    """p_i = exp(x_i) / sum of exp(x_j), one number at a time."""
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    return [power / sum(powers) for power in powers]


def dot(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def attention(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool = False) -> Tensor:
    """Attention of (L, K) queries to (S, K) keys and (S, V) values: for each query a weighted mean of the values."""
    rows = []
    for i, query in enumerate(q.tolist()):
        keys = k.tolist()[: i + 1] if causal else k.tolist()
        weights = softmax([scale * dot(query, key) for key in keys])
        rows.append([dot(weights, column[: len(keys)]) for column in v.T.tolist()])
    return torch.tensor(rows, dtype=torch.float64)


def frequencies(width: int, base: float = 1e4) -> Tensor:
    return torch.tensor([base ** (-2 * i / width) for i in range(width // 2)], dtype=torch.float64)


def rotation(angles: Tensor) -> Tensor:
    """The block-diagonal matrix that turns column vectors counter-clockwise, one 2 x 2 block for each angle."""
    blocks = [
        torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]], dtype=torch.float64)
        for a in angles.tolist()
    ]
    return torch.block_diag(*blocks)


def elementwise(x: Tensor, angles: Tensor) -> Tensor:
    """x * (cos cos ..) + (-x2, x1, -x4, x3, ..) * (sin sin ..): the matrix product without its zeros."""
    swapped = x.clone()
    swapped[..., 0::2], swapped[..., 1::2] = -x[..., 1::2], x[..., 0::2]
    return x * angles.cos().repeat_interleave(2, -1) + swapped * angles.sin().repeat_interleave(2, -1)


def complex_product(x: Tensor, angles: Tensor) -> Tensor:
    """Each pair as one complex number times e^(i angle)."""
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


def printed_rotator(x: Tensor, position_ids: Tensor) -> Tensor:
    """What the program of the article `rope` computes: float32 angles, each used twice, halves swapped with a sign."""
    width = x.shape[-1]
    ratio = 10000 ** (1 / (width / 2))
    angles = torch.outer(position_ids, 1.0 / ratio ** torch.arange(0, width / 2))  # (N, D/2)
    angles = torch.cat([angles, angles], dim=-1)
    first, second = x[..., : width // 2], x[..., width // 2 :]
    return x * angles.cos() + torch.cat([-second, first], dim=-1) * angles.sin()


def printed_attention(x: Tensor, position_ids: Tensor, joint: Tensor, out: Tensor, heads: int) -> Tensor:
    """What that article's attention layer computes, its linear layers being matrices: `joint` makes q, k and v."""
    B, N, width = x.shape
    q, k, v = (part.view(B, N, heads, width // heads).transpose(1, 2) for part in (x @ joint).split(width, dim=-1))
    q, k = printed_rotator(q, position_ids), printed_rotator(k, position_ids)
    weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(width // heads), dim=-1)
    return (weights @ v).transpose(1, 2).reshape(B, N, width) @ out


def printed_sinusoids(length: int, width: int) -> Tensor:
    """What the program of the article `sinusoids` computes; an odd width makes it fail."""
    table = torch.zeros(length, width)
    position = torch.arange(0, length).unsqueeze(1).float()
    rate = torch.exp(torch.arange(0, width, 2).float() * (-math.log(10000.0) / width))
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate)
    return table
