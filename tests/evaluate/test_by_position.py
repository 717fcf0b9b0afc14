"""The loss by position, against sums made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from ropewalk import positions
from ropewalk.data.batch import IGNORE, Batch
from ropewalk.evaluate.by_position import by_position

LENGTH = 64
"""16 parts of 4 positions."""


def batch(first: int = 0) -> Batch:
    """Two sequences whose loss at position p is p, and one document of three tokens at the end of the second."""
    at = positions.packed([[LENGTH], [LENGTH - 3, 3]], limit=LENGTH)
    target = torch.arange(LENGTH).repeat(2, 1) % 5
    target[0, :first] = IGNORE
    return Batch(target, at, target, torch.arange(2))


def losses(given: Batch) -> Tensor:
    return torch.where(given.target == IGNORE, 0.0, given.at.index.float())


def test_each_part_has_its_own_positions() -> None:
    found = by_position(losses, [batch(first=8)], length=LENGTH)
    parts = {part["from"]: (part["loss"], part["tokens"]) for part in found["by_position"]}
    # Positions 0 to 2 of the second document, and 0 to 3 of the long one; 4 to 7 of one sequence; then of both.
    assert parts[0] == (pytest.approx((0 + 1 + 2 + 0 + 1 + 2 + 3) / 7), 7)
    assert parts[4] == (5.5, 4)
    assert parts[8] == (9.5, 8)
    assert parts[60] == (pytest.approx((60 + 61 + 62 + 63 + 60) / 5), 5)
    assert sorted(parts) == list(range(0, 64, 4))
    assert found["tokens"] == 2 * LENGTH - 8
    assert found["loss"] == pytest.approx((sum(range(8, 64)) + sum(range(61)) + 3) / (2 * LENGTH - 8))


def test_bits_per_byte() -> None:
    """ln 2 nats for every byte are one bit."""
    sizes = np.array([1, 2, 3, 4, 5])

    def nats(given: Batch) -> Tensor:
        return torch.from_numpy(sizes)[given.target] * math.log(2)

    found = by_position(nats, [batch()], length=LENGTH, token_bytes=sizes)
    assert found["bits_per_byte"] == pytest.approx(1.0, rel=1e-6)


def test_sums_are_added_over_ranks() -> None:
    alone = by_position(losses, [batch(), batch(8)], length=LENGTH)
    other: list[Tensor] = []
    by_position(losses, [batch(8)], length=LENGTH, total=lambda sums: other.append(sums) or sums)
    both = by_position(losses, [batch()], length=LENGTH, total=lambda sums: sums + other[0])
    assert both == alone


def test_nothing_to_measure() -> None:
    found = by_position(losses, [], length=LENGTH)
    assert math.isnan(found["loss"])
    assert found["by_position"] == []
