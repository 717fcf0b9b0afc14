"""A model directory that transformers loads by itself: config.json, safetensors in shards, the tokenizer.

What came from such a directory keeps its config, its names and its tokenizer files. What came from GGUF becomes the
architecture it was converted from: Llama and its likes as `LlamaForCausalLM`. Llama-shaped configs state positions
twice, in the keys of transformers 5 (`rope_parameters`) and of 4 (`rope_theta`, `rope_scaling`), with the same numbers.
Tensors go from file to file one at a time: the header is written first, from shapes alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import torch
from torch import Tensor

from ropewalk.checkpoints.export import about_hf
from ropewalk.checkpoints.export.about import from_gguf
from ropewalk.checkpoints.export.config import config_of
from ropewalk.checkpoints.export.permute import relaid
from ropewalk.checkpoints.files.gguf import GGUF
from ropewalk.checkpoints.files.weights import INDEX, SINGLE
from ropewalk.checkpoints.load.stream import NAMES, Checkpoint, Rounding, rotation

if TYPE_CHECKING:
    from ropewalk.checkpoints.tokens.tokenizer import Tokenizer

SHARD_BYTES = 5 * 10**9
PIECE = 1 << 26
"""Bytes given to the file at a time."""
LARGEST_COPY = 256 << 20
"""Of a tokenizer's file."""


def write_hf(source: Checkpoint, directory: Path, dtypes: Mapping[str, torch.dtype], limit: int = SHARD_BYTES) -> None:
    """Into a directory that is empty. dtypes: what tensors are stored as, each of the model's among them; others stay
    as they are."""
    config = config_of(source, dtypes)
    _write_text(directory / "config.json", config)
    write_beside(source, directory, config)
    read = reader(source)
    dtypes = {**source.rest(), **dtypes}
    shards = _shards(source, dtypes, limit)
    place, total = {}, 0
    for number, names in enumerate(shards, start=1):
        file = SINGLE if len(shards) == 1 else f"model-{number:05}-of-{len(shards):05}.safetensors"
        total += write_safetensors(directory / file, {n: (dtypes[n], source.weights.shape(n)) for n in names}, read)
        place |= dict.fromkeys(names, file)
    if len(shards) > 1:
        _write_text(directory / INDEX, {"metadata": {"total_size": total}, "weight_map": dict(sorted(place.items()))})


def reader(source: Checkpoint) -> Callable[[str], Tensor]:
    change = as_half(source)
    return lambda name: change(name, source.weights.read(name))


def as_half(source: Checkpoint) -> Rounding:
    """What gives each tensor of the checkpoint, by its name, transformers' layout of features."""
    rotated = source.rotated()

    def change(name: str, tensor: Tensor) -> Tensor:
        if (part := rotated.get(name)) is None:
            return tensor
        turns = rotation(part.layer)
        return relaid(tensor, turns.layout, "half", heads=part.heads, rotary_width=turns.width)

    return change


def _shards(source: Checkpoint, dtypes: Mapping[str, torch.dtype], limit: int) -> list[list[str]]:
    """The names of each file, in the model's order, as many as fit."""
    found: list[list[str]] = [[]]
    room = limit
    for name in dtypes:
        size = math.prod(source.weights.shape(name)) * dtypes[name].itemsize
        if size > room and found[-1]:
            found.append([])
            room = limit
        found[-1].append(name)
        room -= size
    return found


def write_safetensors(
    path: Path, entries: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], read: Callable[[str], Tensor]
) -> int:
    """The header from shapes, then one tensor after the other; how many bytes of tensors."""
    # The widest first, as the official writer does, so that each begins at a multiple of its element.
    order = sorted(entries, key=lambda name: -entries[name][0].itemsize)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name in order:
        dtype, shape = entries[name]
        size = math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": NAMES[dtype], "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            dtype, shape = entries[name]
            tensor = read(name)
            if tuple(tensor.shape) != shape:
                raise RuntimeError(f"{name} has shape {tuple(tensor.shape)}, the header says {shape}")
            write_tensor(file, tensor, dtype)
            del tensor
    return at


def write_tensor(file: BinaryIO, tensor: Tensor, dtype: torch.dtype) -> None:
    """Little-endian, row after row, in pieces, so that a change of dtype makes no second copy."""
    for piece in _pieces(tensor.detach(), dtype):
        file.write(piece.to(dtype).contiguous().view(torch.uint8).numpy().data)


def _pieces(tensor: Tensor, dtype: torch.dtype) -> Iterator[Tensor]:
    flat = tensor.reshape(-1)
    yield from flat.split(max(1, PIECE // max(dtype.itemsize, tensor.element_size())))


def write_beside(source: Checkpoint, directory: Path, config: Mapping[str, Any]) -> None:
    """The tokenizer, and the other files beside the weights."""
    if not source.gguf:
        for name in about_hf.copied(source.path):
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_bytes(about_hf.read_copied(source.path, name, LARGEST_COPY))
        return
    from ropewalk.checkpoints.tokens import tokenizer

    file = GGUF(source.path)
    made, about = tokenizer.from_gguf(file), from_gguf(file)
    before, after = made.before, made.after
    _template(made, before, after)
    (directory / "tokenizer.json").write_text(made.inner.to_str(), encoding="utf-8")
    names = {
        f"{end}_token": made.token(number)
        for end, number in (("bos", made.bos), ("eos", made.eos))
        if number is not None
    }
    words = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **names,
        "add_bos_token": bool(before),
        "add_eos_token": bool(after),
        "clean_up_tokenization_spaces": False,
        "model_max_length": config["max_position_embeddings"],
        **about_hf.to_words(about, made),
    }
    _write_text(directory / "tokenizer_config.json", words)
    stops = list(made.stops)
    ends = {"bos_token_id": made.bos, "eos_token_id": stops[0] if len(stops) == 1 else stops}
    ends |= about_hf.to_generation(about)
    _write_text(
        directory / "generation_config.json", {key: value for key, value in ends.items() if value not in (None, [])}
    )
    if (card := about_hf.card(about)) is not None:
        (directory / about_hf.CARD).write_text(card, encoding="utf-8")


def _template(made: Tokenizer, before: list[int], after: list[int]) -> None:
    """The tokens around a text, in tokenizer.json itself."""
    if not before and not after:
        return
    from tokenizers.processors import TemplateProcessing

    names = {number: str(made.token(number)) for number in (*before, *after)}

    def parts(letter: str, kind: int) -> str:
        return " ".join(f"{word}:{kind}" for word in (*map(names.get, before), f"${letter}", *map(names.get, after)))

    made.inner.post_processor = TemplateProcessing(
        single=parts("A", 0),
        pair=f"{parts('A', 0)} {parts('B', 1)}",
        special_tokens=[(name, number) for number, name in names.items()],
    )


def _write_text(path: Path, data: Mapping[str, Any]) -> None:
    with path.open("xb") as file:
        file.write((json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode())
