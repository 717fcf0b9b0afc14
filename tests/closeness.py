"""Compares what a test wants with what it got, and says how far apart they are and where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def assert_close(name: str, want: Tensor | Sequence[Any] | float, got: Tensor, tol: float) -> float:
    """Fails where any element differs by more than `tol`, an absolute bound; returns the largest difference.

    Compared in float64, integers as they are. Shapes must be equal. Infinities match themselves, NaN matches nothing.
    A line is printed either way: `pytest -s` shows how much room a bound leaves.
    """
    wanted = want.detach().cpu() if isinstance(want, Tensor) else torch.tensor(want, dtype=torch.float64)
    gotten = got.detach().cpu()
    if wanted.shape != gotten.shape:
        raise AssertionError(f"{name}: want shape {tuple(wanted.shape)}, got {tuple(gotten.shape)}")
    if wanted.numel() == 0:
        return 0.0
    difference = differences(wanted, gotten)
    worst = int(difference.argmax())
    place = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), difference.shape))
    largest = float(difference.flatten()[worst])
    line = (
        f"{name}: largest difference {largest:.3g} at {place}, "
        f"want {wanted[place].item()!r}, got {gotten[place].item()!r}; bound {tol:g}"
    )
    print(line)
    past = int((difference > tol).sum())
    if past:
        raise AssertionError(f"{line}; {past} of {difference.numel()} elements are past it")
    return largest


def differences(want: Tensor, got: Tensor) -> Tensor:
    """|want - got| in float64, infinite where either is NaN."""
    exact = not any(t.is_floating_point() or t.is_complex() for t in (want, got))
    wide = torch.complex128 if want.is_complex() or got.is_complex() else torch.float64
    a, b = want.to(wide), got.to(wide)
    equal = want == got if exact else a == b
    difference = (a - b).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
    if exact:
        # Two integers past 2**53 may differ and still be one float64.
        difference = difference.clamp(min=1.0)
    return torch.where(equal, 0.0, difference)
