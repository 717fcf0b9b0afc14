"""A GGUF file that llama.cpp loads: sizes, positions, vocabulary, and the tensors one after the other.

    layout       queries and keys of Llama in pairs, of Qwen in halves, as llama.cpp's code for each turns them
    llama3       divisors of the frequencies in the tensor rope_freqs.weight
    longrope     both lists, rope_factors_short.weight and rope_factors_long.weight
    yarn         factor and trained length; a gain of its own as what llama.cpp's 0.1 ln s + 1 is multiplied by
    vectors      (norms, biases) in float32 whatever the matrices are in, which llama.cpp asks for

Positions that llama.cpp has no way to say are refused with the reason: nothing is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.architectures.table import GGUF_TYPES, TABLE, gguf_name
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.export.permute import relaid
from ropewalk.checkpoints.export.vocabulary import about_of, kept_keys, vocabulary
from ropewalk.checkpoints.files.gguf import GGUF
from ropewalk.checkpoints.load.stream import Checkpoint, rotation
from ropewalk.scaling import Linear, Llama3, LongRoPE, YaRN, ladder

if TYPE_CHECKING:
    from gguf import GGUFWriter

FILE_TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 32}
TENSOR_TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 30}
"""ggml's numbers of what a tensor is stored in."""


class PositionsInGGUF(NamedTuple):
    """What a file says of positions: keys under the architecture's name, and tensors."""

    keys: dict[str, Any]
    tensors: dict[str, np.ndarray]


def stored_as(source: Checkpoint, asked: Mapping[str, torch.dtype]) -> dict[str, torch.dtype]:
    """What each tensor is stored as, given what is asked for."""
    wide = {name: dtype for name, dtype in asked.items() if dtype not in TENSOR_TYPES}
    if wide:
        problem = f"is {str(next(iter(wide.values()))).removeprefix('torch.')}, which llama.cpp does not compute with"
        raise BadInput(source.path, next(iter(wide)), problem, "export with --dtype float32")
    return {n: dtype if len(source.weights.shape(n)) > 1 else torch.float32 for n, dtype in asked.items()}


def write_gguf(source: Checkpoint, out: Path, stored: Mapping[str, torch.dtype]) -> None:
    """Into a file that is not there yet."""
    from gguf import GGMLQuantizationType, GGUFWriter

    arch = architecture(source)
    positions = positions_of(source, arch)
    names = _names(source, arch)
    writer = GGUFWriter(out, arch)
    _sizes(writer, source, stored)
    for key, value in positions.keys.items():
        _add(writer, f"{arch}.{key}", value)
    said = kept_keys(GGUF(source.path)) if source.gguf else {**vocabulary(source), **about_of(source).to_gguf()}
    for key, value in {"general.name": source.resolved.name, **said}.items():
        _add(writer, key, value)
    for name, values in positions.tensors.items():
        writer.add_tensor_info(name, values.shape, values.dtype, values.nbytes)
    for name in source.names:
        shape, dtype = source.weights.shape(name), stored[name]
        size = math.prod(shape) * dtype.itemsize
        writer.add_tensor_info(
            names[name], shape, np.dtype(np.float16), size, GGMLQuantizationType(TENSOR_TYPES[dtype])
        )
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for values in positions.tensors.values():
            writer.write_tensor_data(values)
        _tensors(writer, source, arch, stored)
    finally:
        writer.close()


def _tensors(writer: GGUFWriter, source: Checkpoint, arch: str, stored: Mapping[str, torch.dtype]) -> None:
    rotated, after = source.rotated(), TABLE[GGUF_TYPES[arch]].gguf_layout
    for name in source.names:
        tensor = source.weights.read(name)
        if (part := rotated.get(name)) is not None:
            turns = rotation(part.layer)
            tensor = relaid(tensor, turns.layout, after, heads=part.heads, rotary_width=turns.width)
        writer.write_tensor_data(_bytes(tensor, stored[name]))


