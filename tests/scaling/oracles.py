"""The papers' equations, one frequency at a time, in float64 and without a line of the library."""

from __future__ import annotations

import math


def plain(i, base, width):
    return math.exp(-2 * i * math.log(base) / width)


def linear(i, base, width, factor):
    return plain(i, base, width) / factor


def ntk(i, base, width, factor):
    return plain(i, base, width) * factor ** (-2 * i / (width - 2))


def vllm_ntk(i, base, width, factor):
    return plain(i, base, width) * factor ** (-2 * (i + 1) / width)


def dynamic(i, base, width, factor, trained, length):
    if length <= trained:
        return plain(i, base, width)
    return ntk(i, base, width, 1 + factor * (length - trained) / trained)


def wavelength(i, base, width):
    return 2 * math.pi / plain(i, base, width)


def index_of(rotations, base, width, trained):
    """The real-valued index whose wavelength fits `rotations` times into the trained length."""
    return width / 2 * math.log(trained / rotations / (2 * math.pi), base)


def yarn_code(i, base, width, factor, trained, fast=32.0, slow=1.0, truncate=True):
    first, last = index_of(fast, base, width, trained), index_of(slow, base, width, trained)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    if i <= first:
        mixed = 0.0
    elif i >= last:
        mixed = 1.0
    else:
        mixed = (i - first) / (last - first)
    omega = plain(i, base, width)
    return omega * (1 - mixed + mixed / factor)


def by_parts(i, base, width, factor, trained, slow, fast):
    """Equations 17 to 20 of the YaRN paper; also Llama 3.1's rule."""
    rotations = trained / wavelength(i, base, width)
    omega = plain(i, base, width)
    if rotations < slow:
        return omega / factor
    if rotations > fast:
        return omega
    kept = (rotations - slow) / (fast - slow)
    return (1 - kept) * omega / factor + kept * omega


def longrope(i, base, width, divisors):
    return 1 / (divisors[i] * base ** (2 * i / width))


def proportional(i, base, width, fraction, factor=1.0):
    return plain(i, base, width) / factor if i < math.floor(fraction * width / 2) else 0.0


def yarn_gain(factor):
    return 1 + math.log(factor) / 10 if factor > 1 else 1.0


def longrope_gain(factor, trained):
    return math.sqrt(1 + math.log(factor, trained)) if factor > 1 else 1.0
