"""Chain: several encodings as one, each doing its part at its own sites.

    embed and rotate in the order written, biases summed, gains on scores multiplied

Ministral 3 is rope + temperature, MPNet learned + t5. A chain claims what all its parts claim. Where a part takes a
share of the width (combine: concat), the parts before it work on what it leaves: a share is half of the width after its
part unless given. Two rotations are refused: the second turns what the first has turned, and unless both pair the same
features, scores no longer depend on differences of positions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, PlainValidator, SerializeAsAny, WithJsonSchema
from torch import Tensor, nn

from ropewalk.encodings.base import Claims, Encoding, Role, Table, canonical
from ropewalk.encodings.find import build, validated
from ropewalk.plan import LayerPlan
from ropewalk.positions import Positions

# A schema that lists every kind would contain itself.
Part = Annotated[
    SerializeAsAny[Encoding.Config], PlainValidator(validated), WithJsonSchema({"type": ["string", "object"]})
]


class Chain(Encoding):
    """Several encodings as one: Chain(parts=["rope", {"kind": "temperature", "trained": 8192}], head_width=64)."""

    class Config(Encoding.Config):
        kind: Literal["chain"] = "chain"
        parts: tuple[Part, ...] = Field(min_length=1, max_length=16)

    config: Config

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        parts = [
            build(part, **{**self._dims, "width": width})
            for part, width in zip(self.config.parts, self._widths(), strict=True)
        ]
        self.parts = nn.ModuleList(parts)
        turning = [part for part in parts if "rotate" in part.sites and part.claims.shift_invariant]
        if len(turning) > 1:
            kinds = " and ".join(part.config.kind for part in turning)
            raise ValueError(f"a chain turns queries and keys once, and {kinds} both do; keep one of them")
        each = [part.claims for part in parts]
        ends = [claim.longest for claim in each if claim.longest is not None]
        self.claims = Claims(
            shift_invariant=all(claim.shift_invariant for claim in each),
            keeps_norm=all(claim.keeps_norm for claim in each),
            bidirectional=all(claim.bidirectional for claim in each),
            pointwise=all(claim.pointwise for claim in each),
            needs_limit=any(claim.needs_limit for claim in each),
            longest=min(ends, default=None),
        )

    def _widths(self) -> list[int | None]:
        """Of the vectors that each part makes: from the last to the first, as wide as the next one takes."""
        widths = [self._dims["width"]]
        for part in reversed(self.config.parts[1:]):
            with torch.device("meta"):
                after = None if widths[0] is None else build(part, **{**self._dims, "width": widths[0]}).token_width
            widths.insert(0, after)
        return widths

    @property
    def encodings(self) -> list[Encoding]:
        return [part for part in self.parts if isinstance(part, Encoding)]

    @property
    def sites(self) -> frozenset[str]:
        return frozenset().union(*(part.sites for part in self.encodings))

    @property
    def axes(self) -> int | None:
        return next((part.axes for part in self.encodings if part.axes is not None), None)

    @property
    def logit_gain(self) -> float:
        gain = 1.0
        for part in self.encodings:
            gain *= part.logit_gain
        return gain

    @property
    def token_width(self) -> int:
        return self.encodings[0].token_width

    def reset_parameters(self) -> None:
        for part in self.encodings:
            part.reset_parameters()

    def check(self, at: Positions) -> None:
        for part in self.encodings:
            part.check(at)

    def forward(self, at: Positions) -> list[Table]:
        return [part(at) for part in self.encodings]

    def embed(self, x: Tensor, table: list[Table]) -> Tensor:
        for part, its in zip(self.encodings, table, strict=True):
            x = part.embed(x, its)
        return x

    def rotate(self, x: Tensor, table: list[Table], role: Role) -> Tensor:
        for part, its in zip(self.encodings, table, strict=True):
            x = part.rotate(x, its, role)
        return x

    def bias(self, table: list[Table], head: Tensor, q_index: Tensor, k_index: Tensor) -> Tensor:
        pairs = [pair for pair in zip(self.encodings, table, strict=True) if "bias" in pair[0].sites]
        (first, its), *others = pairs
        score = first.bias(its, head, q_index, k_index)
        for part, its in others:
            score = score + part.bias(its, head, q_index, k_index)
        return score

    def bias_bytes(self, heads: int) -> int:
        """One part's after the other's, beside the sum."""
        return 4 * heads + max(part.bias_bytes(heads) for part in self.encodings if "bias" in part.sites)

    def move(self, k: Tensor, delta: Tensor) -> Tensor:
        for part in self.encodings:
            k = part.move(k, delta)
        return k

    def layer_plan(self, window: int | None = None) -> LayerPlan:
        """The frequencies of the part that turns, if one does; its settings are those of all parts."""
        plans = [part.layer_plan() for part in self.encodings]
        turning = next((plan for plan in plans if plan.layout is not None), plans[0])
        settings = canonical(self.config, self._dims)
        return replace(turning, kind=self.config.kind, settings=settings, logit_gain=self.logit_gain, window=window)
