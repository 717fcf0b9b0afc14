"""Small targets to hold the suite itself to: right ones, and for each requirement one that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.conformance import Spec
from ropewalk.conformance.adapters import ours
from ropewalk.conformance.target import OFFERS

SMALL = ("heads=2", "head_width=16")
DYNAMIC = ("scaling.kind=dynamic", "scaling.factor=2", "scaling.trained=64", "longest=256")
YARN = ("scaling.kind=yarn", "scaling.factor=4", "scaling.trained=512")
AXES = ("rope", "sections=[2, 3, 3]")
HEATED = ("temperature", "trained=32", "form=llama4")


class Twisted:
    """A target with some of its functions, or its spec, replaced."""

    def __init__(self, base: Any, *, without: tuple[str, ...] = (), **changes: Any) -> None:
        for name in ("spec", "build", *OFFERS):
            if hasattr(base, name) and name not in without:
                setattr(self, name, getattr(base, name))
        self.name = "twisted"
        for name, value in changes.items():
            setattr(self, name, value)


def small(kind: str = "rope", *settings: str) -> Any:
    return ours.target(kind, *SMALL, *settings)


def only_rotate(base: Any, rotate: Callable[..., Tensor]) -> Twisted:
    return Twisted(base, without=("attend", "forward"), rotate=rotate)


class Naive(nn.Module):
    """RoPE as it is often written: frequencies in a buffer, a product in float64."""

    def __init__(self, width: int = 16, *, persistent: bool = False, device: str = "cpu") -> None:
        super().__init__()
        omega = 1 / 10_000 ** (torch.arange(0, width, 2, dtype=torch.int64, device=device).float() / width)
        self.register_buffer("inv_freq", omega, persistent=persistent)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        angle = positions[..., None].double() * self.inv_freq.double()
        return angle.cos().float(), angle.sin().float()


class Kept:
    """A target around Naive, up to a million positions, which float64 products reach."""

    spec = Spec(head_width=16, heads=2, longest=2_000_000, angles="float64")
    persistent = False
    name = "kept"

    def build(self, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Naive:
        return Naive(persistent=self.persistent, device=device).to(dtype)

    def cos_sin(self, built: Naive, positions: Tensor) -> tuple[Tensor, Tensor]:
        return built(positions)


class Saved(Kept):
    persistent = True


class Shared(Kept):
    """Every instance hands out one table, in the dtype of whoever came first."""

    def __init__(self) -> None:
        self.tables: dict[int, Any] = {}

    def cos_sin(self, built: Naive, positions: Tensor) -> tuple[Tensor, Tensor]:
        key = int(positions.sum())
        if key not in self.tables:
            self.tables[key] = built(positions)
        return self.tables[key]


class Remembering(Kept):
    """A table under a key that leaves out the offset."""

    def build(self, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        return Naive(), {}

    def cos_sin(self, built: Any, positions: Tensor) -> tuple[Tensor, Tensor]:
        naive, seen = built
        return seen.setdefault(positions.shape[1], naive(positions))


def rotation(base: Any, change: Callable[[Tensor], Tensor]) -> Twisted:
    """Positions changed on their way to `rotate`."""
    return only_rotate(base, lambda built, x, p: base.rotate(built, x, change(p)))


def single(built: Any, positions: Tensor) -> tuple[Tensor, Tensor]:
    omega = 1 / 10_000 ** (torch.arange(0, 16, 2).float() / 16)
    angle = positions[..., None].float() * omega
    return angle.cos(), angle.sin()


def turned_in_single(built: Any, x: Tensor, positions: Tensor) -> Tensor:
    cos, sin = (part[:, None] for part in single(built, positions))
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


def top_left(base: Any) -> Callable[..., Tensor]:
    def attend(built: Any, q: Tensor, k: Tensor, v: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        q, k = base.rotate(built, q, q_at), base.rotate(built, k, k_at)
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    return attend


def graph_break(base: Any) -> Callable[..., Tensor]:
    def rotate(built: Any, x: Tensor, positions: Tensor) -> Tensor:
        if positions.max().item() > 5:  # a decision by data cannot be compiled whole
            positions = positions + 0
        return base.rotate(built, x, positions)

    return rotate


def baked(base: Any) -> Callable[..., Tensor]:
    table = torch.arange(3, 15)[None]

    def rotate(built: Any, x: Tensor, positions: Tensor) -> Tensor:
        return base.rotate(built, x, table if torch.compiler.is_compiling() else positions)

    return rotate


def no_documents(base: Any) -> Callable[..., Any]:
    def forward(built: Any, ids: Tensor, positions: Any = None, cache: Any = None, documents: Any = None) -> Any:
        return base.forward(built, ids, positions, cache)

    return forward


def halved(base: Any) -> Callable[..., Any]:
    """Far from 0, two tokens share a position."""

    def forward(built: Any, ids: Tensor, positions: Any = None, cache: Any = None) -> Any:
        far = 0 if positions is None else (positions.min() > 500).long() * ((positions - positions.min()) // 2)
        return base.forward(built, ids, None if positions is None else positions - far, cache)

    return forward


def counting_tokens(base: Any) -> Callable[..., Any]:
    """Of a text with a grid the next position is the number of tokens."""

    def forward(built: Any, ids: Tensor, positions: Any = None, cache: Any = None) -> Any:
        if positions is None:
            start = 0 if cache is None else int(cache.next)
            positions = torch.arange(start, start + ids.shape[1])[None, :, None].expand(-1, -1, 3)
        return base.forward(built, ids, positions, cache)

    return forward


def chunks_by_slot(base: Any) -> Callable[..., Any]:
    """Where positions are left out, those of several tokens at once are counted on from the rows of the cache."""

    def forward(built: Any, ids: Tensor, positions: Any = None, cache: Any = None) -> Any:
        if positions is None and cache is not None and ids.shape[1] > 1:
            rows = int((cache[0].read()[2].segment >= 0).sum())
            positions = torch.arange(rows, rows + ids.shape[1])[None]
        return base.forward(built, ids, positions, cache)

    return forward


def with_indexer(layout: str) -> Twisted:
    """A layer in pairs whose indexer claims halves, and has this layout."""
    layer, indexer = small("rope", "layout=pairs"), small("rope", f"layout={layout}")
    spec = layer.spec.model_copy(update={"indexer": small().spec})
    return Twisted(layer, spec=spec, rotate_indexer=lambda built, x, p: indexer.rotate(indexer.build(), x, p))


def by_the_longest(built: Any, x: Tensor, positions: Tensor) -> Tensor:
    """Dynamic scaling by the largest position of the call."""
    length = int(positions.max()) + 1
    made = small("rope", *DYNAMIC[:-1], f"longest={max(length, 2)}")
    return made.rotate(made.build(), x, positions)


def broken(id: str) -> Any:
    """A target that breaks this requirement."""
    return BROKEN[id]()


def by_key(built: Any, q: Tensor, k: Tensor) -> Tensor:
    """ALiBi as a slope times the key's own position: the same to a softmax, and rounded far from 0."""
    return (torch.tensor([[[1 / 16]], [[1 / 256]]]) * k.float()).expand(2, len(q), -1)


