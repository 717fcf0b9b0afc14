"""Files are told apart by content; programs in any disguise are refused."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import shlex
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.files.sniff import kind_of

SUFFIXES = ("model.bin", "model.safetensors", "model.gguf", "config.json")


class Evil:
    """Writes a file when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch canary",)


def saved(save: object, *arguments: object) -> bytes:
    buffer = io.BytesIO()
    save(*(buffer if argument is ... else argument for argument in arguments))  # type: ignore[operator]
    return buffer.getvalue()


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Evil()))
    return buffer.getvalue()


def tarred() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("pickle"), io.BytesIO())
    return buffer.getvalue()


PICKLES = {
    **{f"protocol {n}": pickle.dumps(Evil(), protocol=n) for n in range(6)},
    **{f"dictionary, protocol {n}": pickle.dumps({"w": [1, 2.5]}, protocol=n) for n in range(6)},
    "list, protocol 0": pickle.dumps([1, 2], protocol=0),
    "empty list, protocol 1": pickle.dumps([], protocol=1),
    "torch.save": saved(torch.save, {"w": torch.ones(2)}, ...),
    "torch.save, old": saved(
        lambda w, f: torch.save(w, f, _use_new_zipfile_serialization=False), {"w": torch.ones(2)}, ...
    ),
    "zip": zipped(),
    "tar": tarred(),
    "npy": saved(np.save, ..., np.ones(2)),
    "npz": saved(np.savez, ..., np.ones(2)),
}
OTHERS = {
    "gzip": gzip.compress(b"{}"),
    "7z": b"7z\xbc\xaf\x27\x1c\x00\x04",
    "hdf5": b"\x89HDF\r\n\x1a\n",
    "ELF": b"\x7fELF\x02\x01\x01",
    "script": b"#!/bin/sh\ntouch canary\n",
    "GGML": b"lmgg\x01\x00\x00\x00",
    "Git LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "web page": b"<!DOCTYPE html><html>",
    "empty": b"",
    "noise": bytes(range(100, 228)),
}


@pytest.mark.parametrize("name", SUFFIXES)
@pytest.mark.parametrize("what", PICKLES)
def test_a_pickle_is_refused_under_any_name(tmp_path: Path, what: str, name: str) -> None:
    (tmp_path / name).write_bytes(PICKLES[what])
    with pytest.raises(BadInput, match=r"(program|pickle).*convert it where you trust it:  python -c "):
        kind_of(tmp_path / name)


def test_the_way_out_that_is_told_works(tmp_path: Path) -> None:
    tied = torch.ones(2, 3)
    torch.save({"a": tied, "b": tied, "c": torch.eye(3)[:, :2]}, tmp_path / "pytorch_model.bin")
    with pytest.raises(BadInput, match="is a zip") as caught:
        kind_of(tmp_path / "pytorch_model.bin")
    line = str(caught.value).partition("convert it where you trust it:")[2].partition("  then pass")[0]
    command = shlex.split(line.replace("FILE", "pytorch_model.bin"))
    subprocess.run([sys.executable, *command[1:]], cwd=tmp_path, check=True)
    assert sorted(load_file(tmp_path / "model.safetensors")) == ["a", "b", "c"]


@pytest.mark.parametrize("what", OTHERS)
def test_another_file_is_refused(tmp_path: Path, what: str) -> None:
    (tmp_path / "model.gguf").write_bytes(OTHERS[what])
    with pytest.raises(BadInput, match=r"model\.gguf: content: is ") as caught:
        kind_of(tmp_path / "model.gguf")
    assert caught.value.remedy


@pytest.mark.parametrize("name", SUFFIXES)
def test_what_can_be_read_is_known_under_any_name(tmp_path: Path, name: str) -> None:
    save_file({"w": torch.ones(2)}, tmp_path / name)
    assert kind_of(tmp_path / name) == "safetensors"
    (tmp_path / name).write_bytes(b"GGUF\x03\x00\x00\x00")
    assert kind_of(tmp_path / name) == "gguf"
    (tmp_path / name).write_bytes(b' \n{"a": 1}')
    assert kind_of(tmp_path / name) == "json"
    assert kind_of(tmp_path) == "directory"


def test_a_header_whose_length_begins_as_a_pickle_does_is_safetensors(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes((0x0280).to_bytes(8, "little") + b"{".ljust(0x280) + b"")
    assert kind_of(file) == "safetensors"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.gguf")
    with pytest.raises(BadInput, match="is a device, pipe or socket"):
        kind_of(tmp_path / "model.gguf")
    for path in (tmp_path / "none", "a\0b"):
        with pytest.raises(BadInput, match="does not exist"):
            kind_of(path)
