"""A checkpoint opened and not loaded: each tensor of its model by transformers' name, read when asked for, then let go.

What converts a checkpoint needs no model in memory, only where each tensor lies, what it is part of and how its
features are laid out. `parameter` puts one of ours together from theirs, as `load` does for all of them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import torch
from pydantic import ValidationError
from torch import Tensor

from ropewalk.checkpoints import families
from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.architectures.table import TABLE
from ropewalk.checkpoints.engines import transformers5
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.families.base import ModelKeys, Source, to_ours
from ropewalk.checkpoints.files.safetensors import read_header
from ropewalk.checkpoints.files.sniff import kind_of, meant
from ropewalk.checkpoints.files.strict_json import MOST_INDEX_BYTES, read_json
from ropewalk.checkpoints.files.weights import IN_SAFETENSORS, INDEX, SINGLE, Weights, narrowed, open_weights
from ropewalk.checkpoints.load.gguf import Renamed, as_transformers, renamed
from ropewalk.checkpoints.load.layers import layers_of
from ropewalk.checkpoints.load.left_over import check_left_over
from ropewalk.checkpoints.load.native import not_exported
from ropewalk.checkpoints.load.tensors import check_shapes, copies, tensors
from ropewalk.checkpoints.resolve.native import is_native
from ropewalk.checkpoints.resolve.read import read
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.plan import LayerPlan, Layout

NAMES = {dtype: name for name, dtype in IN_SAFETENSORS.items()}

Rounding = Callable[[str, Tensor], Tensor]
"""What is done to a tensor of the file, by its name, before it is used."""


class LayerRotation(NamedTuple):
    """What a rotating layer has for certain."""

    base: float
    width: int
    layout: Layout


@dataclass(frozen=True, kw_only=True)
class Rotated:
    """A tensor whose rows are the features of query or key heads that turn."""

    heads: int
    layer: LayerPlan


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    path: Path
    resolved: Resolved
    keys: ModelKeys
    """The config in transformers' keys."""
    weights: Weights
    """Under transformers' names."""
    family: ModuleType
    model: Transformer
    """On the meta device: sizes and positions, no numbers."""
    found: dict[str, Source]
    """Our tensor to theirs."""
    copies: dict[str, str]
    """Tensors that the files hold a second time, and what each equals."""

    @property
    def model_type(self) -> str:
        return self.keys.config["model_type"]

    @property
    def row(self) -> Architecture:
        return TABLE[self.model_type]

    @property
    def gguf(self) -> bool:
        return kind_of(self.path) == "gguf"

    @property
    def names(self) -> tuple[str, ...]:
        """Of every tensor the model needs, in the model's order, each once."""
        return tuple(dict.fromkeys(name for source in self.found.values() for name in source.names))

    def dtypes(self) -> dict[str, torch.dtype]:
        """What each is read as; weights from GGUF are dequantised to float32."""
        if self.gguf:
            return dict.fromkeys(self.names, torch.float32)
        stored = self._stored()
        for name in self.names:
            if not stored[name].is_floating_point:
                problem = f"holds {str(stored[name]).removeprefix('torch.')}, and weights are floats"
                raise BadInput(self.path, name, problem, "quantised models load from GGUF")
        return {name: stored[name] for name in self.names}

    def rest(self) -> dict[str, torch.dtype]:
        """What a directory holds that our model has no use for, such as a pooler or a second copy of a tied table."""
        return {} if self.gguf else {n: dtype for n, dtype in self._stored().items() if n not in set(self.names)}

    def _stored(self) -> dict[str, torch.dtype]:
        said = {
            name: IN_SAFETENSORS[entry.dtype] for file in shards(self.path) for name, entry in read_header(file).items()
        }
        # Names in the oldest files are not those of today, and are read to know.
        return {n: said[n] if n in said else self.weights.read(n).dtype for n in self.weights.names}

    def rotated(self) -> dict[str, Rotated]:
        """The tensors that a change of layout permutes."""
        found: dict[str, Rotated] = {}
        config, plan = self.model.config, self.resolved.plans.get("decoder")
        for ours, source in self.found.items():
            place = re.fullmatch(r"decoder\.blocks\.(\d+)\.attention\.(qkv|q|k|q_norm|k_norm)\b.*", ours)
            if place is None or plan is None or plan.layers[int(place[1])].kind != "rope":
                continue
            layer, part = plan.layers[int(place[1])], place[2]
            counts = (config.heads, config.key_heads)
            if part == "qkv" and (len(source.names) != 3 or source.form != "rows"):
                if layer.layout != "half":
                    raise BadInput(
                        self.resolved.where,
                        source.names[0],
                        "fused queries, keys and values are not supported in this layout",
                        "split it",
                    )
                continue
            if part.endswith("_norm") and config.qk_norm == "head":
                counts = (1, 1)
            parts = source.names[:2] if part == "qkv" else source.names
            for name, heads in zip(parts, counts if part == "qkv" else (counts["qk".index(part[0])],), strict=True):
                found[name] = Rotated(heads=heads, layer=layer)
        return found

    def parameter(
        self,
        ours: str,
        change: Rounding | None = None,
        into: Tensor | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> Tensor:
        """One of our tensors, of its own memory or in a tensor of its shape."""
        source, shape = self.found[ours], self.model.get_parameter(ours).shape
        whole = torch.empty(shape, dtype=dtype, device=device) if into is None or into.shape != shape else into
        row = 0
        for name in source.names:
            stored = self.weights.read(name)
            if not stored.is_floating_point():
                problem = f"holds {str(stored.dtype).removeprefix('torch.')}, and weights are floats"
                raise BadInput(self.path, name, problem, "quantised models load from GGUF")
            given = narrowed(stored if change is None else change(name, stored), dtype, self.path, name)
            (part,) = to_ours(source.form, [given], self.model.config.heads)
            part = part.reshape(-1, *shape[1:]) if len(shape) > 1 else part.flatten()
            whole[row : row + len(part)].copy_(part)
            row += len(part)
        return whole


def rotation(layer: LayerPlan) -> LayerRotation:
    if layer.base is None or layer.rotary_width is None or layer.layout is None:
        raise ValueError(f"a layer of kind {layer.kind} does not rotate")
    return LayerRotation(layer.base, layer.rotary_width, layer.layout)


def open_checkpoint(path: str | Path, kinds: Collection[str] = ()) -> Checkpoint:
    """A directory or a .gguf file, everything but the tensors' values read and checked as `load` does."""
    place = meant(path)
    if is_native(place):
        raise not_exported(place, kinds)
    resolved = read(place, arithmetic="float32")
    found = opened(place.parent if kind_of(place) == "json" else place, resolved)
    found.model.eval().requires_grad_(False)
    return found


def opened(place: Path, resolved: Resolved) -> Checkpoint:
    """The model's tensors, each found with the shape the config says, and nothing in the files left over."""
    weights, keys = _weights(place, resolved)
    if kind_of(place) != "gguf":
        _tell_of_transformers(place, resolved)
    family = families.find(keys.config["model_type"], keys.where)
    config = _config(resolved, family, keys, weights)
    with torch.device("meta"):
        model = Transformer(config)
    found = tensors(model, weights, family)
    check_shapes(model, weights, found, resolved)
    left = set(weights.names) - {name for source in found.values() for name in source.names}
    twice = copies(model, weights, family, found)
    check_left_over(left, model, weights, family, twice, resolved)
    twice = {copy: of for copy, of in twice.items() if copy in left}
    return Checkpoint(
        path=place, resolved=resolved, keys=keys, weights=weights, family=family, model=model, found=found, copies=twice
    )


def _weights(path: Path, resolved: Resolved) -> tuple[Weights, ModelKeys]:
    """The weights under the names transformers gives them, and the config in its keys."""
    if resolved.refusal is not None:
        raise BadInput(resolved.where, "model_type", f"{resolved.model_type}: {resolved.refusal}", "inspect reads it")
    weights = open_weights(path)
    if kind_of(path) != "gguf":
        return _today(weights), ModelKeys(resolved.config, resolved.where)
    config = as_transformers(resolved, weights)
    return renamed(weights, resolved, config), ModelKeys(config, resolved.where)


def _tell_of_transformers(place: Path, resolved: Resolved) -> None:
    """Its code is what most checkpoints were trained and are served with, and it reads what is written for it."""
    try:
        reading = transformers5.read(resolved)
    except ValueError:
        return  # its frequencies cannot be computed, as `inspect` says
    departs = [note for note in reading.notes if note.counts]
    if departs and reading.switch == "static":  # that dynamic and LongRoPE go by the call is no surprise
        warnings.warn(
            f"{resolved.where}: transformers 5 {departs[0].what} ({departs[0].why}); ropewalk follows the config. What "
            f"every engine computes: ropewalk inspect {place}",
            stacklevel=4,
        )


def _today(weights: Weights) -> Weights:
    """The oldest BERTs call a norm's weight gamma and its bias beta."""
    parts = {".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"}
    theirs = {name: name for name in weights.names}
    for old, new in parts.items():
        theirs = {name.removesuffix(old) + new if name.endswith(old) else name: own for name, own in theirs.items()}
    return weights if len(theirs) < len(weights.names) else Renamed(weights, theirs, shifted=False)


def _config(resolved: Resolved, family: ModuleType, keys: ModelKeys, weights: Weights) -> TransformerConfig:
    """Sizes by the family, positions by the plan."""
    if "quantization_config" in keys:
        problem = "the weights are quantised in a form that is not supported"
        raise BadInput(resolved.where, "quantization_config", problem, "quantised models load from GGUF")
    shape = family.shape(keys)
    if hasattr(family, "by_files"):
        shape = family.by_files(shape, weights)
    deep = max(len(plan.layers) for plan in resolved.plans.values())
    if deep > len(weights.names):
        raise BadInput(
            resolved.where,
            "layers",
            f"{deep:,} layers and {len(weights.names):,} tensors",
            "the config does not belong to these files",
        )
    try:
        return TransformerConfig.model_validate({**shape, **layers_of(resolved)})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "config"
        raise BadInput(
            resolved.where, field, first["msg"].removeprefix("Value error, "), "correct the config"
        ) from None


def shards(directory: Path) -> list[Path]:
    """The files of weights, checked when they were opened."""
    index = directory / INDEX
    if not index.exists():
        return [directory / SINGLE]
    return [directory / name for name in sorted(set(read_json(index, MOST_INDEX_BYTES)["weight_map"].values()))]
