"""A T5 directory from two quantised ONNX graphs: the weights as floats, under the names transformers gives them.

    weight = (quantised - zero point) * scale

Only what that needs is read of the ONNX format (protobuf wire format: a varint of field number and type, then the
value). Which weight is which, the names of the nodes that use them say: /m/decoder/block.0/layer.1/EncDecAttention/k.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

CONFIG = {
    "architectures": ["T5ForConditionalGeneration"],
    "model_type": "t5",
    "d_ff": 1024,
    "d_kv": 64,
    "d_model": 512,
    "decoder_start_token_id": 0,
    "dropout_rate": 0.1,
    "eos_token_id": 1,
    "feed_forward_proj": "gated-gelu",
    "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-06,
    "num_decoder_layers": 8,
    "num_heads": 6,
    "num_layers": 8,
    "pad_token_id": 0,
    "relative_attention_max_distance": 128,
    "relative_attention_num_buckets": 32,
    "tie_word_embeddings": False,
    "vocab_size": 32128,
}
"""Of flan-t5-small, as published; the package has no config."""

TYPES = {1: np.float32, 2: np.uint8, 3: np.int8}
GRAPH, NODE, INITIALIZER = 7, 1, 5
DIMS, TYPE, FLOATS, INTEGERS, NAME, RAW = 1, 2, 4, 5, 8, 9  # of a tensor
INPUT, NODE_NAME, OPERATOR = 1, 3, 4  # of a node


def write_directory(encoder: Path, decoder: Path, out: Path) -> None:
    """config.json and model.safetensors."""
    weights = _weights(encoder, r"^enc\b", "encoder") | _weights(decoder, r"^m\b", "")
    shared = weights.pop("shared.weight")
    if not np.array_equal(shared, weights.pop("encoder.embed_tokens.weight")):
        raise ValueError("the encoder's and the decoder's token tables differ")
    write_safetensors(out / "model.safetensors", {"shared.weight": shared, **weights})
    (out / "config.json").write_text(json.dumps(CONFIG, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Float32 only, names in order: the same bytes wherever it runs."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in sorted(tensors):
        begin, end = end, end + tensors[name].nbytes
        header[name] = {"dtype": "F32", "shape": list(tensors[name].shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in sorted(tensors):
            file.write(np.ascontiguousarray(tensors[name], dtype="<f4").tobytes())


def _weights(path: Path, prefix: str, instead: str) -> dict[str, np.ndarray[Any, Any]]:
    """Each weight of a graph by its name in transformers; (out, in) as torch has it."""
    arrays, nodes = _read(path)
    found = {}

    def add(name: str, value: np.ndarray[Any, Any]) -> None:
        found[re.sub(prefix, instead, name).lstrip(".")] = value

    for name, value in arrays.items():
        if name.endswith(".weight"):
            add(name, value)
        elif name.endswith(".weight_quantized"):
            add(name.removesuffix("_quantized"), _floats(arrays, name.removesuffix("_quantized")))
    for name, operator, inputs in nodes:
        if operator == "MatMulInteger":
            words = name.removeprefix("/").removesuffix("/MatMul_quant").replace("/", ".")
            add(f"{words}.weight", _floats(arrays, inputs[1].removesuffix("_quantized")).T)
    return found


def _floats(arrays: Mapping[str, np.ndarray[Any, Any]], name: str) -> np.ndarray[Any, Any]:
    steps = arrays[f"{name}_quantized"].astype(np.int32) - arrays[f"{name}_zero_point"].astype(np.int32)
    return steps.astype(np.float32) * arrays[f"{name}_scale"]


def _read(path: Path) -> tuple[dict[str, np.ndarray[Any, Any]], list[tuple[str, str, list[str]]]]:
    (graph,) = (value for field, value in _fields(memoryview(path.read_bytes())) if field == GRAPH)
    arrays, nodes = {}, []
    for field, value in _fields(graph):
        if field == INITIALIZER:
            name, array = _tensor(value)
            if array is not None:
                arrays[name] = array
        elif field == NODE:
            parts = [
                (part, bytes(word).decode()) for part, word in _fields(value) if part in (INPUT, NODE_NAME, OPERATOR)
            ]
            words = dict(parts)
            nodes.append((words.get(NODE_NAME, ""), words[OPERATOR], [word for part, word in parts if part == INPUT]))
    return arrays, nodes


def _tensor(data: memoryview) -> tuple[str, np.ndarray[Any, Any] | None]:
    """Its name and values, or None where it is of a type that no weight has."""
    parts = list(_fields(data))
    last = dict(parts)
    shape = [size for field, size in parts if field == DIMS]
    name, kind = bytes(last[NAME]).decode(), TYPES.get(last[TYPE])
    if kind is None:
        return name, None
    if RAW in last:
        values = np.frombuffer(last[RAW], kind)
    elif kind is np.float32:
        values = np.frombuffer(last[FLOATS], kind)
    else:
        values = np.array([_varint(last[INTEGERS], 0)[0]]).astype(kind)
    return name, values[: math.prod(shape)].reshape(shape)


def _fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        size, at = _varint(data, at) if tag & 7 == 2 else ({1: 8, 5: 4}[tag & 7], at)
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at
