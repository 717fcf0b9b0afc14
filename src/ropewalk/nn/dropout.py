"""Dropout by torch's generator, or with masks that are a function of where they fall and not of what was drawn before.

    keep(x) = hash(seed, step, sample, layer, place, position, feature) >= rate

Given a `DropoutKey`, a run that is resumed, cut into other batches or spread over other ranks drops the same features:
none of these numbers changes. The hash is splitmix64's finisher, three rounds of it over exact integers. Without a key,
torch's generator decides, which is faster, and attention leaves it to torch's kernels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ropewalk.attention import WeightDropout
from ropewalk.positions import Positions


class DropoutKey(NamedTuple):
    """What the dropout masks of one training step depend on, for runs that must be reproducible."""

    numbers: Tensor
    """(B,) int64: all that tells the masks of one sequence from those of another, or of another step or layer. In a
    tensor, because numbers of the host would be constants of a compiled graph, and every step another graph."""

    @classmethod
    def for_step(cls, seed: int, step: int, sample: Tensor) -> DropoutKey:
        """sample: (B,) int64, the number of each sequence in the data, whatever batch or rank it is in."""
        mixed = seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB
        return cls(sample * 0x2545F4914F6CDD1D + _signed(mixed))

    def for_layer(self, layer: int) -> DropoutKey:
        return DropoutKey(self.numbers + _signed(_mixed(layer)))


class Dropout(nn.Module):
    """One place of a layer where features are dropped, in steps of 2^-16; `place` tells it from the others."""

    def __init__(self, rate: float, place: int = 0) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"dropout {rate} must lie in [0, 1)")
        self.rate, self.place = rate, place
        self.needs_key = False
        """Set where several ranks must drop the same features, which torch's generators would not do."""

    @property
    def active(self) -> bool:
        return self.training and self.rate > 0

    def forward(self, x: Tensor, dropout_key: DropoutKey | None, at: Positions) -> Tensor:  # x (B, L, D)
        if not self.active:
            return x
        if dropout_key is None and not self.needs_key:
            return F.dropout(x, self.rate)
        width = x.shape[-1]
        # A hash has bits for four features, sixteen each: it is what dropout costs.
        four = torch.arange(-(-width // 4), device=x.device)
        bits = self.bits(dropout_key, slice(None), at.segment[..., None], _place(at)[..., None], four)
        share = math.ceil(self.rate * 2**16)
        dropped = bits.view(torch.int16)[..., :width] < share - 2**15
        return (x * (2**16 / (2**16 - share))).masked_fill(dropped, 0.0)

    def of_weights(self, dropout_key: DropoutKey | None, q: Tensor) -> WeightDropout | None:
        """The same for the attention weights of queries (B, H, L, K): by head, query and key."""
        if not self.active:
            return None
        any_mask = dropout_key is None and not self.needs_key
        if any_mask:
            # For backends that compute a mask tile by tile, and again in the backward pass.
            dropout_key = DropoutKey(torch.randint(2**62, (len(q),), device=q.device))

        def kept(sequences: slice, head: Tensor, q: Positions, k: Positions) -> Tensor:
            segment, place = q.segment[:, None, :, None], _place(q)[:, None, :, None]
            bits = self.bits(dropout_key, sequences, segment, place, head[None], _place(k)[:, None, None, :])
            return ((bits >> 11) & (2**53 - 1)) >= math.ceil(self.rate * 2**53)  # the top 53

        return WeightDropout(kept, 1 / (1 - self.rate), self.rate if any_mask else None)

    def bits(self, dropout_key: DropoutKey | None, sequences: slice, *coordinates: Tensor) -> Tensor:
        """64 random bits for each place. Coordinates broadcast; the first axis is that of these sequences."""
        if dropout_key is None:
            raise ValueError(
                "under tensor parallelism all ranks must drop the same features: pass "
                "dropout_key=DropoutKey.for_step(seed, step, sample), or call model.eval()"
            )
        axes = max(c.ndim for c in coordinates) - 1
        bits = dropout_key.numbers[sequences].view(-1, *[1] * axes) + _signed(_mixed(START + self.place))
        for coordinate in coordinates:
            bits = _mix(bits) + coordinate
        return _mix(bits)

    def extra_repr(self) -> str:
        return f"{self.rate}"


def _place(at: Positions) -> Tensor:
    """(B, L): the order of a token, and another number where its index is not that: tokens of a prefix that sees itself
    both ways have one order."""
    if at.index is at.order:
        return at.order
    index = at.index if at.axes is None else at.index.sum(dim=2) - (at.axes - 1) * at.order
    return at.order + (index - at.order) * _signed(START)


def _mix(z: Tensor) -> Tensor:
    """splitmix64's finisher on int64 tensors, whose products wrap and whose shifts must be told to be unsigned."""
    z = (z ^ ((z >> 30) & (2**34 - 1))) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ ((z >> 27) & (2**37 - 1))) * _signed(0x94D049BB133111EB)
    return z ^ ((z >> 31) & (2**33 - 1))


def _mixed(z: int) -> int:
    """The same on one Python integer."""
    z %= 1 << 64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % (1 << 64)
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % (1 << 64)
    return z ^ (z >> 31)


def _signed(z: int) -> int:
    return (z + (1 << 63)) % (1 << 64) - (1 << 63)


START = _mixed(_mixed(0x9E3779B97F4A7C15))
