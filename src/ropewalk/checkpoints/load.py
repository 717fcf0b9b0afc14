"""A checkpoint into the one Transformer: positions from the plan, sizes from the config, shapes from the files.

Nothing is allocated before every tensor the model needs was found with the shape the config says, and nothing the files
hold is left over. One tensor at a time is read, so the peak is the model and one tensor.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from pydantic import ValidationError

from ropewalk.checkpoints import families
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.families.base import Keys, Source, sources, to_ours
from ropewalk.checkpoints.gguf_model import Renamed, as_transformers, renamed
from ropewalk.checkpoints.layers import layers_of
from ropewalk.checkpoints.left_over import check_left_over, few
from ropewalk.checkpoints.native import is_native, load_native
from ropewalk.checkpoints.resolve import Resolved, read
from ropewalk.checkpoints.sniff import kind_of, meant
from ropewalk.checkpoints.weights import Weights, common_dtype, narrowed, open_weights
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.nn import MLP, Attention
from ropewalk.plan import Plan

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


def load(
    path: str | Path,
    *,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device = "cpu",
    kinds: Collection[str] = (),
) -> Transformer:
    """The model of a directory (config.json and .safetensors) or of a .gguf file, ready to generate.

    dtype: unless given, that of the file, or one that holds all of its dtypes; quantised weights become float32.
    kinds: encodings of other packages (my_pkg.cable) to import where the checkpoint names them; without it, none is.
    """
    if isinstance(dtype, str) and dtype not in DTYPES:
        raise ValueError(f"no dtype {dtype!r}; there are {', '.join(DTYPES)}")
    chosen = DTYPES[dtype] if isinstance(dtype, str) else dtype
    path = meant(path)
    if is_native(path):
        return load_native(path, dtype=chosen, device=torch.device(device), kinds=kinds)
    resolved = read(path, arithmetic="float32")
    weights, keys = opened(path, resolved)
    family = families.find(keys.config["model_type"], keys.where)
    config = config_of(resolved, family, keys, weights)
    with torch.device("meta"):
        model = Transformer(config)
    fill(model, weights, family, resolved, dtype=chosen, device=torch.device(device))
    model.plans = {side: adopted(plan, resolved.plans[side]) for side, plan in model.plans.items()}
    return model.eval()


def opened(path: Path, resolved: Resolved) -> tuple[Weights, Keys]:
    """The weights under the names transformers gives them, and the config in its words."""
    if resolved.refusal is not None:
        raise BadInput(resolved.where, "model_type", f"{resolved.model_type}: {resolved.refusal}", "inspect reads it")
    weights = open_weights(path)
    if kind_of(path) != "gguf":
        return _today(weights), Keys(resolved.config, resolved.where)
    config = as_transformers(resolved, weights)
    return renamed(weights, resolved, config), Keys(config, resolved.where)


def _today(weights: Weights) -> Weights:
    """The oldest BERTs call a norm's weight gamma and its bias beta."""
    parts = {".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"}
    theirs = {name: name for name in weights.names}
    for old, new in parts.items():
        theirs = {name.removesuffix(old) + new if name.endswith(old) else name: own for name, own in theirs.items()}
    return weights if len(theirs) < len(weights.names) else Renamed(weights, theirs, shifted=False)


def config_of(resolved: Resolved, family: ModuleType, keys: Keys, weights: Weights) -> TransformerConfig:
    """Sizes by the family, positions by the plan."""
    if "quantization_config" in keys:
        problem = "the weights are quantised in a form that is not read"
        raise BadInput(resolved.where, "quantization_config", problem, "quantised models load from GGUF")
    shape = family.shape(keys)
    if hasattr(family, "by_files"):
        shape = family.by_files(shape, weights)
    deep = max(len(plan.layers) for plan in resolved.plans.values())
    if deep > len(weights.names):
        raise BadInput(
            resolved.where, "layers", f"{deep:,} layers and {len(weights.names):,} tensors", "the config is not theirs"
        )
    try:
        return TransformerConfig.model_validate({**shape, **layers_of(resolved)})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "config"
        raise BadInput(
            resolved.where, field, first["msg"].removeprefix("Value error, "), "correct the config"
        ) from None


