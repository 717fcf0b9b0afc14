"""What every encoding is: a function of integer positions, at up to three sites of a Transformer.

    embed   changes the token vectors          X' = f(X, p)
    rotate  changes queries and keys           q' = f(q, p),  k' = f(k, p)
    bias    is added to one attention score    q.k + b(head, p_q, p_k)

An encoding owns no buffers and keeps no state. What is learned is a parameter; all else is computed from its frozen
config and the positions of the pass, once, by `forward`, and thrown away with the pass.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ropewalk.overrides import WORDS_ELSEWHERE, BadConfig, Problem
from ropewalk.plan import LayerPlan
from ropewalk.positions import FARTHEST, Places, Positions, assert_known, explicit, known_range
from ropewalk.settings import Settings

Table = Any
"""Whatever one encoding computes once a pass: tensors, tuples, lists or dicts of them, or None."""

Role = Literal["query", "key"]

SIZE_OF = {"rotate": "head_width", "bias": "heads", "embed": "width"}
"""Which size of the model each site reads."""
SITES = ("embed", "rotate", "bias")
"""In the order a token meets them."""


@dataclass(frozen=True, kw_only=True)
class Claims:
    """What an encoding says of itself. The tests prove each claim of each encoding."""

    shift_invariant: bool = False
    """Scores depend on index differences only."""
    keeps_norm: bool = True
    """`rotate` changes no vector's length."""
    bidirectional: bool = True
    """Also defined for keys after the query."""
    pointwise: bool = True
    """`bias` may run inside a fused kernel's score function."""
    needs_limit: bool = False
    """What it computes depends on the positions' limit."""
    longest: int | None = None
    """Positions it can represent; None: any."""


