"""What is verified: any object with a `spec`, a `build`, and whatever it has to offer.

A target is a module, a class used as a namespace, or an instance. It has

    spec      a Spec: what it claims to be, the ground truth it is checked against
    build(dtype=torch.float32, device="cpu")            a fresh instance of anything; called often

    outside_torch = True        where its arrays are not torch's: torch.compile and torch.export are then not asked for

and any of these, each of which takes what `build` returned first:

    cos_sin(built, positions) -> (cos, sin)             (B, L) int64 -> (B, L, R/2) each, the gain included
    rotate(built, x, positions) -> Tensor               x (B, H, L, K), positions (B, L)
    rotate_query, rotate_key                            the same, where the two differ
    bias(built, q_positions, k_positions) -> Tensor     (L,), (S,) int64 -> (H, L, S), added to scores after 1/sqrt(K)
         with a parameter `heads`: (first, count) of the whole model's heads, -> (count, L, S)
    forward(built, ids, positions=None, cache=None) -> (logits, cache)    a whole causal model; cache None: a full pass
         with a parameter `documents`: (B, L) int64, the document of each token, -1 where there is none (padding)
    attend(built, q, k, v, q_positions, k_positions) -> Tensor    its own causal attention on q (B, H, L, K), k and v
         (B, H, S, K) as projected, not yet rotated: rotation, bias, mask and softmax are its own
         with a parameter `documents`: ((B, L), (B, S)) int64, the documents of queries and keys
    evict(built, cache, keep) -> cache                  only these tokens stay in a cache: (N,) places in the text
    move(built, k, delta) -> Tensor                     rotated keys (B, H, S, K), each moved by delta (B, S) positions
    rotate_indexer(built, x, positions) -> Tensor       a second rotation of the same layer, `indexer` in its spec
    cast(built, dtype)                                  the instance in another dtype, where `.to` is not how
    refill(built)                                       fills what `to_empty` left undefined, where a model has a way to

and of these, which take no instance:

    frequencies(config) -> floats, or (floats, gain)    from `rope_parameters` of transformers 5, with `head_dim` and,
         where it matters, `max_position_embeddings` beside them
         with a parameter `length`: what a scaling that depends on the length is resolved for
    slopes(heads) -> floats                             ALiBi's, of every head
    buckets(distances, bidirectional) -> Tensor         T5's bucket of each key position - query position

Where the spec declares `sections`, positions have shape (B, L, A), one number for each axis; in text all are the same.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from decimal import Decimal
from types import SimpleNamespace
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from ropewalk.outside import import_named
from ropewalk.scaling import AnyScaling
from ropewalk.settings import Settings

OFFERS = (
    "cos_sin", "rotate", "rotate_query", "rotate_key", "bias", "forward", "attend", "evict", "move",
    "rotate_indexer", "cast", "refill", "frequencies", "slopes", "buckets",
)  # fmt: skip

Width = Annotated[int, Field(gt=0, le=65_536)]


class Heat(Settings):
    """Of a temperature by position: queries at m are multiplied by f(m)."""

    form: Literal["llama4", "ministral", "log-n"] = "llama4"
    """llama4: 1 + s ln(1 + floor((m + 1) / T)); ministral: floor(m / T) in it; log-n: max(1, ln(m + 1) / ln T)."""
    trained: Annotated[int, Field(gt=2)]
    """T."""
    strength: Annotated[float, Field(gt=0)] = 0.1
    """s; log-n has none."""


class Spec(Settings):
    """What a target claims to be. Everything it is checked against follows from these."""

    kind: Literal["rope", "alibi", "t5", "sinusoidal", "other"] = "rope"
    """other: only what needs no ground truth is checked."""
    head_width: Width = 64
    """K; of `sinusoidal` the width of a position's vector."""
    heads: Annotated[int, Field(gt=0, le=1024)] = 8
    base: Annotated[float, Field(gt=1, le=1e12)] = 10_000.0
    rotary_width: Annotated[int, Field(gt=0, multiple_of=2)] | None = None
    """R, features of a head that turn; None: all."""
    layout: Literal["half", "pairs"] = "half"
    scaling: AnyScaling | None = None
    frequencies: tuple[Decimal, ...] | None = None
    """Of one's own, in place of base and scaling: radians per position of each pair."""
    arithmetic: Literal["exact", "float32"] = "float32"
    """Which frequencies are true: the real numbers, or those of transformers' float32 arithmetic as well."""
    angles: Literal["float32", "float64", "exact"] | None = None
    """The precision of the product of position and frequency that is claimed, and judged by. None: no claim; what is
    only as good as float32 is reported as that, neither passed nor failed."""
    sections: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """Positions on several axes: how many frequencies turn by each. None: a position is one number."""
    arrangement: Literal["blocks", "interleaved", "axial"] = "blocks"
    """Of sections: one after the other on one ladder of frequencies; taking turns on it; each with its own ladder."""
    temperature: Heat | None = None
    """What queries are multiplied by, besides gains: {"form": "llama4", "trained": 8192, "strength": 0.1}."""
    indexer: Spec | None = None
    """What `rotate_indexer` claims to be."""
    window: Annotated[int, Field(gt=0)] | None = None
    """Tokens a query sees, itself among them."""
    longest: Annotated[int, Field(gt=1, le=2**40)] | None = None
    """No position reaches it; for scalings that depend on the length, the length they are resolved for."""
    per_call: bool = False
    """Of scalings that depend on the length: that of each call decides, as the authors of the method have it. What
    cannot hold then by definition is not asked for."""
    buckets: int = 32
    farthest: int = 128
    bidirectional: bool = False
    vocabulary: int | None = None
    """Tokens `forward` knows; 64 unless given."""
    relative: bool = True
    """Of kind `other`: scores depend on differences of positions alone."""
    bounds: dict[str, float | dict[str, float]] = Field(default_factory=dict)
    """Requirement to a bound of its own, declared in place of the suite's and shown as such: {"N01": 1e-2}. One that
    bounds different things has a name for each: {"C29": {"compilations": 3}}."""

    @model_validator(mode="after")
    def _length_is_known(self) -> Self:
        if self.length_dependent and self.longest is None and getattr(self.scaling, "length", None) is None:
            raise ValueError(f"{self.scaling} depends on the length: give longest, the length it is resolved for")
        if self.rotary > self.head_width or (self.kind in ("rope", "sinusoidal") and self.rotary % 2):
            raise ValueError(f"rotary width {self.rotary} must be even and at most head_width={self.head_width}")
        return self

    @model_validator(mode="after")
    def _axes_are_known(self) -> Self:
        if self.sections is None:
            if self.arrangement != "blocks":
                raise ValueError(f"arrangement={self.arrangement} orders sections: give sections, one number an axis")
            return self
        if self.kind != "rope" or sum(self.sections) != self.rotary // 2:
            raise ValueError(f"sections={self.sections} must add up to the {self.rotary // 2} frequencies of a rope")
        if self.arrangement == "interleaved" and len(self.sections) != 3:
            raise ValueError(f"arrangement=interleaved is defined on three axes, sections={self.sections}")
        if self.arrangement == "axial" and (self.scaling is not None or self.frequencies is not None):
            raise ValueError("each axis of an axial arrangement has a plain ladder: leave out scaling and frequencies")
        if self.temperature is not None:
            raise ValueError("a temperature reads one position, and sections give several: declare one of them")
        return self

    @property
    def rotary(self) -> int:
        """R."""
        return self.head_width if self.rotary_width is None else self.rotary_width

    @property
    def axes(self) -> int | None:
        """Numbers a position has; None: one, without a dimension of its own."""
        return None if self.sections is None else len(self.sections)

    @property
    def trained(self) -> int | None:
        return getattr(self.scaling, "trained", None)

    @property
    def length_dependent(self) -> bool:
        return self.scaling is not None and self.scaling.length_dependent


