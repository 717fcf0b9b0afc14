"""Our own encodings as targets: `ropewalk verify rope base=500000 scaling.kind=yarn scaling.factor=4 ...`.

A target offers what its encoding does (rotate, bias), its attention, and a small whole model with its cache.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from ropewalk import positions as places
from ropewalk import scaling
from ropewalk.attention import Rule, Score, attend
from ropewalk.attention.cache import Cache
from ropewalk.conformance.target import Heat, Spec
from ropewalk.encodings import Encoding, build, find
from ropewalk.encodings.alibi import slopes
from ropewalk.encodings.t5 import T5
from ropewalk.encodings.temperature import Temperature
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.overrides import assigned, expand, problems
from ropewalk.positions import FARTHEST, PAD, Positions

KNOWN = ("rope", "alibi", "t5", "sinusoidal")
SIZES = {"head_width": 64, "heads": 8, "window": None, "longest": None}
"""Settings that are the model's, not the encoding's."""
VOCABULARY = 64
ROOM = 768
"""Tokens a cache of the small model holds."""


class Built(nn.Module):
    """One instance: the encoding, and a model around it once one is asked for."""

    def __init__(self, target: Ours, with_model: bool) -> None:
        super().__init__()
        self.target = (target,)  # in a tuple, lest nn.Module look inside
        self.encoding = target.encoding()
        self.whole = target.model() if with_model else None
        self._beside: list[Transformer] = []

    @property
    def model(self) -> Transformer:
        if self.whole is not None:
            return self.whole
        if not self._beside:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                self._beside.append(self.target[0].model())
            # What is learned is the instance's own.
            for encoding in self._beside[0].modules():
                if isinstance(encoding, Encoding) and encoding.config == self.encoding.config:
                    encoding.load_state_dict(self.encoding.state_dict())
        return self._beside[0]


class Ours:
    """One of our encodings as a target."""

    def __init__(self, kind: str, settings: dict[str, Any] | None = None) -> None:
        given = dict(settings or {})
        sizes = {name: given.pop(name, default) for name, default in SIZES.items()}
        self.heads, self.head_width, self.window = sizes["heads"], sizes["head_width"], sizes["window"]
        config_class = find(kind).Config
        if "longest" in config_class.model_fields:
            given["longest"] = sizes["longest"] or 4096
        data = expand({"kind": kind, **given}, config_class)
        try:
            self.config = config_class.model_validate(data)
        except ValidationError as error:
            raise problems(error, config_class, f"verify {kind}", data) from None
        sample = self.encoding()
        longest = sizes["longest"] or sample.claims.longest
        trained = getattr(getattr(self.config, "scaling", None), "trained", None)
        if longest is None and sample.claims.needs_limit:
            longest = 4 * (trained or 1024)
        self.limit = longest or FARTHEST
        self.spec = self._spec(kind, longest, sample)
        self._offer(sample)

    def _spec(self, kind: str, longest: int | None, sample: Encoding) -> Spec:
        shared = ("base", "rotary_width", "layout", "scaling", "frequencies", "arithmetic")
        shared += ("buckets", "farthest", "bidirectional", "sections", "arrangement")
        config = self.config
        read: dict[str, Any] = {"arithmetic": "exact", "angles": "exact"}
        read |= {name: getattr(config, name) for name in shared if kind in KNOWN and hasattr(config, name)}
        for part in getattr(config, "parts", (config,)):
            if isinstance(part, Temperature.Config):
                read["temperature"] = Heat(form=part.form, trained=part.trained, strength=part.strength)
        return Spec(
            kind=kind if kind in KNOWN else "other",
            heads=self.heads,
            head_width=self.head_width,
            window=self.window,
            longest=longest,
            vocabulary=VOCABULARY,
            relative=sample.claims.shift_invariant,
            **read,
        )

    def _offer(self, sample: Encoding) -> None:
        """Only what this encoding has: a target offers what it defines."""
        if "rotate" in sample.sites:
            if sample.one_rotation:
                self.rotate = self.rotated
            else:
                self.rotate_query = self.rotated
                self.rotate_key = partial(self.rotated, role="key")
            if sample.axes is None and not sample.claims.needs_limit:
                self.move = self.moved
        if "bias" in sample.sites:
            self.bias = self.biased
        if "embed" not in sample.sites and sample.sites:
            self.attend = self.attended
        if self.spec.kind == "sinusoidal":
            self.cos_sin = self.waves
        if self.spec.kind == "rope" and self.spec.frequencies is None:
            self.frequencies = self.read
        if self.spec.kind == "alibi":
            self.slopes = slopes
        if self.spec.kind == "t5":
            self.buckets = self.bucketed

    def encoding(self) -> Encoding:
        # Absolute encodings are as wide as the model, which is here as wide as one head.
        return build(self.config, width=self.head_width, heads=self.heads, head_width=self.head_width)

    def model(self) -> Transformer:
        config = TransformerConfig(
            vocabulary=VOCABULARY,
            width=self.head_width,
            heads=self.heads,
            head_width=self.head_width,
            encoding=self.config,
            window=self.window,
            layers=2,
            hidden=self.head_width,
            tie=False,
            std=0.2,
        )
        return Transformer(config).eval()

    def build(self, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Built:
        with torch.device(device):
            return Built(self, with_model=not (self.spec.kind in KNOWN or hasattr(self, "attend"))).to(dtype).eval()

    def rotated(self, built: Built, x: Tensor, at: Tensor, role: Any = "query") -> Tensor:
        return built.encoding.at(at, limit=self.limit).rotate(x, role)

    def biased(self, built: Built, q: Tensor, k: Tensor, heads: tuple[int, int] | None = None) -> Tensor:
        first, count = (0, self.heads) if heads is None else heads
        signal = built.encoding.at(q, k, limit=self.limit)
        head = torch.arange(first, first + count, device=q.device)[:, None, None]
        return signal.bias(head, q.long()[:, None], k.long()[None])

    def moved(self, built: Built, k: Tensor, delta: Tensor) -> Tensor:
        return built.encoding.move(k, delta)

    def attended(
        self, built: Built, q: Tensor, k: Tensor, v: Tensor, q_at: Tensor, k_at: Tensor, documents: Any = None
    ) -> Tensor:
        segments = documents or (torch.zeros(at.shape[:2], dtype=torch.int64) for at in (q_at, k_at))
        # Text, which has the same number on every axis.
        orders = (at if at.ndim == 2 else at[..., 0] for at in (q_at, k_at))
        places = zip((q_at, k_at), orders, segments, strict=True)
        signal = built.encoding.at(*(Positions(*place, self.limit) for place in places))
        q, k = signal.rotate(q, "query"), signal.rotate(k, "key")
        return attend(q, k, v, Score(signal, Rule(window=self.window)))

    def waves(self, built: Built, at: Tensor) -> tuple[Tensor, Tensor]:
        table = built.encoding(places.explicit(at, self.limit))
        if self.spec.layout == "half":
            sin, cos = table.chunk(2, dim=-1)
            return cos, sin
        return table[..., 1::2], table[..., 0::2]

    def bucketed(self, ahead: Tensor, bidirectional: bool) -> Tensor:
        spec = self.spec
        one = T5(heads=1, buckets=spec.buckets, farthest=spec.farthest, bidirectional=bidirectional)
        return one.bucket(ahead)

    def read(self, config: dict[str, Any], length: int | None = None) -> tuple[list[float], float]:
        """The frequencies and the gain of transformers' `rope_parameters`, as our loader reads them."""
        longest = config.pop("max_position_embeddings", None)
        head_width = config.pop("head_dim", self.head_width)
        found = scaling.from_hf(config, longest)
        width = int(head_width * (found.fraction or 1))
        if found.scaling is None:
            return [float(omega) for omega in scaling.ladder(found.base, width)], 1.0
        settled = found.scaling.for_length(length or self.limit)
        return [float(omega) for omega in settled.frequencies(found.base, width)], settled.rotary_gain

    def forward(
        self, built: Built, ids: Tensor, at: Tensor | None = None, cache: Any = None, documents: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        model, limit = built.model, self.limit
        axes = built.encoding.axes
        start = torch.zeros(len(ids), dtype=torch.int64) if cache is None else cache.next
        order = start[:, None] + torch.arange(ids.shape[1])
        if at is None:
            at = order if axes is None or cache is None else order + past(cache)[:, None]
            at = at if axes is None else at[..., None].expand(-1, -1, axes)
        segment = torch.zeros_like(order) if documents is None else documents
        where = Positions(at, at if axes is None else order, segment, limit)
        if cache is not None:
            return model(ids, where, cache=cache), cache
        # The logits of a full pass are computed without a cache, lest the cache be compared with itself.
        cache = model.cache(len(ids), ROOM, limit=limit)
        model(ids, where, cache=cache)
        return model(ids, where), cache

    def evict(self, built: Built, cache: Cache, keep: Tensor) -> Cache:
        cache.evict(lambda at: torch.isin(at.order, keep, invert=True))
        return cache


def past(cache: Cache) -> Tensor:
    """(B,) what a position has more than its order: after a grid the largest index is less than the tokens read."""
    at = cache.layers[0].read()[2]
    index = torch.where(at.segment == PAD, -1, at.index.amax(-1)).amax(1)
    return index - torch.where(at.segment == PAD, -1, at.order).amax(1)


def target(kind: str, *assignments: str) -> Ours:
    """`target("rope", "base=500000")`, as on the command line."""
    made = Ours(kind, assigned(assignments))
    words = ", ".join(repr(word) for word in (kind, *assignments))
    made.source = f"from ropewalk.conformance.adapters import ours; target = ours.target({words})"  # type: ignore[attr-defined]
    made.name = " ".join((kind, *assignments))  # type: ignore[attr-defined]
    return made