def _bytes(tensor: Tensor, dtype: torch.dtype) -> np.ndarray:
    """NumPy has no bfloat16, so its bits go as integers."""
    tensor = tensor.detach().to(dtype).contiguous()
    return tensor.view(torch.uint16).numpy() if dtype == torch.bfloat16 else tensor.numpy()


def architecture(source: Checkpoint) -> str:
    """llama.cpp's name of a model's type."""
    if not source.row.written_as_gguf:
        known = ", ".join(name for name, row in TABLE.items() if row.written_as_gguf)
        raise BadInput(
            source.resolved.where, "model_type", f"{source.model_type} is not written as GGUF", f"these are: {known}"
        )
    return gguf_name(source.model_type)


def _names(source: Checkpoint, arch: str) -> dict[str, str]:
    """transformers' name of each tensor to llama.cpp's."""
    from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, get_tensor_name_map

    number = next(value for value in MODEL_ARCH if MODEL_ARCH_NAMES[value] == arch)
    table = get_tensor_name_map(number, len(source.resolved.plan.layers))
    found = {}
    for name in source.names:
        known = table.get_name(name, try_suffixes=(".weight", ".bias"))
        if known is None:
            raise BadInput(source.path, name, f"llama.cpp's {arch} has no such tensor", "export to hf instead")
        found[name] = known
    return found


def _sizes(writer: GGUFWriter, source: Checkpoint, stored: Mapping[str, torch.dtype]) -> None:
    config = source.model.config
    matrices = [dtype for name, dtype in stored.items() if len(source.weights.shape(name)) > 1]
    writer.add_type("model")
    writer.add_file_type(FILE_TYPES[max(dict.fromkeys(matrices), key=matrices.count)])
    writer.add_vocab_size(config.vocabulary)
    writer.add_context_length(_length(source))
    writer.add_embedding_length(config.width)
    writer.add_block_count(len(source.resolved.plan.layers))
    writer.add_feed_forward_length(config.hidden)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.key_heads)
    writer.add_key_length(config.head_width)
    writer.add_value_length(config.value_width)
    writer.add_layer_norm_rms_eps(config.norm.eps)


def _length(source: Checkpoint) -> int:
    """The one length of a GGUF file: the extended one, or the trained."""
    plan, stated = source.resolved.plan, source.resolved.config.get("max_position_embeddings")
    if source.gguf:
        stated = source.resolved.config[f"{source.resolved.config['general.architecture']}.context_length"]
    found = plan.extended or stated or plan.longest
    if found is None:
        raise BadInput(source.resolved.where, "max_position_embeddings", "is missing", "GGUF must state a length")
    return found


