"""What machines can do, as their makers state it: for estimates, never for a claim."""

from __future__ import annotations

from typing import NamedTuple


class Device(NamedTuple):
    memory: float
    """Bytes."""
    bfloat16: float
    """FLOP/s, dense."""
    float32: float
    near: float
    """Bytes a second to the ranks of the same machine, one way."""
    far: float
    """Bytes a second to ranks elsewhere."""
    beside: int
    """Ranks in one machine."""
    dollars: float
    """An hour of one, as clouds rent it out in 2026; prices differ by a factor of two."""


DEVICES = {
    "a100": Device(80e9, 312e12, 19.5e12, 300e9, 25e9, 8, 1.5),
    "h100": Device(80e9, 989e12, 67e12, 450e9, 50e9, 8, 2.5),
    "h200": Device(141e9, 989e12, 67e12, 450e9, 50e9, 8, 3.0),
    "b200": Device(192e9, 2250e12, 80e12, 900e9, 50e9, 8, 5.0),
}
REACHED = 0.45
"""Share of the stated speed that well-tuned training of dense Transformers reaches."""
HELD_BACK = 0.92
"""Share of a device's memory that tensors can have: the rest is the context, libraries and fragmentation."""
PROCESS = 345 << 20
"""Bytes that a training process has on a CPU before its first tensor: the interpreter and libraries."""
BUFFERS, HOLES = 40 << 20, 0.25
"""On a CPU, what multiplies matrices and what malloc keeps of freed memory, at most as much as all tensors together:
bytes, and a share of the tensors at their peak. The three were chosen on what `campaigns/estimates.py` calls fitted."""
