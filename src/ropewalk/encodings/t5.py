"""T5's relative bias: distances fall into buckets, each with one learned number for each head (Raffel et al., 2020).

    bias(h, i, j) = B[bucket(j - i), h]        arXiv:1910.10683, section 2.1
    bucket(d) = d                                                   d < e = n/2
              = e + floor(ln(d/e) / ln(longest/e) * (n - e))        up to n - 1

Two-way, half the buckets are for keys after the query (j > i); one-way, those all fall into bucket 0. The edges are
found in integers, so no logarithm rounds a distance into the wrong bucket. T5 takes scores without 1/sqrt(K): give
attention scale=1.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from ropewalk.encodings.base import Claims, Encoding
from ropewalk.positions import Positions


class T5(Encoding):
    """Adds to each score a number learned for each head and each bucket of distances.

    T5(heads=8, buckets=32, farthest=128). bidirectional=True for encoders. Give attention scale=1, as T5 does.
    """

    class Config(Encoding.Config):
        kind: Literal["t5"] = "t5"
        buckets: int = Field(default=32, ge=4, le=2**20)
        farthest: int = Field(default=128, gt=1, le=2**40)
        """Distance from which on, at the latest, all share the last bucket."""
        bidirectional: bool = False
        """True for encoders: half the buckets for keys after the query."""

        @model_validator(mode="after")
        def _edges_exist(self) -> Self:
            one_way = self.buckets // 2 if self.bidirectional else self.buckets
            if self.buckets % 2:
                raise ValueError(f"buckets={self.buckets} is odd; give an even number")
            if self.farthest <= one_way // 2:
                raise ValueError(
                    f"farthest={self.farthest} is within the {one_way // 2} distances that have a bucket each; give "
                    "more, or fewer buckets"
                )
            return self

    config: Config

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.claims = Claims(shift_invariant=True, bidirectional=self.config.bidirectional)
        self._one_way = self.config.buckets // 2 if self.config.bidirectional else self.config.buckets
        self._edges = bucket_edges(self._one_way, self.config.farthest)
        self.weight = nn.Parameter(torch.empty(self.config.buckets, self.heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.heads**-0.5)

    def forward(self, at: Positions) -> Tensor:  # (buckets, H)
        # A bucket gathers the gradients of thousands of scores, most of which a sum in bfloat16 would round away.
        return self.weight.to(torch.promote_types(self.weight.dtype, torch.float32))

    def bias(self, table: Tensor, head: Tensor, q_index: Tensor, k_index: Tensor) -> Tensor:
        bucket = self.bucket(k_index - q_index, one_by_one=head.ndim == 0)
        if head.ndim == 3:
            # All heads of one pair at once: (..., 1, L, S) -> (..., H, L, S). Its gradient is `embedding`'s, which is
            # many times faster than that of an index with repeats.
            score = F.embedding(bucket, table[:, head.flatten()]).movedim(-1, -3)
            return score.squeeze(-4) if bucket.ndim > 2 else score
        return table[bucket, head]

    def bias_bytes(self, heads: int) -> int:
        return max(24, 4 * heads + 8)

    def bucket(self, ahead: Tensor, *, one_by_one: bool = False) -> Tensor:
        """The bucket of each key position - query position. `one_by_one`: inside a kernel, where there is no search."""
        two_way, one_way, edges = self.config.bidirectional, self._one_way, self._edges
        apart = ahead.abs() if two_way else (-ahead).clamp(min=0)
        if one_by_one:
            bucket = apart.clamp(max=one_way // 2)
            for edge in edges[one_way // 2 :]:
                bucket = bucket + (apart >= edge)
        else:
            bucket = torch.bucketize(apart, torch.tensor(edges, device=ahead.device), right=True)
        return bucket + torch.where(ahead > 0, one_way, 0) if two_way else bucket


def bucket_edges(buckets: int, farthest: int) -> tuple[int, ...]:
    """The distance at which each bucket after the first begins."""
    exact = buckets // 2
    steps = buckets - exact
    edges = list(range(1, exact + 1))
    for step in range(1, steps):
        # ln(d/e) / ln(f/e) * n >= step, without logarithms: d^n e^step >= f^step e^n
        distance = edges[-1]
        while distance**steps * exact**step < farthest**step * exact**steps:
            distance += 1
        edges.append(distance)
    return tuple(edges)