class Encoding(nn.Module):
    """Tells tokens where they are. A subclass overrides the sites it uses."""

    class Config(Settings):
        kind: str

    claims: Claims = Claims()
    _own_sites: ClassVar[frozenset[str]] = frozenset()
    __signature__: ClassVar[inspect.Signature]
    one_rotation: ClassVar[bool] = False
    """`rotate` does the same to queries and keys, so that both can be turned in one step."""

    def __init__(
        self,
        config: Config | None = None,
        *,
        width: int | None = None,
        heads: int | None = None,
        head_width: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        if config is not None and not isinstance(config, Encoding.Config):
            raise TypeError(f"sizes and settings have names, {config!r} has none; write {self._example(config)}")
        if config is not None and settings:
            raise ValueError(f"{type(self).__name__} takes a config or its settings ({', '.join(settings)}), not both")
        self._refuse_other_words(settings)
        self.config = type(self).Config(**settings) if config is None else config
        self._dims = {"width": width, "heads": heads, "head_width": head_width}

    @classmethod
    def _sizes(cls) -> list[str]:
        """The sizes of a model that it may read."""
        return [size for site, size in SIZE_OF.items() if site in cls._own_sites]

    @classmethod
    def _example(cls, value: object) -> str:
        needed = [name for name, field in cls.Config.model_fields.items() if field.is_required() and name != "kind"]
        names = [*needed, *cls._sizes()[:1]]
        one = repr(value) if len(names) == 1 and isinstance(value, int) else "..."
        return f"{cls.__name__}({', '.join(f'{name}={one}' for name in names)})"

    @classmethod
    def _refuse_other_words(cls, settings: dict[str, Any]) -> None:
        """A size by the name that other codebases give it. Settings by such names are the config's to answer."""
        for word in settings:
            size = WORDS_ELSEWHERE.get(word)
            if word not in cls.Config.model_fields and size in SIZE_OF.values():
                own = cls._sizes()
                meant = size if size in own and word != "dim" else (own or [size])[0]
                raise BadConfig(cls.__name__, [Problem(word, f"no such key. Did you mean {meant}?")])

    @property
    def width(self) -> int:
        """D, the model's width."""
        return self._dim("width")

    @property
    def heads(self) -> int:
        """H, query heads in the whole model, not on this rank."""
        return self._dim("heads")

    @property
    def head_width(self) -> int:
        """K."""
        return self._dim("head_width")

    def _dim(self, name: str) -> int:
        value = self._dims[name]
        if value is None:
            raise ValueError(f"{type(self).__name__} needs {name}: {type(self).__name__}({name}=...)")
        return value

    @property
    def axes(self) -> int | None:
        """Numbers a position must have; None: one, without an axis of its own."""
        return None

    @property
    def token_width(self) -> int:
        """How wide token vectors are before `embed`: the model's width, unless positions take a share of it."""
        return self.width

    @property
    def logit_gain(self) -> float:
        """What attention multiplies every score by, apart from its own scale."""
        return 1.0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "rotate" in vars(cls) and "one_rotation" not in vars(cls):
            cls.one_rotation = False  # what a class above promised of its own `rotate`
        cls._own_sites = frozenset(name for name in SITES if getattr(cls, name) is not getattr(Encoding, name))
        cls.__signature__ = _signature(cls.Config)  # what help() and notebooks show

    @property
    def sites(self) -> frozenset[str]:
        """Which of embed, rotate and bias it really uses: read off the class, so it cannot drift from the code."""
        return self._own_sites

    def reset_parameters(self) -> None:
        """Fills the parameters, if any; there are no buffers to refill."""

    def at(self, q: Places, k: Places | None = None, *, limit: int | None = None) -> Signal:
        """This encoding at one pass's positions: integers in a tensor or a list, or `Positions`.

        k: the keys' own, when they are not the queries'. limit: what no position reaches; learned tables and scalings
        that depend on the length ask for it.
        """
        queries = explicit(q, limit)
        keys = queries if k is None else explicit(k, limit)
        if queries.axes is not None and queries.shape[1] != keys.shape[1]:
            _refuse_unordered(q, k)
        if self.claims.needs_limit and queries.limit != keys.limit:
            raise ValueError(
                f"{self.config.kind} depends on the positions' limit: queries have {queries.limit}, keys {keys.limit}; "
                "give both the same limit"
            )
        self.check(queries)
        if keys is not queries:
            self.check(keys)
        assert_known(queries)
        table = self(queries)
        return Signal(self, queries, keys, table, table if keys is queries else self(keys))

    def forward(self, at: Positions) -> Table:
        """Once a pass, shared by every layer of this kind. It is `forward` so that FSDP's hooks fire."""
        return None

    def check(self, at: Positions) -> None:
        """Refuses, on the host and before any kernel, positions this encoding cannot represent. `at` asks it."""
        if at.axes != self.axes:
            want = "one axis" if self.axes is None else f"{self.axes} axes"
            raise ValueError(f"{self.config.kind} reads {want}, the positions have shape {tuple(at.index.shape)}")
        longest = self.claims.longest
        if longest is None or at.limit <= longest:
            return
        known = known_range(at.index) if at.limit == FARTHEST else (0, at.limit - 1)
        if known is None:
            raise ValueError(
                f"these positions declare no limit and the {self.config.kind} table ends at {longest:,} positions; "
                f"declare one: positions.explicit(index, limit={longest}), or encoding.at(index, limit={longest})"
            )
        if known[1] >= longest:
            declared = "comes" if at.limit == FARTHEST else f"may come (limit {at.limit:,})"
            raise ValueError(
                f"position {known[1]:,} {declared} and the {self.config.kind} table ends at "
                f"{longest:,} positions; pass positions with limit={longest} or less, shorten the input, "
                "or use an encoding without a table (rope, alibi, ...)"
            )

    def embed(self, x: Tensor, table: Table) -> Tensor:  # x (B, L, D)
        return x

    def rotate(self, x: Tensor, table: Table, role: Role) -> Tensor:  # x (B, H, L, K)
        return x

    def bias(self, table: Table, head: Tensor, q_index: Tensor, k_index: Tensor) -> Tensor:
        """Added to one score. Pointwise: the three arguments broadcast against each other. `head` is the number in the
        whole model, of shape () or (H, 1, 1)."""
        raise NotImplementedError(f"{self.config.kind} has no bias")

    def bias_bytes(self, heads: int) -> int:
        """Memory at the peak of computing the bias of one query and one key, for so many heads: what attention plans
        with. Override it where the bias takes much more."""
        return 8 * heads + 16

    def move(self, k: Tensor, delta: Tensor) -> Tensor:  # k (B, G, S, K), delta (B, S)
        """Cached keys to positions `delta` further on. A bias reads positions afresh, so its keys stay as they are; an
        encoding that rotates keys must say how they are rotated further."""
        if "rotate" in self.sites:
            raise ValueError(
                f"{self.config.kind} rotates keys and does not say how cached ones move to other positions; override "
                f"{type(self).__name__}.move(k, delta), or recompute the keys"
            )
        if "embed" in self.sites:
            raise ValueError(
                f"{self.config.kind} is inside the token vectors, so cached keys cannot be moved to other positions; "
                "recompute them, or use an encoding of rotate or bias (rope, alibi, ...)"
            )
        return k

    def layer_plan(self, window: int | None = None) -> LayerPlan:
        """What this encoding resolves to, for the plan of a model."""
        settings = canonical(self.config, self._dims)
        return LayerPlan(kind=self.config.kind, settings=settings, logit_gain=self.logit_gain, window=window)

    def extra_repr(self) -> str:
        given = [f"{k}={v!r}" for k, v in self.config if k != "kind" and v is not None]
        return ", ".join(given + [f"{k}={v}" for k, v in self._dims.items() if v is not None])


class Signal:
    """One encoding at one pass's positions: what a block receives.

    A plain class on purpose: FSDP2 casts the floats it finds in any tuple, dict or dataclass argument to bfloat16.
    """

    __slots__ = ("encoding", "k", "k_table", "q", "q_table", "seen")

    def __init__(
        self, encoding: Encoding, q: Positions, k: Positions, q_table: Table, k_table: Table, seen: Any = None
    ) -> None:
        """seen: what attention has worked out about these queries and keys, shared by the layers of a cache."""
        self.encoding, self.q, self.k, self.q_table, self.k_table = encoding, q, k, q_table, k_table
        self.seen = seen

    def embed(self, x: Tensor) -> Tensor:
        return self.encoding.embed(x, self.q_table)

    def rotate(self, x: Tensor, role: Role) -> Tensor:
        """Queries or keys (B, H, L, K), rotated. Where all have one row of positions, (L, K) and (N, L, K) too."""
        if role not in ("query", "key"):
            raise ValueError(f"role is 'query' or 'key', got {role!r}")
        if x.ndim != 4:
            return self._rotate_fewer(x, role)
        return self.encoding.rotate(x, self.q_table if role == "query" else self.k_table, role)

    def _rotate_fewer(self, x: Tensor, role: Role) -> Tensor:
        rows, length = (self.q if role == "query" else self.k).shape
        if x.ndim not in (2, 3) or rows != 1 or x.shape[-2] != length:
            raise ValueError(
                f"{role} vectors of shape {tuple(x.shape)} came with positions of {rows} sequences of {length} tokens; "
                f"give (B, H, {length}, K)" + (f", or ({length}, K) or (N, {length}, K)" if rows == 1 else "")
            )
        return self.rotate(x[(None,) * (4 - x.ndim)], role).reshape(x.shape)

    def bias(self, head: Tensor, q_index: Tensor, k_index: Tensor) -> Tensor:
        return self.encoding.bias(self.q_table, head, q_index, k_index)

    def with_keys(self, keys: Positions, seen: Any = None) -> Signal:
        """The same queries against other keys, already rotated: cached ones, or those gathered from other ranks."""
        return Signal(self.encoding, self.q, keys, self.q_table, None, seen)

    def __repr__(self) -> str:
        return f"Signal({self.encoding.config.kind}, queries {tuple(self.q.shape)}, keys {tuple(self.k.shape)})"


def _refuse_unordered(*given: Places | None) -> None:
    """Integers on several axes are places in space; in which order tokens were read, they do not say."""
    for role, places in zip(("queries", "keys"), given, strict=True):
        if not isinstance(places, Positions):
            raise ValueError(
                f"the {role} are bare integers on several axes, which do not say in what order tokens were read, and "
                "there are more or fewer queries than keys. Give Positions: at.take(...) of those of the whole text, "
                "or positions.explicit(index), whose first token is the first of its text"
            )


def look_up(index: Tensor, table: Tensor) -> Tensor:
    """Rows of a learned table. Where it is bfloat16, as FSDP makes it, torch's CPU kernel adds the gradients of a row
    that is read a thousand times in bfloat16, one by one; those of other devices add in float32."""
    wide = torch.promote_types(table.dtype, torch.float32)
    if table.dtype == wide or table.device.type != "cpu" or not torch.is_grad_enabled():
        return F.embedding(index, table)
    return F.embedding(index, table.to(wide)).to(table.dtype)


def map_table(function: Callable[[Tensor], Tensor], table: Table) -> Table:
    """The same table with this done to each of its tensors."""
    if isinstance(table, Tensor):
        return function(table)
    if isinstance(table, dict):
        return {key: map_table(function, part) for key, part in table.items()}
    if isinstance(table, (tuple, list)):
        parts = [map_table(function, part) for part in table]
        return type(table)(*parts) if hasattr(table, "_fields") else type(table)(parts)
    return table


def _signature(config: type[Settings]) -> inspect.Signature:
    """Sizes of the model and settings of the kind, by name."""
    named = inspect.Parameter.KEYWORD_ONLY
    sizes = [
        inspect.Parameter(name, named, default=None, annotation="int | None")
        for name in ("width", "heads", "head_width")
    ]
    every = inspect.signature(config).parameters.values()
    settings = [each.replace(annotation=inspect.Parameter.empty) for each in every if each.name != "kind"]
    first = inspect.Parameter(
        "config", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation="Config | None"
    )
    return inspect.Signature([first, *sizes, *settings])


def canonical(config: Settings, dims: dict[str, int | None]) -> str:
    return json.dumps({**config.model_dump(mode="json"), **dims}, sort_keys=True)


def distance(q_index: Tensor, k_index: Tensor) -> Tensor:
    """|i - j| as float32, taken from the integers: exact up to 2**24, within half an ulp beyond."""
    return (q_index - k_index).abs().to(torch.float32)
