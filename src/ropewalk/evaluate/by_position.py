"""The loss on a text, in all and by position.

A mean hides where a model stops seeing: the loss by position shows it. Sums are kept in float64 and added over ranks by
`total`, so the figure does not depend on how the text was spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ropewalk.data.batch import IGNORE, Batch

BINS = 16
"""Equal parts of the sequence for which the loss is given."""


def by_position(
    losses: Callable[[Batch], Tensor],
    batches: Iterable[Batch],
    *,
    length: int,
    token_bytes: np.ndarray[Any, Any] | None = None,
    total: Callable[[Tensor], Tensor] = lambda sums: sums,
) -> dict[str, Any]:
    """losses(batch) -> (B, L), 0 where nothing is asked. Nats per token; bits per byte where tokens have bytes."""
    bins = min(BINS, length)
    sums = torch.zeros(3, bins, dtype=torch.float64)  # nats, tokens, bytes
    sizes = None if token_bytes is None else torch.from_numpy(np.asarray(token_bytes, dtype=np.float64))
    for batch in batches:
        loss = losses(batch).double().cpu()
        asked = (batch.target != IGNORE).cpu()
        index = batch.at.index if batch.at.axes is None else batch.at.order
        place = (index.cpu() * bins // length).clamp(0, bins - 1)[asked]
        weights = [loss[asked], torch.ones(len(place), dtype=torch.float64)]
        if sizes is not None:
            weights.append(sizes[batch.target.cpu()[asked]])
        for row, values in enumerate(weights):
            sums[row].index_add_(0, place, values)
    nats, tokens, size = total(sums).cpu().unbind()
    found: dict[str, Any] = {"loss": _share(nats.sum(), tokens.sum()), "tokens": int(tokens.sum())}
    if sizes is not None:
        found["bits_per_byte"] = _share(nats.sum(), size.sum() * math.log(2))
    found["by_position"] = [
        {"from": -(-b * length // bins), "loss": _share(nats[b], tokens[b]), "tokens": int(tokens[b])}
        for b in range(bins)
        if tokens[b] > 0
    ]
    return found


def _share(part: Tensor, whole: Tensor) -> float:
    return float(part / whole) if float(whole) else math.nan
