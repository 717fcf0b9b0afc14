"""A checkpoint's tensors, one at a time, from safetensors (single or in shards) or GGUF.

What is opened has been checked whole: headers, index, and that each tensor is there exactly once. Values are checked
when they are read: NaN and infinity are refused. At no time is more than one tensor in memory on our account.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ropewalk.checkpoints.errors import BadInput, plain
from ropewalk.checkpoints.files import sniff
from ropewalk.checkpoints.files.gguf import GGUF
from ropewalk.checkpoints.files.safetensors import Entry, read_header
from ropewalk.checkpoints.files.strict_json import MOST_INDEX_BYTES, read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD = re.compile(r"[A-Za-z0-9._-]+\.safetensors", re.ASCII)
PICKLES = (
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "*.bin",
    "*.pt",
    "*.pth",
    "*.ckpt",
    "*.pkl",
    ".metadata",
)

IN_SAFETENSORS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""safetensors' names of what tensors are stored in."""


class Weights(Protocol):
    """What a loader needs to know of any file."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def dtype(self, name: str) -> torch.dtype:
        """What `read` gives it in."""
        ...

    def read(self, name: str) -> Tensor:
        """One tensor, finite, in the file's dtype (float32 from GGUF), in torch's order of axes."""
        ...


def open_weights(path: str | os.PathLike[str]) -> Weights:
    """The weights of a model's directory, a .safetensors or a .gguf."""
    place = Path(path)
    kind = sniff.kind_of(place)
    if kind == "directory":
        return _open_directory(place)
    if kind == "safetensors":
        return SafetensorsWeights({place: read_header(place)})
    if kind == "gguf":
        return GGUFWeights(GGUF(place))
    remedy = f"pass the directory it is in, {place.parent}"
    raise BadInput(path, "content", "is JSON, which holds no weights", remedy)


class SafetensorsWeights:
    """Tensors of one or more safetensors files, memory-mapped by the official reader as long as they are used."""

    def __init__(self, files: dict[Path, dict[str, Entry]]) -> None:
        self._place = {name: (path, entry) for path, header in files.items() for name, entry in header.items()}
        self.names = tuple(self._place)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._place[name][1].shape

    def dtype(self, name: str) -> torch.dtype:
        return IN_SAFETENSORS[self._place[name][1].dtype]

    def read(self, name: str) -> Tensor:
        path, entry = self._place[name]
        try:
            # Opened for each tensor: a file that stays mapped keeps every page that was read, the model a second time.
            with safe_open(path, framework="pt") as file:
                tensor = file.get_tensor(name)
        except (SafetensorError, OSError, RuntimeError, ValueError) as error:
            raise BadInput(path, name, f"cannot be read ({plain(error)})", "fetch the file again") from None
        if tuple(tensor.shape) != entry.shape:
            raise BadInput(path, name, "changed while it was read", "wait until the file is written")
        return _finite(tensor, path, name)


