"""A plain and correct implementation of what the suite looks at; every mutant is this file with one line replaced.

    angle = 2 pi (p turns mod 2^64) / 2^64,  turns = round(2^64 omega / 2 pi)          RoPE, arXiv 2104.09864
    bias  = -slope_h |p_q - p_k|                                                       ALiBi, arXiv 2108.12409
    bias  = table[bucket(p_k - p_q), h]                                                T5, arXiv 1910.10683
    a query sees a key of its own document where 0 <= p_q - p_k < W

On several axes a position is (B, L, A); what a model keeps of it has one more column, the order in which it was read.

Slow on purpose: nothing is kept between calls, masks are whole matrices, and scalings are read from transformers' keys.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.conformance.target import Heat, Spec

PI = Decimal("3.1415926535897932384626433832795028841971693993751058209749445923078")
COMMON = {"rope_type", "type", "rope_theta", "head_dim", "partial_rotary_factor", "max_position_embeddings"}
KEYS = {
    "default": set(),
    "linear": {"factor"},
    "dynamic": {"factor"},
    "yarn": {"factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "truncate", "attention_factor",
             "mscale", "mscale_all_dim"},
    "llama3": {"factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"},
    "proportional": {"factor"},
    "longrope": {"factor", "original_max_position_embeddings", "short_factor", "long_factor", "attention_factor"},
}  # fmt: skip
NEEDED = {"factor", "low_freq_factor", "high_freq_factor", "short_factor", "long_factor"}


def stated(spec: Spec) -> dict[str, Any]:
    """What the config.json of a checkpoint with this spec says."""
    config = {"rope_theta": spec.base} if spec.scaling is None else spec.scaling.to_hf(spec.base, spec.rotary)
    share = {} if spec.rotary_width is None else {"partial_rotary_factor": spec.rotary_width / spec.head_width}
    return {**config, **share, "head_dim": spec.head_width, "max_position_embeddings": spec.trained or spec.longest}


def read(config: dict[str, Any], length: int | None = None) -> tuple[list[Decimal], float]:
    """Frequencies and the gain on cos and sin, of transformers' `rope_parameters`; every key is used or an error."""
    kind = config.get("rope_type", config.get("type", "default"))
    if config.get("type", kind) != kind:
        raise ValueError(f"rope_type {kind!r} contradicts type {config['type']!r}; keep the one that is meant")
    if kind not in KEYS:
        raise ValueError(f"rope_type {kind!r} is unknown; there are {', '.join(KEYS)}")
    if unknown := set(config) - COMMON - KEYS[kind]:
        raise ValueError(f"rope_type {kind!r} has no keys {', '.join(sorted(unknown))}; remove them")
    if "rope_theta" not in config:
        raise ValueError("rope_theta is missing and has no safe default; give it")
    if missing := NEEDED & KEYS[kind] - set(config) - ({"factor"} if kind == "longrope" else set()):
        raise ValueError(f"rope_type {kind!r} needs {', '.join(sorted(missing))}; give them")
    turning = config.get("partial_rotary_factor", 1)
    width = round(config["head_dim"] * (1 if kind == "proportional" else turning))
    with localcontext(Context(prec=60)):
        return scaled(kind, config, width, length)


