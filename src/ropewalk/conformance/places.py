"""The positions that checks look at: never 0 alone, where every encoding agrees with every other."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.target import Spec

EDGES = (
    0,
    1,
    255,
    256,
    257,
    131_071,
    1_000_000,
    2**24 - 1,
    2**24,
    2**24 + 1,
    2**31 - 1,
    2**31,
    2**31 + 1,
    2**32,
    2**40,
)
"""Where integers and floats of 8, 11, 24, 31 and 32 bits end."""

SHIFTS = (1, 1_000, 32_768, 131_072, 1_000_000, 2**31, 2**36, 2**40 - 2**20)


SINGLE = 2.0**-22
"""Of position times frequency: what float32 may cost an angle. Frequency, position, a division by a factor and their
product each round by 2^-24."""


def below(spec: Spec, positions: Iterable[int], room: int = 0) -> list[int]:
    """Those the target can be asked for, with `room` positions after each."""
    end = 2**40 + 1 if spec.longest is None else spec.longest
    return [p for p in positions if p + room < end]


def far(spec: Spec, found: Findings, each: int = 12) -> Tensor:
    """(N,) ascending: a few of every size from 2 to 2^40, and where integers and floats end."""
    generator = found.generator(1)
    picked = [0, 1]
    for bits in range(1, 40):
        low, count = 2**bits, 2**bits
        picked += (low + torch.randint(count, (each if bits > 4 else 2,), generator=generator)).tolist()
    picked += [*EDGES, 2**40 - 1 if spec.longest is None else spec.longest - 1]
    return torch.tensor(sorted(set(below(spec, picked))))


def settled(spec: Spec, positions: Tensor) -> Tensor:
    """The same, ending in the last position where that decides a length-dependent scaling."""
    if not spec.length_dependent or spec.longest is None:
        return positions
    return torch.cat([positions, torch.full_like(positions[..., :1], spec.longest - 1)], dim=-1)


def start_near(spec: Spec, wanted: int, length: int) -> int:
    """`wanted`, or as near to it as a passage of this length can start."""
    starts = below(spec, [wanted], length)
    if starts:
        return starts[0]
    if spec.longest is None or spec.longest <= length + 1:
        raise NotApplicable(f"needs {length} positions; the target has {spec.longest}")
    return spec.longest - length - 1