def positions_of(source: Checkpoint, arch: str) -> PositionsInGGUF:
    """The plan in llama.cpp's keys, or why it has none for it."""
    plan, where = source.resolved.plan, source.resolved.where

    def refuse(field: str, problem: str) -> BadInput:
        return BadInput(where, field, f"{problem}; llama.cpp's {arch} cannot express it", "export to hf instead")

    row = TABLE[GGUF_TYPES[arch]]
    assert row.gguf is not None
    turning = [layer for layer in plan.groups() if layer.kind == "rope"]
    if windows := {layer.window for layer in plan.layers if layer.window is not None}:
        raise refuse("sliding_window", f"layers see {' or '.join(map(str, sorted(windows)))} tokens")
    if [layer.kind for layer in plan.layers] != _kinds(row, len(plan.layers)):
        raise refuse("layers", f"layers of kinds {', '.join(dict.fromkeys(layer.kind for layer in plan.layers))}")
    if len(turning) != 1:
        raise refuse("rope_parameters", f"layers rotate in {len(turning)} ways")
    (layer,) = turning
    if layer.logit_gain != 1:
        raise refuse("mscale_all_dim", f"scores have a gain of {layer.logit_gain:g}")
    base, width, _ = rotation(layer)
    keys = {"rope.dimension_count": width, "rope.freq_base": base}
    match layer.scaling:
        case None:
            return PositionsInGGUF(keys, {})
        case Linear(factor=factor):
            return PositionsInGGUF({**keys, "rope.scaling.type": "linear", "rope.scaling.factor": factor}, {})
        case YaRN() as scaling:
            return PositionsInGGUF({**keys, **_yarn(scaling, refuse)}, {})
        case Llama3() | LongRoPE() if not row.gguf.divisors:
            raise refuse("rope_type", f"{layer.scaling.kind} is divisors in the file, which only its llama reads")
        case Llama3() as scaling:
            divisors = {"rope_freqs.weight": _divisors(scaling, base, width)}
            return PositionsInGGUF({**keys, "rope.scaling.original_context_length": scaling.trained}, divisors)
        case LongRoPE() as scaling if scaling.length is not None:
            return PositionsInGGUF(keys, {"rope_freqs.weight": np.array(scaling.short, np.float32)})
        case LongRoPE() as scaling:
            said = {"type": "longrope", "original_context_length": scaling.trained, "attn_factor": scaling.rotary_gain}
            lists = {f"rope_factors_{name}.weight": np.array(getattr(scaling, name), np.float32) for name in _LISTS}
            return PositionsInGGUF({**keys, **{f"rope.scaling.{key}": value for key, value in said.items()}}, lists)
        case scaling:
            raise refuse("rope_type", f"{scaling.kind} scaling")


_LISTS = ("long", "short")


def _kinds(row: Architecture, count: int) -> list[str]:
    still = row.rotates == "listed"
    return ["none" if still and (number + 1) % row.every == 0 else "rope" for number in range(count)]


def _yarn(scaling: YaRN, refuse: Any) -> dict[str, Any]:
    if scaling.ramp != "code" or not scaling.truncate:
        raise refuse("truncate", "YaRN's ramp does not end at whole indices")
    if (scaling.beta_fast, scaling.beta_slow) != (32, 1):
        raise refuse("beta_fast", f"YaRN's ramp is from {scaling.beta_fast:g} to {scaling.beta_slow:g}, not 32 to 1")
    keys = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": scaling.factor,
        "rope.scaling.original_context_length": scaling.trained,
    }
    usual = YaRN(factor=scaling.factor, trained=scaling.trained).rotary_gain
    if scaling.rotary_gain != usual:
        keys["rope.scaling.attn_factor"] = scaling.rotary_gain / usual
    return keys


def _divisors(scaling: Llama3, base: float, width: int) -> np.ndarray:
    """Plain frequencies over the scaled ones, rounded once."""
    pairs = zip(ladder(base, width), scaling.frequencies(base, width), strict=True)
    return np.array([float(plain / scaled) for plain, scaled in pairs], np.float32)


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    """A key in the type llama.cpp looks for: text, truth, and arrays; numbers of 32 bits where they hold the value."""
    from gguf import GGUFValueType as Type

    def kind(one: Any) -> Type:
        if isinstance(one, int) and not isinstance(one, bool):
            wide = not -(1 << 31) <= one < 1 << 32
            return (Type.UINT64 if wide else Type.UINT32) if one >= 0 else Type.INT64 if wide else Type.INT32
        if isinstance(one, float):
            return Type.FLOAT32 if float(np.float32(one)) == one or key.startswith(writer.arch) else Type.FLOAT64
        return {str: Type.STRING, bool: Type.BOOL}[type(one)]

    if not isinstance(value, list):
        writer.add_key_value(key, value, kind(value))
        return
    if not value or isinstance(value[0], list):
        return
    inner = {int: Type.INT32, float: Type.FLOAT32}.get(type(value[0])) or kind(value[0])
    if key.endswith("precompiled_charsmap"):
        inner = Type.UINT8
    writer.add_key_value(key, value, Type.ARRAY, inner)
