"""Every scaling in several parameterisations, each with its oracle: what tests of all scalings run over."""

from __future__ import annotations

from ropewalk.scaling import NTK, Dynamic, Linear, Llama3, LongRoPE, Proportional, YaRN
from tests.scaling import oracles


def divisors(width, start, step):
    return tuple(start + step * i for i in range(width // 2))


def rows(width):
    short, long = divisors(width, 1.0, 0.01), divisors(width, 1.1, 0.73)
    phi = {"short": short, "long": long, "trained": 4096, "factor": 32}
    return {
        "linear": (Linear(factor=8), lambda i, b, w: oracles.linear(i, b, w, 8)),
        "ntk": (NTK(factor=8), lambda i, b, w: oracles.ntk(i, b, w, 8)),
        "dynamic within": (
            Dynamic(factor=2, trained=2048, length=2048),
            lambda i, b, w: oracles.dynamic(i, b, w, 2, 2048, 2048),
        ),
        "dynamic past": (
            Dynamic(factor=2, trained=2048, length=10_000),
            lambda i, b, w: oracles.dynamic(i, b, w, 2, 2048, 10_000),
        ),
        "yarn": (YaRN(factor=8, trained=2048), lambda i, b, w: oracles.yarn_code(i, b, w, 8, 2048)),
        "yarn untruncated": (
            YaRN(factor=32, trained=4096, truncate=False),
            lambda i, b, w: oracles.yarn_code(i, b, w, 32, 4096, truncate=False),
        ),
        "yarn betas": (
            YaRN(factor=40, trained=8192, beta_fast=16, beta_slow=2.5),
            lambda i, b, w: oracles.yarn_code(i, b, w, 40, 8192, 16, 2.5),
        ),
        # Longer than 2 pi times the smaller bases, where it matters that the ramp may end past the last index.
        "yarn from 131,072": (
            YaRN(factor=4, trained=131_072),
            lambda i, b, w: oracles.yarn_code(i, b, w, 4, 131_072),
        ),
        # So short that even the fastest frequency turns less than beta_fast times.
        "yarn from 64": (YaRN(factor=4, trained=64), lambda i, b, w: oracles.yarn_code(i, b, w, 4, 64)),
        "yarn from 512": (YaRN(factor=2048, trained=512), lambda i, b, w: oracles.yarn_code(i, b, w, 2048, 512)),
        "yarn paper": (
            YaRN(factor=8, trained=2048, ramp="paper"),
            lambda i, b, w: oracles.by_parts(i, b, w, 8, 2048, 1, 32),
        ),
        "llama3": (Llama3(factor=8, trained=8192), lambda i, b, w: oracles.by_parts(i, b, w, 8, 8192, 1, 4)),
        "llama3 ends": (
            Llama3(factor=32, trained=4096, low=0.5, high=9),
            lambda i, b, w: oracles.by_parts(i, b, w, 32, 4096, 0.5, 9),
        ),
        "longrope short": (LongRoPE(**phi, length=4096), lambda i, b, w: oracles.longrope(i, b, w, short)),
        "longrope long": (LongRoPE(**phi, length=4097), lambda i, b, w: oracles.longrope(i, b, w, long)),
        "proportional": (Proportional(fraction=0.25), lambda i, b, w: oracles.proportional(i, b, w, 0.25)),
        "proportional x4": (
            Proportional(fraction=0.5, factor=4),
            lambda i, b, w: oracles.proportional(i, b, w, 0.5, 4),
        ),
    }


NAMES = tuple(rows(64))
