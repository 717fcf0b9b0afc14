"""nn.RoPE takes each frequency as 2 to a float32 power, whose rounding makes it wrong by up to 5e-7, relatively.

The same kernel, given frequencies that were rounded once (freqs=), is several times closer.
"""

from __future__ import annotations

import math

import mlx.core as mx
import mlx.nn as nn

WIDTH, POSITION = 64, 8_191
HALF = WIDTH // 2
true = [10_000.0 ** (-2 * i / WIDTH) for i in range(HALF)]
x = mx.array([[[[1.0] * HALF + [0.0] * HALF]]])


def worst(row: list[float]) -> float:
    """The largest error of a pair's angle, for its own size."""
    angles = [math.atan2(row[HALF + i], row[i]) for i in range(HALF)]
    off = [abs(math.remainder(got - POSITION * omega, 2 * math.pi)) for got, omega in zip(angles, true, strict=True)]
    return max(error / (POSITION * omega) for error, omega in zip(off, true, strict=True))


given = mx.fast.rope(
    x, WIDTH, traditional=False, base=None, scale=1.0, offset=POSITION, freqs=mx.array([1 / omega for omega in true])
)
print("expected: angles within", worst(given[0, 0, 0].tolist()), "of theirs, by frequencies that were rounded once")
print("got:     ", worst(nn.RoPE(WIDTH)(x, offset=POSITION)[0, 0, 0].tolist()), "by nn.RoPE")