class Target:
    """A target as the checks see it: what it offers, and its answers brought to one form."""

    def __init__(self, given: Any, name: str | None = None) -> None:
        if isinstance(given, Target):
            given, name = given.given, name or given.name
        for needed in ("spec", "build"):
            if not hasattr(given, needed):
                raise ValueError(f"{name or given!r} has no `{needed}`; a target has spec = Spec(...) and build(...)")
        if not isinstance(given.spec, Spec):
            raise ValueError(f"spec is {given.spec!r}; write spec = ropewalk.conformance.Spec(kind='rope', ...)")
        self.given, self.spec = given, given.spec
        self.name: str = name or getattr(given, "name", None) or getattr(given, "__name__", None) or "target"
        self.offers = frozenset(offer for offer in OFFERS if callable(getattr(given, offer, None)))
        if not self.offers:
            raise ValueError(f"{self.name} offers nothing to check; give it one of {', '.join(OFFERS)}")

    def has(self, *names: str) -> bool:
        """Whether all are offered. `angles` and `rotation` stand for what can be read off other offers."""
        return all(self._has(name) for name in names)

    def _has(self, name: str) -> bool:
        if "|" in name:
            return any(self._has(one) for one in name.split("|"))
        if name == "rotation":
            return bool(self.offers & {"rotate", "rotate_query"})
        if name == "angles":
            return "cos_sin" in self.offers or (self.spec.kind == "rope" and self._has("rotation"))
        return name in self.offers

    def hidden(self) -> list[Target]:
        """What a check that asks one offer would not see: `rotate` behind `cos_sin`, `forward` behind both."""
        parts = {"cos_sin", "rotate", "rotate_query", "rotate_key", "bias", "attend"}
        hidden = [{"cos_sin"}] if "cos_sin" in self.offers and self._has("rotation") else []
        hidden += [parts] if "forward" in self.offers and self.offers & parts else []
        found: list[Target] = []
        for names in hidden:
            side = copy.copy(self)
            side.offers = self.offers - names
            found.append(side)
        # Where queries and keys have functions of their own, what is asked of one alone says nothing of the other.
        for role in ("rotate_query", "rotate_key") if self.spec.temperature is None else ("rotate_key",):
            if role in self.offers:
                given = SimpleNamespace(spec=self.spec, build=self.given.build, rotate=getattr(self.given, role))
                found.append(Target(given, self.name))
        return found

    def takes(self, offer: str, parameter: str) -> bool:
        """Whether an offered function has this optional parameter."""
        function = getattr(self.given, offer, None)
        return function is not None and parameter in inspect.signature(function).parameters

    def build(self, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        """Always from the same random numbers, so that two instances have the same weights."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            if dtype == torch.float32 and device == "cpu":
                return self.given.build()
            return self.given.build(dtype=dtype, device=device)

    def cast(self, dtype: torch.dtype) -> Any:
        """An instance that was made in float32 and cast."""
        built = self.build()
        return self.given.cast(built, dtype) if "cast" in self.offers else built.to(dtype)

    def spread(self, positions: Tensor) -> Tensor:
        """As its functions take them: text has the same number on every axis."""
        if self.spec.axes is None or positions.ndim > 2:
            return positions
        return positions[..., None].expand(*positions.shape, self.spec.axes)

    def rotate(self, built: Any, x: Tensor, positions: Tensor, role: Literal["query", "key"] = "query") -> Tensor:
        # One that rotates in place, as vLLM's kernel does, is given a tensor of its own.
        return self.function(f"rotate_{role}", "rotate")(built, x.clone(), self.spread(positions))

    def move(self, built: Any, k: Tensor, delta: Tensor) -> Tensor:
        return self.given.move(built, k, self.spread(delta))

    def indexer(self) -> Target:
        """Its second rotation as a target of its own."""
        given = SimpleNamespace(spec=self.spec.indexer, build=self.given.build, rotate=self.given.rotate_indexer)
        return Target(given, self.name)

    def bias(self, built: Any, q_positions: Tensor, k_positions: Tensor, **heads: Any) -> Tensor:
        return self.given.bias(built, q_positions, k_positions, **heads)

    def forward(self, built: Any, ids: Tensor, positions: Tensor | None = None, cache: Any = None, **more: Any) -> Any:
        return self.given.forward(built, ids, None if positions is None else self.spread(positions), cache, **more)

    def evict(self, built: Any, cache: Any, keep: Tensor) -> Any:
        return self.given.evict(built, cache, keep)

    def attend(
        self, built: Any, q: Tensor, k: Tensor, v: Tensor, q_positions: Tensor, k_positions: Tensor, **documents: Any
    ) -> Tensor:
        return self.given.attend(built, q, k, v, self.spread(q_positions), self.spread(k_positions), **documents)

    def function(self, *names: str) -> Callable[..., Any]:
        """The first of these that is offered."""
        return next(getattr(self.given, name) for name in names if name in self.offers)

    def cos_sin(self, built: Any, positions: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """(B, L) or (B, L, A) -> (B, L, R/2) each: its own, or what `rotate` makes of vectors (1, 0) in every pair."""
        if "cos_sin" in self.offers:
            cos, sin = self.given.cos_sin(built, self.spread(positions))
            want = (*positions.shape[:2], self.spec.rotary // 2)
            for name, part in (("cos", cos), ("sin", sin)):
                if tuple(part.shape) != want:
                    raise ValueError(f"cos_sin gives a {name} of shape {tuple(part.shape)}, (B, L, R/2) is {want}")
            return cos, sin
        first, second = self.pairs(built, dtype)
        x = torch.zeros(len(positions), self.spec.heads, positions.shape[1], self.spec.head_width, dtype=dtype)
        x[..., first] = 1
        # Of queries and keys, keys have no temperature.
        turned = self.rotate(built, x, positions, "query" if self.spec.temperature is None else "key")[:, 0]
        return turned[..., first], turned[..., second]

    def pairs(self, built: Any, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """The features of each pair, in the layout that `rotate` really has, so that a wrong one is told once, by C01,
        and not by every check."""
        width = self.spec.rotary
        x = torch.zeros(1, self.spec.heads, 1, self.spec.head_width, dtype=dtype)
        x[..., 0] = 1
        turned = self.rotate(built, x, torch.ones(1, 1, dtype=torch.int64))[0, 0, 0].abs()
        layout = self.spec.layout
        if width > 2 and max(turned[1], turned[width // 2]) > 0.1:
            layout = "pairs" if turned[1] > turned[width // 2] else "half"
        return pair_features(layout, width)

    def line(self, positions: str, *, built: str = "built", batch: int = 1, length: int = 1, dtype: str = "") -> str:
        """A call of it as one would type it, for reproductions."""
        if self.spec.axes is not None:
            positions = f"torch.stack([{positions}] * {self.spec.axes}, -1)"
        if "cos_sin" in self.offers:
            return f"target.cos_sin({built}, {positions})"
        if self.has("rotation"):
            name = "rotate" if "rotate" in self.offers else "rotate_query"
            sizes = f"{batch}, {self.spec.heads}, {length}, {self.spec.head_width}"
            x = f"torch.ones({sizes}{f', dtype={dtype}' if dtype else ''})"
            return f"target.{name}({built}, {x}, {positions})"
        if "bias" in self.offers:
            return f"target.bias({built}, {positions}[0], {positions}[0])"
        return f"target.forward({built}, torch.zeros_like({positions}), {positions})[0]"

    def __repr__(self) -> str:
        return f"Target({self.name}, {self.spec.kind}, offers {', '.join(sorted(self.offers))})"


def pair_features(layout: str, width: int) -> tuple[Tensor, Tensor]:
    """Which features are the first and the second of each pair."""
    each = torch.arange(width // 2)
    return (2 * each, 2 * each + 1) if layout == "pairs" else (each, each + width // 2)


def find(text: str) -> Target:
    """The target at `package.module:name`; without a name, the module itself or its `target`."""
    place, _, name = text.partition(":")
    try:
        module = import_named(place)
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(f"{error.name}.")):
            raise ValueError(
                f"no module {place!r} to import; run in the directory it is in, and write pkg.module:target"
            ) from None
        raise
    if not name:
        return Target(getattr(module, "target", module), place)
    if not hasattr(module, name):
        near = ", ".join(key for key, value in vars(module).items() if hasattr(value, "spec")) or "no target at all"
        raise ValueError(f"{place} has no {name!r}; it has {near}")
    return Target(getattr(module, name), text)
