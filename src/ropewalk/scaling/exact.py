"""Frequencies to 60 digits, and the same numbers as 64-bit fractions of a turn.

    omega_i = base ** (-2i / width),  i < width / 2          turns_i = round(omega_i / 2 pi * 2**64)  mod 2**64

Why not float64: it is off by 2**-54 of a frequency, which is 6e-5 rad at position 2**40, where 1e-6 rad is promised.
RoPE: arXiv 2104.09864.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow, localcontext

DIGITS = 60
PI = Decimal("3.1415926535897932384626433832795028841971693993751058209749445923078164062862090")
LARGEST_BASE = 1e12
LARGEST_WIDTH = 65_536


def exact(digits: int = DIGITS) -> AbstractContextManager[Context]:
    """Arithmetic to so many digits, whatever decimal context the caller has set."""
    return localcontext(
        Context(prec=digits, rounding=ROUND_HALF_EVEN, traps=[InvalidOperation, DivisionByZero, Overflow])
    )


def ladder(base: float, width: int) -> tuple[Decimal, ...]:
    """The frequencies of plain RoPE on `width` features, fastest first."""
    check_base(base)
    check_width(width)
    return powers(Decimal(base), width)


def powers(base: Decimal, width: int) -> tuple[Decimal, ...]:
    """The ladder of a base already checked, or of one that a scaling made and that no float64 holds. Rotations need an
    even width; of an odd one (sines and cosines that are added) the last frequency has half a pair."""
    # One power and then products: twenty times faster than a power each; 20 digits more cover what products lose.
    with exact(DIGITS + 20):
        step = base ** (Decimal(-2) / width)
        omegas = [Decimal(1)]
        for _ in range((width - 1) // 2):
            omegas.append(omegas[-1] * step)
    with exact():
        return tuple(+omega for omega in omegas)


def turns(frequencies: Iterable[Decimal | float]) -> tuple[int, ...]:
    """Each frequency as a signed 64-bit fraction of a turn: position * turns wraps where the angle does."""
    with exact():
        return tuple(_turn(Decimal(frequency)) for frequency in frequencies)


def _turn(frequency: Decimal) -> int:
    if not frequency.is_finite():
        raise ValueError(f"frequency {frequency} is not finite; check the base and the scaling it came from")
    fraction = int((frequency * 2**64 / (2 * PI)).to_integral_value())
    return (fraction + 2**63) % 2**64 - 2**63


def check_base(base: float) -> None:
    if isinstance(base, bool) or not isinstance(base, int | float) or not 1 < base <= LARGEST_BASE:
        raise ValueError(
            f"base {base!r} is outside (1, 1e12]; give the RoPE base (rope_theta), such as 10000 or 500000"
        )


def check_width(width: int, least: int = 2) -> None:
    """`least` is 4 where a formula divides by width - 2."""
    if isinstance(width, bool) or not isinstance(width, int) or width % 2 or not least <= width <= LARGEST_WIDTH:
        raise ValueError(
            f"width {width!r} is not an even integer in [{least}, {LARGEST_WIDTH:,}]; "
            "give the number of features of a head that rotate, such as 64 or 128"
        )
