"""Exact angles: a frequency is a 64-bit fraction of a turn, and a position times it wraps modulo one turn.

    phase(p) = p * turns  (mod 2^64),   turns = round(omega / 2 pi * 2^64),   angle = phase * 2 pi / 2^64

Integer wrap-around *is* the reduction of the angle, so phase(m + n) == phase(m) + phase(n) bit for bit and the relative
law holds by construction. The float32 product that other libraries take is off by 7.6e-3 rad at position 128k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

WITHOUT_FLOAT64 = frozenset({"mps"})


def widest(device: torch.device) -> torch.dtype:
    """The most exact floats a device has."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def phase(index: Tensor, turns: Sequence[int]) -> Tensor:
    """(...) integer positions -> (..., F) int64 phases, one for each frequency."""
    return index.long()[..., None] * torch.tensor(turns, dtype=torch.int64, device=index.device)


def cos_sin(phases: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the phases, within 1.6e-7 rad in float32; 3.1e-7 on devices that have no float64."""
    if phases.device.type in WITHOUT_FLOAT64:
        angle = (phases >> 32).to(torch.float32) * (2 * math.pi / 2**32)
    else:
        angle = phases.to(torch.float64) * (2 * math.pi / 2**64)
    return angle.cos().to(dtype), angle.sin().to(dtype)