BROKEN: dict[str, Callable[[], Any]] = {
    "N01": lambda: Twisted(Kept(), cos_sin=single),
    "N03": lambda: only_rotate(small(), turned_in_single),
    "N04": lambda: only_rotate(small(), lambda built, x, p: small().rotate(built, x, p.to(x.dtype).long())),
    "N05": lambda: only_rotate(
        small(), lambda built, x, p: small().rotate(built, x, p) * (1 + 1e-6 * (p > 999))[:, None, :, None].to(x.dtype)
    ),
    "N06": Kept,
    "N07": lambda: Twisted(small("rope", "base=10001"), spec=small().spec),
    "N08": lambda: only_rotate(
        small("rope", *YARN), lambda built, x, p: small("rope", *YARN).rotate(built, x, p) * 1.1
    ),
    "N09": lambda: Twisted(small("alibi"), bias=by_key),
    "N12": lambda: only_rotate(
        small(*AXES), lambda built, x, p: small(*AXES).rotate(built, x, p[..., :1].expand_as(p))
    ),
    "N13": lambda: Twisted(small("temperature", "trained=32", "form=ministral"), spec=small(*HEATED).spec),
    "N10": lambda: only_rotate(small(), lambda built, x, p: small().rotate(built, x.detach(), p) + (x - x.detach())),
    "C01": lambda: Twisted(small("rope", "layout=pairs"), spec=small().spec),
    "C02": lambda: only_rotate(
        small("rope", "rotary_width=8"), lambda built, x, p: small().rotate(small().build(), x, p)
    ),
    "C03": Kept,
    "C04": Saved,
    "C05": lambda: Twisted(small(), attend=lambda built, q, *rest: small().attend(built, q * 1.1, *rest)),
    "C07": lambda: Twisted(
        small(), frequencies=lambda c: small().frequencies({**c, "rope_theta": 11_000.0} if "factor" in c else c)
    ),
    "C08": Remembering,
    "C09": lambda: rotation(small(), lambda p: p + (p.max() > 5_000)),
    "C10": lambda: rotation(small(), lambda p: p[:1].expand_as(p)),
    "C11": lambda: rotation(small(), lambda p: p * 64 // 64),
    "C12": lambda: rotation(small(), lambda p: p * 0 if p.shape[-1] == 1 else p),
    "C13": lambda: rotation(small(), lambda p: p - p[:, :1] % 5),
    "C14": lambda: rotation(small(), lambda p: p[:, :1] + torch.arange(p.shape[1])),
    "C15": lambda: only_rotate(small("rope", *DYNAMIC), by_the_longest),
    "C16": lambda: Twisted(small(), forward=no_documents(small())),
    "C17": lambda: Twisted(small(), forward=no_documents(small())),
    "C18": lambda: Twisted(small(), forward=no_documents(small())),
    "C19": lambda: Twisted(small(), attend=top_left(small())),
    "C20": lambda: Twisted(small("rope", "window=5"), attend=small("rope", "window=6").attend),
    "C21": lambda: rotation(small(), lambda p: torch.arange(p.shape[1])[None] + p.min()),
    "C22": lambda: Twisted(
        small("alibi"),
        bias=lambda built, q, k, heads=None: small("alibi").bias(built, q, k)[: heads[1] if heads else 2],
    ),
    "C23": lambda: Twisted(small("alibi"), slopes=lambda n: [2 ** (-8 * h / n) for h in range(1, n + 1)]),
    "C24": lambda: Twisted(
        small("alibi"), without=("slopes",), bias=lambda built, q, k: -small("alibi").bias(built, q, k)
    ),
    "C25": lambda: Twisted(small("t5"), buckets=lambda d, two_way: small("t5", "farthest=129").buckets(d, two_way)),
    "C26": lambda: Twisted(
        small("t5"), bias=lambda built, q, k: small("t5").bias(built, torch.arange(len(q)) + k[0], k)
    ),
    "C27": lambda: Twisted(Kept(), cos_sin=lambda built, p: built(p.clamp(max=1_999_999))),
    "C29": lambda: only_rotate(small(), graph_break(small())),
    "C30": lambda: only_rotate(small(), baked(small())),
    "C31": lambda: Twisted(small(), forward=halved(small())),
    "C32": lambda: Twisted(small(), spec=small().spec.model_copy(update={"bounds": {"C32": 0.0}})),
    "C33": lambda: Twisted(small(), frequencies=lambda config: small().frequencies({"rope_theta": 10_000.0})),
    "C34": Shared,
    "C35": lambda: Twisted(small(), move=lambda built, k, delta: small().move(built, k, 2 * delta)),
    "C36": lambda: Twisted(small(*AXES), forward=counting_tokens(small(*AXES))),
    "C37": lambda: Twisted(small(), attend=lambda built, *given, documents=None: small().attend(built, *given)),
    "C38": lambda: Twisted(small(), forward=chunks_by_slot(small())),
    "C39": lambda: Twisted(
        small("rope", *DYNAMIC),
        frequencies=lambda config, length=None: small("rope", *DYNAMIC).frequencies(config, length and length + 1),
    ),
    "C40": lambda: with_indexer("pairs"),
}


RIGHT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("N09", "C22", "C23", "C24"), ("alibi",)),
    **dict.fromkeys(("C25", "C26"), ("t5",)),
    "N08": ("rope", *YARN),
    "C02": ("rope", "rotary_width=8"),
    "C15": ("rope", *DYNAMIC),
    "C20": ("rope", "window=5"),
    "C27": ("rope", "longest=4096"),
    "C39": ("rope", *DYNAMIC),
    **dict.fromkeys(("N12", "C36"), AXES),
    "N13": HEATED,
}


def right(id: str) -> Any:
    """One of ours that this requirement applies to."""
    if id == "C40":
        return with_indexer("half")
    kind, *settings = RIGHT.get(id, ("rope",))
    return small(kind, *settings)