def fill(
    model: Transformer,
    weights: Weights,
    family: ModuleType,
    resolved: Resolved,
    *,
    dtype: torch.dtype | None,
    device: torch.device,
) -> None:
    """Every parameter of a model on the meta device from the file, and every tensor of the file accounted for."""
    found = tensors(model, weights, family)
    heads, state = model.config.heads, {}
    _check_shapes(model, weights, found, resolved)
    left = set(weights.names) - {name for source in found.values() for name in source.names}
    check_left_over(left, model, weights, family, _copies(model, weights, family, found), resolved)
    dtype = dtype or common_dtype(weights, (name for source in found.values() for name in source.names))
    for ours, source in found.items():
        whole = torch.empty(model.get_parameter(ours).shape, dtype=dtype, device=device)
        row = 0
        for name in source.names:
            stored = weights.read(name)
            if not stored.is_floating_point():
                problem = f"holds {str(stored.dtype).removeprefix('torch.')}, and weights are floats"
                raise BadInput(resolved.name, name, problem, "quantised models load from GGUF")
            (part,) = to_ours(source.form, [narrowed(stored, dtype, resolved.name, name)], heads)
            part = part.reshape(-1, *whole.shape[1:]) if whole.ndim > 1 else part.flatten()
            whole[row : row + len(part)].copy_(part)
            row += len(part)
        state[ours] = whole
    model.load_state_dict(state, assign=True)


def tensors(model: Transformer, weights: Weights, family: ModuleType) -> dict[str, Source]:
    """Where each of our tensors lies in these files."""
    table = _table(model, family)
    strip = _prefix(table, weights)
    found = {}
    for ours in model.state_dict():
        source = sources(table, getattr(family, "FORMS", {}), ours)
        found[ours] = Source(tuple(name.removeprefix(strip) for name in source.names), source.form)
    return found


def _copies(model: Transformer, weights: Weights, family: ModuleType, found: dict[str, Source]) -> dict[str, str]:
    """Tensors that files may hold a second time, and what each must equal."""
    table = _table(model, family)
    strip = _prefix(table, weights)
    copies = {copy.removeprefix(strip): of.removeprefix(strip) for copy, of in getattr(family, "SAME", {}).items()}
    if model.head is None and "head" in table:
        copies[f"{table['head']}.weight"] = found["tokens.weight"].names[0]
    return copies


def _table(model: Transformer, family: ModuleType) -> dict[str, str | tuple[str, ...]]:
    return family.names(model.config) if hasattr(family, "names") else family.NAMES


def _prefix(table: dict[str, Any], weights: Weights) -> str:
    """What a model saved without its output map leaves off every name."""
    first = f"{table['tokens']}.weight"
    prefix = f"{first.partition('.')[0]}."
    bare = first not in weights.names and first.removeprefix(prefix) in weights.names
    return prefix if bare else ""


def _check_shapes(model: Transformer, weights: Weights, found: dict[str, Source], resolved: Resolved) -> None:
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


def rows_of(model: Transformer, ours: str) -> list[int]:
    """Rows of each part of a tensor of ours: of queries, keys and values, or of gate and values, where they are one."""
    path, _, module = ours.rpartition(".")[0].rpartition(".")
    parent = model.get_submodule(path)
    if isinstance(parent, Attention) and set(module) <= set("qkv"):
        return [parent.sizes["qkv".index(letter)] for letter in module]
    rows = model.get_parameter(ours).shape[0]
    return [rows // 2] * 2 if isinstance(parent, MLP) and parent.fused and module == "up" else [rows]


def adopted(built: Plan, resolved: Plan) -> Plan:
    """The model's own plan with where each value came from. Both are the same numbers, or this code is wrong."""
    layers = []
    for number, (own, known) in enumerate(zip(built.layers, resolved.layers, strict=True)):
        for field in ("kind", "turns", "rotary_gain", "logit_gain", "layout", "rotary_width", "window"):
            if getattr(own, field) != getattr(known, field):
                raise RuntimeError(
                    f"layer {number}: built {field} {getattr(own, field)}, resolved {getattr(known, field)}"
                )
        layers.append(replace(own, sources=known.sources))
    table = built.table if resolved.table is None else resolved.table
    lengths = {"trained": resolved.trained, "stated": resolved.stated, "extended": resolved.extended, "table": table}
    return replace(built, layers=tuple(layers), sources=resolved.sources, **lengths)
