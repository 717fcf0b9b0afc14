"""Which tensors of a checkpoint each of our tensors is made of, and whether their shapes fit."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ropewalk.checkpoints.errors import BadInput, few
from ropewalk.checkpoints.families.base import Source, sources
from ropewalk.checkpoints.files.weights import Weights
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.models import Transformer
from ropewalk.nn import MLP, Attention


def tensors(model: Transformer, weights: Weights, family: ModuleType) -> dict[str, Source]:
    """Where each of our tensors lies in these files."""
    strip = _prefix(_table(model, family), weights)
    return {
        ours: Source(tuple(name.removeprefix(strip) for name in source.names), source.form)
        for ours, source in named(model, family).items()
    }


def named(model: Transformer, family: ModuleType) -> dict[str, Source]:
    """What transformers calls each of our tensors, of a model that is `fused`."""
    table = _table(model, family)
    return {ours: sources(table, getattr(family, "FORMS", {}), ours) for ours in model.state_dict()}


def copies(model: Transformer, weights: Weights, family: ModuleType, found: dict[str, Source]) -> dict[str, str]:
    """Tensors that files may hold a second time, and what each must equal."""
    table = _table(model, family)
    strip = _prefix(table, weights)
    found_twice = {copy.removeprefix(strip): of.removeprefix(strip) for copy, of in getattr(family, "SAME", {}).items()}
    if model.head is None and "head" in table:
        found_twice[f"{table['head']}.weight"] = found["tokens.weight"].names[0]
    return found_twice


def _table(model: Transformer, family: ModuleType) -> dict[str, str | tuple[str, ...]]:
    return family.names(model.config) if hasattr(family, "names") else family.NAMES


def _prefix(table: dict[str, Any], weights: Weights) -> str:
    """What a model saved without its output map leaves off every name."""
    first = f"{table['tokens']}.weight"
    prefix = f"{first.partition('.')[0]}."
    bare = first not in weights.names and first.removeprefix(prefix) in weights.names
    return prefix if bare else ""


def check_shapes(model: Transformer, weights: Weights, found: dict[str, Source], resolved: Resolved) -> None:
    """Every tensor is in the files with the shape that the config says."""
    missing = [name for source in found.values() for name in source.names if name not in weights.names]
    if missing:
        raise BadInput(resolved.name, few(missing), "is missing", "the files do not hold the whole model")
    for ours, source in found.items():
        want = tuple(model.get_parameter(ours).shape)
        shapes = [weights.shape(name) for name in source.names]
        if source.form == "transposed":
            shapes = [shape[::-1] for shape in shapes]
        shapes = [shape[1:] if len(shape) == len(want) + 1 and shape[0] == 1 else shape for shape in shapes]
        parts = rows_of(model, ours)
        parts = parts if len(shapes) > 1 else [sum(parts)]
        if [shape[1:] for shape in shapes] != [want[1:]] * len(parts) or [shape[:1] for shape in shapes] != [
            (n,) for n in parts
        ]:
            said = " + ".join(f"{weights.shape(name)}" for name in source.names)
            raise BadInput(
                resolved.name, ", ".join(source.names), f"has shape {said}, the config says {want}", "one is wrong"
            )


def apart(ours: str) -> list[str]:
    """What a model that is not `fused` has in place of a tensor of one that is; itself where that is the same."""
    path, _, leaf = ours.rpartition(".")
    path, _, module = path.rpartition(".")
    letters = {"qkv": "qkv", "kv": "kv", "up": ("gate", "up")}.get(module, (module,))
    return [".".join(part for part in (path, letter, leaf) if part) for letter in letters]


def rows_of(model: Transformer, ours: str) -> list[int]:
    """Rows of each part of a tensor of ours: of queries, keys and values, or of gate and values, where they are one."""
    path, _, module = ours.rpartition(".")[0].rpartition(".")
    parent = model.get_submodule(path)
    if isinstance(parent, Attention) and set(module) <= set("qkv"):
        return [parent.sizes["qkv".index(letter)] for letter in module]
    rows = model.get_parameter(ours).shape[0]
    return [rows // 2] * 2 if isinstance(parent, MLP) and parent.fused and module == "up" else [rows]
