"""A table of contents that tries to be a program."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING, BytesStorageMetadata, Metadata

from ropewalk.train.checkpoint import manifest
from ropewalk.train.checkpoint.manifest import Broken, Manifest
from ropewalk.train.checkpoint.restricted_reader import METADATA, RestrictedReader, _Contents
from ropewalk.train.checkpoint.store import Checkpoints
from tests.distributed.steps import ALONE
from tests.train import tiny_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model, optimizer = tiny_run.build()
    Checkpoints(tmp_path, ALONE).save(1, model, [optimizer], {})
    return tmp_path / "step-00000001"


def reader(folder: Path) -> RestrictedReader:
    return RestrictedReader(folder, manifest.verify(folder).files)


def replace(folder: Path, content: Any) -> RestrictedReader:
    """As somebody would who can also write the manifest."""
    (folder / METADATA).write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))
    held = manifest.read(folder)
    files = held.files | {METADATA: manifest.digest(folder / METADATA)}
    (folder / manifest.NAME).write_bytes(manifest.spelled(Manifest(held.step, held.world, files)))
    return reader(folder)


def test_what_was_saved_is_read(folder: Path) -> None:
    names = reader(folder).read_metadata().state_dict_metadata
    assert "model.tokens.weight" in names


class Call:
    def __init__(self, *what: Any) -> None:
        self.what = what

    def __reduce__(self) -> Any:
        return self.what


@pytest.mark.parametrize("member", list(_MEM_FORMAT_ENCODING))
def test_a_member_of_an_enumeration_is_read_as_any_python_writes_it(member: _MEM_FORMAT_ENCODING) -> None:
    written = pickle.dumps(Call(getattr, (_MEM_FORMAT_ENCODING, member.name)))
    assert _Contents(io.BytesIO(written)).load() is member
    assert _Contents(io.BytesIO(pickle.dumps(member))).load() is member


@pytest.mark.parametrize(
    "attack",
    [
        Call(os.system, ("touch {}",)),
        Call(eval, ("open({!r}, 'w')",)),
        Call(getattr, ([], "append")),
        Call(getattr, (Metadata, "__init__")),
        Call(getattr, (_MEM_FORMAT_ENCODING, "__class__")),
        Call(__import__, ("os",)),
        {"a": Call(exec, ("1",))},
    ],
)
def test_nothing_is_called(folder: Path, tmp_path: Path, attack: Any) -> None:
    if isinstance(attack, Call) and isinstance(attack.what[1][0], str):
        attack.what = (attack.what[0], (attack.what[1][0].format(str(tmp_path / "was-here")),))
    with pytest.raises(Broken, match="no part of a table of tensors"):
        replace(folder, attack).read_metadata()
    assert not (tmp_path / "was-here").exists()


@pytest.mark.parametrize("content", [b"", b"\x80", b"cos\nsystem\n.", b"ctorch\nload\n.", b"N.", b"]."])
def test_what_is_no_table(folder: Path, content: bytes) -> None:
    with pytest.raises(Broken, match="no table of tensors"):
        replace(folder, content).read_metadata()


def test_bytes_are_no_tensor(folder: Path) -> None:
    found = reader(folder).read_metadata()
    found.state_dict_metadata["extra"] = BytesStorageMetadata()
    with pytest.raises(Broken, match="BytesStorageMetadata"):
        replace(folder, found).read_metadata()


@pytest.mark.parametrize("place", ["../../secret", "/etc/passwd", "elsewhere.distcp"])
def test_a_file_elsewhere(folder: Path, place: str) -> None:
    found = reader(folder).read_metadata()
    next(iter(found.storage_data.values())).relative_path = place
    with pytest.raises(Broken, match="does not name"):
        replace(folder, found).read_metadata()


def test_extensions_are_refused(folder: Path) -> None:
    found = reader(folder).read_metadata()
    next(iter(found.storage_data.values())).transform_descriptors = ["stream.zstd"]
    with pytest.raises(Broken, match="extensions"):
        replace(folder, found).read_metadata()