class GGUFWeights:
    """Tensors of a GGUF file, dequantised to float32."""

    def __init__(self, file: GGUF) -> None:
        if (parts := file.small.get("split.count", 1)) not in (0, 1):
            remedy = f"join them: llama-gguf-split --merge {file.path.name} OUT.gguf"
            raise BadInput(file.path, "split.count", f"this is one of {parts} parts of a model", remedy)
        self.file = file
        self.names = tuple(file.tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.file.tensors[name].shape

    def dtype(self, name: str) -> torch.dtype:
        return torch.float32

    def read(self, name: str) -> Tensor:
        return _finite(torch.from_numpy(self.file.floats(name)), self.file.path, name)


def common_dtype(weights: Weights, names: Iterable[str]) -> torch.dtype:
    """The narrowest dtype that holds each of these as it is: some files keep norms or the output map wider than the
    rest. Of float16 and bfloat16, float32."""
    floats = {dtype for name in names if (dtype := weights.dtype(name)).is_floating_point}
    return reduce(torch.promote_types, floats) if floats else torch.float32


def narrowed(tensor: Tensor, to: torch.dtype, where: str | os.PathLike[str], name: str) -> Tensor:
    """The tensor in another dtype; an error where that has no room for its values."""
    cast = tensor.to(to)
    if torch.promote_types(tensor.dtype, to) != to and not bool(torch.isfinite(torch.stack(torch.aminmax(cast))).all()):
        said, most = str(to).removeprefix("torch."), torch.finfo(to).max
        problem = f"holds {tensor.abs().max().item():g}, and {said} ends at {most:g}"
        raise BadInput(where, name, problem, "give a wider dtype, or none")
    return cast


def _finite(tensor: Tensor, path: Path, name: str) -> Tensor:
    """The tensor itself, if every value is finite; no copy is made to find out."""
    if tensor.is_floating_point():
        least, most = torch.aminmax(tensor.detach())
        if not bool(torch.isfinite(least) & torch.isfinite(most)):
            problem = f"holds values that are not finite (between {least.item()} and {most.item()})"
            raise BadInput(path, name, problem, "the weights are damaged, or training diverged; use another checkpoint")
    return tensor


def _open_directory(directory: Path) -> Weights:
    index, single = directory / INDEX, directory / SINGLE
    if _there(index):
        return SafetensorsWeights(_shards(directory, index, single))
    if _there(single):
        refuse_outside(single, directory, directory, SINGLE)
        if sniff.kind_of(single) != "safetensors":
            raise BadInput(single, "content", "is not safetensors", "fetch the file again")
        return SafetensorsWeights({single: read_header(single)})
    for pattern in PICKLES:
        for file in sorted(directory.glob(pattern)):
            if file.suffix != ".json":
                sniff.kind_of(file)  # says what it is, if that is something else
            raise BadInput(file, "content", sniff.PICKLE, sniff.CONVERT)
    files = sorted(file.name for ending in ("*.safetensors", "*.gguf") for file in directory.glob(ending))
    if files:
        raise BadInput(directory, SINGLE, "is missing", f"pass the file that is meant: {plain(', '.join(files))}")
    raise BadInput(
        directory, SINGLE, "is missing, and there is no index of shards and no .gguf file", "fetch the weights too"
    )


def _there(path: Path) -> bool:
    """Also a link that leads nowhere: it is refused, not skipped."""
    return path.exists() or path.is_symlink()


def _shards(directory: Path, index: Path, single: Path) -> dict[Path, dict[str, Entry]]:
    """The headers of all shards, which together hold what the index says, and nothing twice."""
    refuse_outside(index, directory, directory, INDEX)
    place = read_json(index, MOST_INDEX_BYTES).get("weight_map")
    if not isinstance(place, dict) or not place:
        raise BadInput(index, "weight_map", "is not an object of tensor names and their files", "fetch the index again")
    for name, shard in place.items():
        if not isinstance(shard, str) or not SHARD.fullmatch(shard):
            problem = f"is said to be in {plain(repr(shard))}, which is not a plain .safetensors file name"
            raise BadInput(index, name, problem, "an index may only name files beside it")
    shards = sorted(set(place.values()))
    if len({shard.casefold() for shard in shards}) != len(shards):
        raise BadInput(index, "weight_map", "two shards differ only in upper and lower case", "rename one")
    if _there(single) and SINGLE not in shards:
        remedy = "remove the one that is stale, or pass the file that is meant"
        raise BadInput(single, "path", f"is beside {INDEX}, which does not name it", remedy)
    found: dict[Path, dict[str, Entry]] = {}
    owner: dict[str, str] = {}
    for shard in shards:
        path = directory / shard
        refuse_outside(path, directory, index, shard)
        if sniff.kind_of(path) != "safetensors":
            raise BadInput(path, "content", "is not safetensors", "fetch the shard again")
        found[path] = read_header(path)
        for name in found[path]:
            if name in owner:
                raise BadInput(path, name, f"is in {owner[name]} too", "remove one of the shards, or fetch them again")
            owner[name] = shard
            if name not in place:
                raise BadInput(path, name, f"is not in {INDEX}", "fetch the index and its shards again")
    for name, shard in place.items():
        if owner.get(name) != shard:
            raise BadInput(directory / shard, name, f"is not in this shard, as {INDEX} says", "fetch the shard again")
    # metadata.total_size is not compared: published indexes often have it wrong, and nothing is sized by it here.
    return found


def homes(directory: Path) -> list[Path]:
    """Where a directory's own files are: in it, or in the blobs of the hub's cache that it is a view of."""
    home = directory.resolve(strict=True)
    return [home, home.parents[1] / "blobs"] if home.parent.name == "snapshots" else [home]


def refuse_outside(path: Path, directory: Path, told_by: Path, field: str) -> None:
    """A file of the directory must be a regular one in one of its homes."""
    try:
        real, places = path.resolve(strict=True), homes(directory)
    except (OSError, RuntimeError):
        raise BadInput(told_by, field, "does not exist", "fetch the missing file, beside the others") from None
    if real.parent not in places or not real.is_file():
        raise BadInput(told_by, field, "is not a regular file inside the directory", "copy the file itself there")