def scaled(kind: str, config: dict[str, Any], width: int, length: int | None) -> tuple[list[Decimal], float]:
    base, factor = Decimal(config["rope_theta"]), Decimal(config.get("factor", 1))
    trained = config.get("original_max_position_embeddings") or config.get("max_position_embeddings") or 1
    gain = config.get("attention_factor")
    if kind == "dynamic" and length is not None and length > trained:
        grown = factor * length / trained - (factor - 1)
        base = base * grown ** (Decimal(width) / (width - 2))
    omegas = [base ** (Decimal(-2 * i) / width) for i in range(width // 2)]
    if kind == "linear":
        omegas = [omega / factor for omega in omegas]
    if kind == "proportional":
        kept = int(config["partial_rotary_factor"] * width // 2)
        omegas = [omegas[i] / factor if i < kept else Decimal(0) for i in range(width // 2)]
    if kind == "longrope":
        divisors = config["long_factor"] if length is not None and length > trained else config["short_factor"]
        omegas = [omega / Decimal(divisor) for omega, divisor in zip(omegas, divisors, strict=True)]
        ratio = float(factor) if "factor" in config else config.get("max_position_embeddings", trained) / trained
        return omegas, gain or (math.sqrt(1 + math.log(ratio) / math.log(trained)) if ratio > 1 else 1.0)
    if kind in ("yarn", "llama3"):
        shares = (ramp if kind == "yarn" else by_rotations)(config, base, width, trained)
        omegas = [omega * kept + omega / factor * (1 - kept) for omega, kept in zip(omegas, shares, strict=True)]
    if kind == "yarn":
        above, below = config.get("mscale"), config.get("mscale_all_dim")
        ratio = grow(factor, above) / grow(factor, below) if above and below else grow(factor, 1)
        return omegas, ratio if gain is None else gain
    return omegas, 1.0


def grow(factor: Decimal | float, weight: float) -> float:
    return 0.1 * weight * math.log(max(float(factor), 1)) + 1


def ramp(config: dict[str, Any], base: Decimal, width: int, trained: int) -> list[Decimal]:
    """YaRN's shares that are kept, linear in the index, as every engine ships them."""

    def index(rotations: float) -> Decimal:
        return width * (trained / (2 * PI * Decimal(rotations))).ln() / (2 * base.ln())

    first, last = index(config.get("beta_fast") or 32), index(config.get("beta_slow") or 1)
    if config.get("truncate", True):
        first, last = first.to_integral_value(ROUND_FLOOR), last.to_integral_value(ROUND_CEILING)
    first, last = max(first, Decimal(0)), min(last, Decimal(width - 1))
    return [1 - within((i - first) / (last - first or Decimal("0.001"))) for i in range(width // 2)]


def by_rotations(config: dict[str, Any], base: Decimal, width: int, trained: int) -> list[Decimal]:
    """Llama 3's shares, linear in the turns within the trained length."""
    low, high = Decimal(config["low_freq_factor"]), Decimal(config["high_freq_factor"])
    rotations = [trained * base ** (Decimal(-2 * i) / width) / (2 * PI) for i in range(width // 2)]
    return [within((turned - low) / (high - low)) for turned in rotations]


def within(share: Decimal) -> Decimal:
    return min(max(share, Decimal(0)), Decimal(1))


def turns_of(omegas: list[Decimal]) -> list[int]:
    """2^64 is a whole turn, and integers wrap where angles do."""
    return [(round(omega * 2**64 / (2 * PI)) + 2**63) % 2**64 - 2**63 for omega in omegas]


def axes_of(spec: Spec, pairs: int) -> list[int]:
    """The axis of each pair: one section after the other, or every third pair as far as an axis' section reaches;
    what is left follows the first."""
    sections = spec.sections or ()
    if spec.arrangement == "interleaved":
        reach = [0, 3 * sections[1], 3 * sections[2]]
        return [pair % 3 if pair < reach[pair % 3] else 0 for pair in range(pairs)]
    return ([axis for axis, count in enumerate(sections) for _ in range(count)] + [0] * pairs)[:pairs]


class Rotary(nn.Module):
    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec, self.layout, self.longest = spec, spec.layout, spec.longest
        omegas, self.gain = read(stated(spec), spec.longest)
        if spec.arrangement == "axial":
            each = [read({**stated(spec), "head_dim": 2 * count})[0] for count in spec.sections or () if count]
            omegas = [omega for ladder in each for omega in ladder]
        self.axes = None if spec.sections is None else axes_of(spec, len(omegas))
        self.width = 2 * len(omegas)
        self.omegas = [float(omega) for omega in omegas]
        self.turns = turns_of(omegas)

    def cos_sin(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """(..., L) or (..., L, A) -> (..., L, R/2) each, in float64."""
        if self.longest is not None and not torch.compiler.is_compiling() and positions.max() >= self.longest:
            raise ValueError(f"position {int(positions.max())} is past the last, {self.longest - 1}; raise `longest`")
        phase = positions.long()[..., None] * torch.as_tensor(self.turns, device=positions.device)
        if self.axes is not None:
            phase = phase[..., torch.tensor(self.axes), torch.arange(len(self.turns))]
        angle = phase.double() * (2 * math.pi / 2**64)
        return angle.cos() * self.gain, angle.sin() * self.gain

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        cos, sin = (part.unsqueeze(-3) for part in self.cos_sin(positions))
        turning, rest = x[..., : self.width], x[..., self.width :]
        if self.layout == "pairs":
            first, second = turning[..., 0::2], turning[..., 1::2]
        else:
            first, second = turning.chunk(2, -1)
        turned = (first * cos - second * sin, second * cos + first * sin)
        joined = torch.stack(turned, -1).flatten(-2) if self.layout == "pairs" else torch.cat(turned, -1)
        return torch.cat((joined.to(x.dtype), rest), -1)

    def moved(self, k: Tensor, delta: Tensor) -> Tensor:
        """Rotated keys turned on by a distance; their gain they have already."""
        return torch.cat([self(k, delta)[..., : self.width] / self.gain, k[..., self.width :]], -1)


def slopes(heads: int) -> list[float]:
    whole = 1 << (heads.bit_length() - 1)
    steep = [2.0 ** (-8 * h / whole) for h in range(1, whole + 1)]
    between = [2.0 ** (-8 * h / (2 * whole)) for h in range(1, 2 * whole, 2)]
    return steep + between[: heads - whole]


def buckets(ahead: Tensor, count: int, farthest: int, bidirectional: bool) -> Tensor:
    """T5's bucket of each key position - query position."""
    start = torch.zeros_like(ahead)
    if bidirectional:
        count //= 2
        start = (ahead > 0) * count
    apart = ahead.abs() if bidirectional else (-ahead).clamp(min=0)
    exact = count // 2
    steps = (apart.clamp(min=1).double() / exact).log() / math.log(farthest / exact) * (count - exact)
    far = (exact + steps.long()).clamp(max=count - 1)
    return start + torch.where(apart < exact, apart, far)


class Bias(nn.Module):
    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        self.table = (
            nn.Parameter(torch.randn(spec.buckets, spec.heads, dtype=torch.float32)) if spec.kind == "t5" else None
        )

    def forward(self, q_positions: Tensor, k_positions: Tensor, heads: tuple[int, int] | None = None) -> Tensor:
        """(..., L), (..., S) -> (..., H, L, S); `heads`: the first and how many."""
        first, count = heads or (0, self.spec.heads)
        ahead = k_positions[..., None, :] - q_positions[..., :, None]
        if self.table is not None:
            which = buckets(ahead, self.spec.buckets, self.spec.farthest, self.spec.bidirectional)
            return self.table[which].movedim(-1, -3)[..., first : first + count, :, :]
        slope = torch.tensor(slopes(self.spec.heads)[first : first + count], dtype=torch.float64)
        return (-slope[:, None, None] * ahead.abs().double().unsqueeze(-3)).float()


def seen(q_positions: Tensor, k_positions: Tensor, q_documents: Tensor, k_documents: Tensor, window: int) -> Tensor:
    """(B, L), (B, S) -> (B, L, S): the keys that a query sees. On several axes by their last column."""
    q_positions, k_positions = (part if part.ndim == 2 else part[..., -1] for part in (q_positions, k_positions))
    behind = q_positions[:, :, None] - k_positions[:, None, :]
    together = (q_documents[:, :, None] == k_documents[:, None, :]) & (k_documents[:, None, :] >= 0)
    return together & (behind >= 0) & (behind < window)


def factors(heat: Heat, positions: Tensor) -> Tensor:
    """(B, L): what queries there are multiplied by."""
    if heat.form == "log-n":
        return ((positions + 1).double().log() / math.log(heat.trained)).clamp(min=1)
    steps = (positions + 1 if heat.form == "llama4" else positions) // heat.trained
    return 1 + heat.strength * steps.double().log1p()


class Attention(nn.Module):
    def __init__(self, spec: Spec, rotary: Rotary, bias: Bias) -> None:
        super().__init__()
        heads, width = spec.heads, spec.head_width
        self.into = nn.Parameter(torch.randn(3, heads, width, width, dtype=torch.float32) / math.sqrt(width))
        self.kind, self.window, self.heat = spec.kind, spec.window or 2**62, spec.temperature
        self.sites = (rotary, bias)  # a tuple, since they are the model's and not this layer's
        weight = (getattr(spec.scaling, "mscale_all_dim", None) or 0.0) if is_deepseek(spec) else 0.0
        self.scale = grow(getattr(spec.scaling, "factor", None) or 1, weight) ** 2 / math.sqrt(width)

    def turned(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.sites[0](x, positions) if self.kind == "rope" else x

    def heated(self, q: Tensor, positions: Tensor) -> Tensor:
        """Queries times a temperature that grows with their positions."""
        if self.heat is None:
            return q
        return (q * factors(self.heat, positions)[:, None, :, None]).to(q.dtype)

    def attend(self, q: Tensor, q_positions: Tensor, q_documents: Tensor, kept: tuple[Tensor, ...]) -> Tensor:
        """q and the kept keys as rotated."""
        k, v, k_positions, k_documents = kept
        scores = q @ k.mT * self.scale
        if self.kind != "rope":
            scores = scores + self.sites[1](q_positions, k_positions)
        visible = seen(q_positions, k_positions, q_documents, k_documents, self.window)[:, None]
        return scores.masked_fill(~visible, -math.inf).softmax(-1).nan_to_num(0.0).to(v.dtype) @ v

    def forward(self, x: Tensor, positions: Tensor, documents: Tensor, old: Any) -> tuple[Tensor, Any]:
        """x (B, H, L, K); `old` is what this layer kept of the tokens before."""
        level = x / x.square().mean(-1, keepdim=True).sqrt()
        q, k, v = (level @ part.double() for part in self.into)
        q, k = (self.turned(part, positions) for part in (q, k))
        q = self.heated(q, positions)
        kept = (k, v, positions, documents)
        if old is not None:
            kept = tuple(torch.cat(pair, dim) for *pair, dim in zip(old, kept, (2, 2, 1, 1), strict=True))
        return x + self.attend(q, positions, documents, kept), kept


def is_deepseek(spec: Spec) -> bool:
    return getattr(spec.scaling, "dialect", None) == "deepseek"


def reached(positions: Tensor) -> Tensor:
    """(B, L) or (B, L, A + 1) -> (B, 1): the largest position so far, on any axis."""
    return (positions if positions.ndim == 2 else positions[..., :-1].amax(-1)).amax(1, keepdim=True)


class Model(nn.Module):
    """Two layers of attention between an encoding of tokens and what reads it out again."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.randn(spec.vocabulary or 64, spec.heads, spec.head_width, dtype=torch.float32))
        self.rotary, self.bias = Rotary(spec), Bias(spec)
        self.axes = None if spec.sections is None else len(spec.sections)
        self.indexer = None if spec.indexer is None else Rotary(spec.indexer)
        self.layers = nn.ModuleList(Attention(spec, self.rotary, self.bias) for _ in range(2))

    @property
    def first(self) -> Attention:
        return next(layer for layer in self.layers if isinstance(layer, Attention))

    def forward(
        self, ids: Tensor, positions: Tensor | None, cache: Any, documents: Tensor | None
    ) -> tuple[Tensor, Any]:
        """(B, L) -> (B, L, V), and per layer the keys as rotated, the values, their positions and documents."""
        documents = torch.zeros_like(ids) if documents is None else documents
        if positions is None:
            start = 0 if cache is None else reached(cache[0][2]) + 1
            positions = start + torch.arange(ids.shape[1]).expand_as(ids)
            positions = positions if self.axes is None else positions[..., None].expand(-1, -1, self.axes)
        if self.axes is not None:
            before = 0 if cache is None else cache[0][2][:, -1:, -1] + 1
            order = before + torch.arange(ids.shape[1]).expand_as(ids)
            positions = torch.cat([positions, order[..., None]], -1)
        x = self.tokens[ids].double().movedim(1, 2)
        caches = []
        for n, layer in enumerate(self.layers):
            x, kept = layer(x, positions, documents, None if cache is None else cache[n])
            caches.append(kept)
        return torch.einsum("bhlk,vhk->blv", x, self.tokens.double()), caches


OFFERS = {"rope": ("cos_sin", "rotate", "move", "frequencies"), "alibi": ("bias", "slopes"), "t5": ("bias", "buckets")}


class Reference:
    """A target; what it offers depends on the kind."""

    def __init__(self, spec: Spec, name: str = "reference") -> None:
        self.spec, self.name = spec, name
        heated = ("cos_sin", "rotate_query", "rotate_key", "move", "frequencies")
        offers = OFFERS[spec.kind] if spec.temperature is None else heated
        for offer in (*offers, *(() if spec.indexer is None else ("rotate_indexer",))):
            setattr(self, offer, getattr(self, f"_{offer}"))

    def build(self, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Model:
        with torch.random.fork_rng(devices=[]), torch.device(device):
            torch.manual_seed(1)
            return Model(self.spec).to(dtype)

    def forward(
        self,
        built: Model,
        ids: Tensor,
        positions: Tensor | None = None,
        cache: Any = None,
        documents: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        return built(ids, positions, cache, documents)

    def evict(self, built: Model, cache: Any, keep: Tensor) -> Any:
        return [
            tuple(part.index_select(dim, keep) for part, dim in zip(kept, (2, 2, 1, 1), strict=True)) for kept in cache
        ]

    def attend(
        self,
        built: Model,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        q_positions: Tensor,
        k_positions: Tensor,
        documents: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        layer = built.first
        of_queries, of_keys = documents or (torch.zeros(len(x), x.shape[2], dtype=torch.int64) for x in (q, k))
        kept = (layer.turned(k, k_positions), v, k_positions, of_keys)
        q = layer.heated(layer.turned(q, q_positions), q_positions)
        return layer.attend(q, q_positions, of_queries, kept)

    def _cos_sin(self, built: Model, positions: Tensor) -> tuple[Tensor, Tensor]:
        return built.rotary.cos_sin(positions)

    def _rotate(self, built: Model, x: Tensor, positions: Tensor) -> Tensor:
        return built.rotary(x, positions)

    def _rotate_query(self, built: Model, x: Tensor, positions: Tensor) -> Tensor:
        return built.first.heated(self._rotate(built, x, positions), positions)

    def _rotate_key(self, built: Model, x: Tensor, positions: Tensor) -> Tensor:
        return self._rotate(built, x, positions)

    def _rotate_indexer(self, built: Model, x: Tensor, positions: Tensor) -> Tensor:
        return x if built.indexer is None else built.indexer(x, positions)

    def _move(self, built: Model, k: Tensor, delta: Tensor) -> Tensor:
        return built.rotary.moved(k, delta)

    def _frequencies(self, config: dict[str, Any], length: int | None = None) -> tuple[list[float], float]:
        omegas, gain = read(config, length or self.spec.longest)
        return [float(omega) for omega in omegas], gain

    def _bias(
        self, built: Model, q_positions: Tensor, k_positions: Tensor, heads: tuple[int, int] | None = None
    ) -> Tensor:
        return built.bias(q_positions, k_positions, heads)

    def _slopes(self, heads: int) -> list[float]:
        return slopes(heads)

    def _buckets(self, distances: Tensor, bidirectional: bool) -> Tensor:
        return buckets(distances, self.spec.buckets, self.spec.farthest, bidirectional)
