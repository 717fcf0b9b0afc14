"""Chain: several encodings as one, each doing its part at its own sites.

    embed and rotate in the order written, biases summed

Llama 4 is rope + temperature, MPNet learned + t5. A chain claims what all its parts claim.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, SerializeAsAny, WithJsonSchema
from torch import Tensor, nn

from ropewalk.encodings._find import build, parse
from ropewalk.encodings.base import Claims, Encoding, Role, Table
from ropewalk.positions import Positions

# A schema that lists every kind would contain itself.
Part = Annotated[SerializeAsAny[Encoding.Config], PlainValidator(parse), WithJsonSchema({"type": ["string", "object"]})]


class Chain(Encoding):
    class Config(Encoding.Config):
        kind: Literal["chain"] = "chain"
        parts: tuple[Part, ...] = Field(min_length=1)

    config: Config

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.parts = nn.ModuleList(build(part, **self._dims) for part in self.config.parts)
        each = [part.claims for part in self.encodings]
        ends = [claim.longest for claim in each if claim.longest is not None]
        self.claims = Claims(
            shift_invariant=all(claim.shift_invariant for claim in each),
            keeps_norm=all(claim.keeps_norm for claim in each),
            bidirectional=all(claim.bidirectional for claim in each),
            pointwise=all(claim.pointwise for claim in each),
            needs_limit=any(claim.needs_limit for claim in each),
            longest=min(ends, default=None),
        )

    @property
    def encodings(self) -> list[Encoding]:
        return [part for part in self.parts if isinstance(part, Encoding)]

    @property
    def sites(self) -> frozenset[str]:
        return frozenset().union(*(part.sites for part in self.encodings))

    @property
    def logit_gain(self) -> float:
        gain = 1.0
        for part in self.encodings:
            gain *= part.logit_gain
        return gain

    @property
    def token_width(self) -> int:
        shares = [self.width - part.token_width for part in self.encodings if "embed" in part.sites]
        return self.width - sum(shares)

    def reset_parameters(self) -> None:
        for part in self.encodings:
            part.reset_parameters()

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

    def move(self, k: Tensor, delta: Tensor) -> Tensor:
        for part in self.encodings:
            k = part.move(k, delta)
        return k
