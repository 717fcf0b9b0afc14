"""A checkpoint into the one Transformer: positions from the plan, sizes from the config, shapes from the files.

Nothing is allocated before every tensor the model needs was found with the shape the config says, and nothing the files
hold is left over. One tensor at a time is read, so the peak is the model and one tensor.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import torch

from ropewalk.checkpoints.files.sniff import meant
from ropewalk.checkpoints.files.weights import common_dtype
from ropewalk.checkpoints.load.native import load_native
from ropewalk.checkpoints.load.stream import opened
from ropewalk.checkpoints.resolve.native import is_native
from ropewalk.checkpoints.resolve.read import read
from ropewalk.models import Transformer
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
    checkpoint = opened(path, resolved)
    model = checkpoint.model
    chosen = chosen or common_dtype(checkpoint.weights, checkpoint.names)
    state = {ours: checkpoint.parameter(ours, dtype=chosen, device=torch.device(device)) for ours in checkpoint.found}
    model.load_state_dict(state, assign=True)
    model.plans = {side: adopted(plan, resolved.plans[side]) for side, plan in model.plans.items()}
    return model.eval()


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
