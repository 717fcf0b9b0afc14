"""DCP's file reader without its trust: what a checkpoint holds are tensors, and nothing in it can call anything.

DCP keeps its table of contents as a pickle, and a pickle is a program. This one runs with the few names such a table is
made of; any other is refused before it is looked up. Items that are not tensors, which DCP would unpickle without
asking, are refused too, and so are files that the manifest does not name.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from ropewalk.distributed.torch_private import memory_formats
from ropewalk.train.checkpoint.manifest import Broken

METADATA = ".metadata"
_TABLE = "torch.distributed.checkpoint.metadata"
ALLOWED = frozenset(
    {
        (_TABLE, "Metadata"),
        (_TABLE, "MetadataIndex"),
        (_TABLE, "TensorStorageMetadata"),
        (_TABLE, "ChunkStorageMetadata"),
        (_TABLE, "TensorProperties"),
        (_TABLE, "StorageMeta"),
        (_TABLE, "_MEM_FORMAT_ENCODING"),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        ("torch.serialization", "_get_layout"),
        ("torch", "Size"),
    }
)


class _Contents(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return _member  # how some releases of Python 3.11 write a member of an enumeration
        if (module, name) in ALLOWED:
            return super().find_class(module, name)
        if module == "torch" and isinstance(found := vars(torch).get(name), torch.dtype):
            return found
        raise pickle.UnpicklingError(f"asks for {module}.{name}, which is no part of a table of tensors")


def _member(kind: Any, name: Any) -> Any:
    if (formats := memory_formats()) is None or kind is not formats or name not in formats.__members__:
        raise pickle.UnpicklingError("asks for builtins.getattr, which is no part of a table of tensors")
    return formats[name]


class RestrictedReader(FileSystemReader):
    """Reads a folder whose manifest was verified; `files` are the names in it."""

    def __init__(self, folder: Path, files: Collection[str]) -> None:
        super().__init__(folder)
        self.folder, self.files = folder, frozenset(files)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self.contents

    @cached_property
    def contents(self) -> Metadata:
        """The table of all tensors, read once."""
        file = self.folder / METADATA
        if METADATA not in self.files:
            raise Broken(file, "is not in the manifest")
        try:
            found = _Contents(io.BytesIO(file.read_bytes())).load()
            tensors = {
                name: isinstance(each, TensorStorageMetadata) for name, each in found.state_dict_metadata.items()
            }
            places = [info.relative_path for info in found.storage_data.values()]
            transforms = [info.transform_descriptors for info in found.storage_data.values()]
        except Exception as error:  # a damaged pickle fails in any way
            raise Broken(file, f"no table of tensors: {error}") from None
        for name, is_tensor in tensors.items():
            if not is_tensor:
                raise Broken(file, f"{name!r} is not a tensor")
        if any(transforms):
            raise Broken(file, "names extensions to read tensors with; there are none here")
        for place in places:
            if place not in self.files:
                raise Broken(file, f"a tensor is said to be in {place!r}, which the manifest does not name")
        return found
