"""Runs one biased attention forward and backward and prints the MiB it took beyond its inputs (peak resident size)."""

from __future__ import annotations

import resource
import sys
import time

import torch

from ropewalk import encodings, positions
from ropewalk.attention import Rule, Score, attend
from ropewalk.positions import Positions


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(kind: str, length: int) -> None:
    torch.manual_seed(0)
    encoding = encodings.build(kind, heads=8)
    q, k, v = (torch.randn(1, 8, length, 64, requires_grad=True) for _ in range(3))
    at = positions.plain(length, limit=length)
    attend(q[:, :, :64], k[:, :, :64], v[:, :, :64], Score(encoding.at(at.take(slice(0, 64))), Rule())).sum().backward()
    q.grad = k.grad = v.grad = None
    before, began = peak(), time.perf_counter()
    out = attend(q, k, v, Score(encoding.at(at), Rule()))
    middle = time.perf_counter()
    out.square().sum().backward()
    ended = time.perf_counter()
    grown = peak() - before
    check_last_rows(encoding, q, k, v, at, out)
    print(f"{grown:.0f} MiB; forward {middle - began:.1f} s, backward {ended - middle:.1f} s")


def check_last_rows(encoding: encodings.Encoding, q, k, v, at: Positions, out: torch.Tensor) -> None:
    """The last queries, which see the most keys, against the reference on that slice."""
    last = slice(-8, None)
    with torch.no_grad():
        signal = encoding.at(at.take(last), at)
        want = attend(q[:, :, last], k, v, Score(signal, Rule()), backend="eager")
    assert (want - out[:, :, last]).abs().max() <= 2e-6
    assert all(torch.isfinite(x.grad).all() for x in (q, k, v))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
