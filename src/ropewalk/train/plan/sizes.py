"""How a run is cut: sequences of an update, passes of a rank, steps in all."""

from __future__ import annotations

from typing import NamedTuple

from ropewalk.train.config import TrainConfig


class Sizes(NamedTuple):
    rows: int
    """Of one update, over all ranks."""
    micro: int
    """Of one pass on one rank."""
    passes: int
    """Of one rank in one update."""
    steps: int
    length: int
    """Tokens of a sequence."""

    @property
    def batch(self) -> int:
        return self.rows * self.length


def sizes(train: TrainConfig, length: int, ranks: int) -> Sizes:
    """ranks: how many read sequences of their own (dp_replicate x dp_shard)."""
    rows = max(1, round(train.batch / length))
    if rows % ranks:
        near = max(ranks, round(rows / ranks) * ranks)
        raise ValueError(
            f"a batch of {train.batch:,} tokens is {rows} sequences of {length:,}, which {ranks} data-parallel ranks "
            f"cannot share evenly; write train.batch={near * length}"
        )
    own = rows // ranks
    most = own if train.micro is None else max(1, train.micro // length)
    # Passes of one shape: a pass of another would be compiled anew.
    micro = max(n for n in range(1, min(own, most) + 1) if own % n == 0)
    steps = train.steps if train.steps is not None else max(1, round((train.tokens or 0) / (rows * length)))
    return Sizes(rows, micro, own // micro, steps, length)
