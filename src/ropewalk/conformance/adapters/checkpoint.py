"""A model directory as a target, read by us (ropewalk.load) or by transformers, and checked against its plan.

    verify(checkpoint.target("path/to/SmolLM2", "transformers"))

The weights are read once. Every instance has buffers and state of its own and shares their memory.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Collection
from functools import cache as kept
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.attention.cache import Cache
from ropewalk.checkpoints.files.sniff import meant
from ropewalk.checkpoints.load.model import load
from ropewalk.checkpoints.resolve.native import is_native
from ropewalk.conformance.adapters.peer import need, only_padding
from ropewalk.conformance.findings import NotApplicable
from ropewalk.conformance.target import Spec
from ropewalk.plan import LayerPlan, Plan
from ropewalk.positions import FARTHEST, Positions

ENGINES = ("ropewalk", "transformers")
ROOM = 768
"""Tokens that our cache holds."""


def target(path: str | Path, engine: str = "ropewalk", kinds: Collection[str] = ()) -> Checkpoint:
    """kinds: encodings of other packages that the checkpoint may name, as for `load`."""
    if engine not in ENGINES:
        raise ValueError(f"no engine {engine!r}; a checkpoint is read by {' or '.join(ENGINES)}")
    return (Ours if engine == "ropewalk" else Theirs)(Path(path), engine, tuple(kinds))


class Checkpoint:
    """What both ways of reading have in common."""

    def __init__(self, path: Path, engine: str, kinds: tuple[str, ...]) -> None:
        self.path, self.engine, self.kinds = path, engine, kinds
        self.name = str(path) if engine == "ropewalk" else f"{path} through transformers"
        made = f"checkpoint.target({str(path)!r}, {engine!r}{f', {kinds!r}' if kinds else ''})"
        self.source = f"from ropewalk.conformance.adapters import checkpoint; target = {made}"
        whole = read(path, kinds)
        self.plan: Plan = whole.plan
        if whole.decoder is None or whole.encoder is not None:
            raise ValueError(f"{path} is an {whole.config.stack}; a decoder alone is verified, which reads one text")
        self.layer: LayerPlan = self.plan.layers[0]
        self.alike = all(layer == self.layer for layer in self.plan.layers)
        self.spec = self._spec(whole)
        self.limit = self.spec.longest or FARTHEST

    def _spec(self, whole: Any) -> Spec:
        layer = self.layer
        given: dict[str, Any] = {"heads": whole.config.heads, "head_width": whole.config.head_width}
        given |= {"vocabulary": whole.config.vocabulary, "longest": self.plan.table}
        if not self.alike or layer.kind != "rope":
            return Spec(kind="other", relative=layer.kind in ("rope", "alibi", "t5"), **given)
        if layer.length_dependent:
            given["longest"] = self.plan.extended or 4 * (self.plan.trained or self.plan.stated or 1024)
        given |= {"angles": "exact"} if self.engine == "ropewalk" else {}
        shared = ("base", "rotary_width", "layout", "scaling", "window")
        return Spec(kind="rope", **given, **{name: getattr(layer, name) for name in shared})

    def build(self, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        if device == "meta":
            raise NotApplicable("a checkpoint is read into memory")
        model = self.read()
        # New parameters on the old memory: what is done to an instance leaves the others as they are.
        shared = {id(p): nn.Parameter(p.data, requires_grad=False) for p in model.parameters()}
        made = copy.deepcopy(model, shared)
        return made if dtype == torch.float32 else made.to(dtype)

    def read(self) -> Any:
        raise NotImplementedError


class Ours(Checkpoint):
    def __init__(self, path: Path, engine: str, kinds: tuple[str, ...]) -> None:
        super().__init__(path, engine, kinds)
        if self.spec.kind == "rope":
            self.rotate = self.rotated

    def read(self) -> Any:
        return read(self.path, self.kinds)

    def rotated(self, built: Any, x: Tensor, at: Tensor) -> Tensor:
        return built.decoder.kinds[0].at(at, limit=self.limit).rotate(x, "query")

    def forward(
        self, built: Any, ids: Tensor, at: Tensor | None = None, cache: Any = None, documents: Tensor | None = None
    ) -> Any:
        if at is None:
            start = torch.zeros(len(ids), dtype=torch.int64) if cache is None else cache.next
            at = start[:, None] + torch.arange(ids.shape[1])
        where = Positions(at, at, torch.zeros_like(at) if documents is None else documents, self.limit)
        if cache is not None:
            return built(ids, where, cache=cache), cache
        cache = built.cache(len(ids), ROOM, limit=self.limit)
        built(ids, where, cache=cache)
        return built(ids, where), cache

    def evict(self, built: Any, cache: Cache, keep: Tensor) -> Cache:
        cache.evict(lambda at: torch.isin(at.order, keep, invert=True))
        return cache


class Theirs(Checkpoint):
    def __init__(self, path: Path, engine: str, kinds: tuple[str, ...]) -> None:
        if is_native(meant(path)):
            raise ValueError(
                f"{path} is a model of ropewalk's own, which transformers does not load; leave out --engine"
            )
        super().__init__(path, engine, kinds)
        inner = getattr(self.read(), "model", None)
        if self.spec.kind == "rope" and hasattr(inner, "rotary_emb"):
            self.cos_sin = self.tables

    def read(self) -> Any:
        return read_by_transformers(self.path)

    def tables(self, built: Any, at: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = built.model.rotary_emb(torch.zeros(1, dtype=built.dtype), at)
        half = self.spec.rotary // 2
        return cos[..., :half], sin[..., :half]

    def forward(
        self, built: Any, ids: Tensor, at: Tensor | None = None, cache: Any = None, documents: Tensor | None = None
    ) -> Any:
        """Padding by the attention mask, packing by positions that start again."""
        from transformers import DynamicCache

        held, mask = (DynamicCache(config=built.config), None) if cache is None else cache
        more: dict[str, Any] = {"position_ids": at}
        if "position_ids" not in inspect.signature(built.forward).parameters:
            if documents is None and at is not None and (at[:, 0] != held.get_seq_length()).any():
                raise NotApplicable("this model takes no positions: it counts tokens")
            more = {}
        if documents is not None and not only_padding(documents) and mask is None:
            return built(ids, use_cache=False, **more).logits, None
        if documents is not None:
            mask = documents >= 0 if mask is None else torch.cat([mask, documents >= 0], 1)
            more["attention_mask"] = mask.long()
        out = built(ids, past_key_values=held, use_cache=True, **more)
        return out.logits, (out.past_key_values, mask)


@kept
def read(path: Path, kinds: tuple[str, ...]) -> Any:
    return load(path, dtype="float32", kinds=kinds)


@kept
def read_by_transformers(path: Path) -> Any:
    made = need("transformers", "transformers")
    made.utils.logging.set_verbosity_error()
    return made.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, trust_remote_code=False).eval()
