"""One tensor at a time from checked files: each there once, inside the directory, finite."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.files import sniff
from ropewalk.checkpoints.files.safetensors import Entry, read_header
from ropewalk.checkpoints.files.weights import open_weights
from tests.checkpoints import file_bytes
from tests.checkpoints.file_bytes import entry

TENSORS = {
    "double": torch.randn(3, dtype=torch.float64),
    "single": torch.randn(2, 3),
    "half": torch.randn(4, 2).half(),
    "bfloat": torch.randn(5).bfloat16(),
    "whole": torch.arange(6).view(2, 3),
    "byte": torch.arange(7, dtype=torch.uint8),
    "mask": torch.tensor([True, False]),
    "scalar": torch.tensor(2.5),
}


def sharded(directory: Path, shards: dict[str, dict[str, Tensor]], **changes: Any) -> Path:
    """A directory of shards and their index; `changes` go into its weight_map, None takes a line out."""
    directory.mkdir(exist_ok=True, parents=True)
    for shard, tensors in shards.items():
        save_file(tensors, directory / shard)
    place = {name: shard for shard, tensors in shards.items() for name in tensors} | changes
    index = {"metadata": {"total_size": 1}, "weight_map": {n: s for n, s in place.items() if s is not None}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


A, B = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
TWO = {A: {"a": torch.ones(2, 3)}, B: {"b": torch.zeros(4), "c": torch.ones(1)}}


def test_reads_every_dtype_from_a_file_and_a_directory(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "model.safetensors", metadata={"format": "pt"})
    for path in (tmp_path, tmp_path / "model.safetensors"):
        weights = open_weights(path)
        assert sorted(weights.names) == sorted(TENSORS)
        for name, expected in TENSORS.items():
            assert weights.shape(name) == tuple(expected.shape)
            found = weights.read(name)
            assert found.dtype == expected.dtype
            assert torch.equal(found, expected)


def test_reads_data_that_is_not_aligned(tmp_path: Path) -> None:
    header = json.dumps({"w": entry([2], 1, 9), "b": entry([1], 0, 1, "U8")}).encode()
    for spaces in range(8):
        path = tmp_path / f"{spaces}.safetensors"
        path.write_bytes(file_bytes.safetensors(header + b" " * spaces, b"\7" + file_bytes.floats(1.5, -2)))
        assert read_header(path) == {"w": Entry("F32", (2,), 1, 9), "b": Entry("U8", (1,), 0, 1)}
        assert open_weights(path).read("w").tolist() == [1.5, -2]


def test_reads_gguf_as_float32(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(file_bytes.gguf(data=file_bytes.floats(1, 2, 3, 4)))
    weights = open_weights(path)
    assert (weights.names, weights.shape("w")) == (("w",), (4,))
    assert torch.equal(weights.read("w"), torch.tensor([1.0, 2, 3, 4]))
    path.write_bytes(file_bytes.gguf([("split.count", file_bytes.Raw(2, b"\3\0"))]))
    with pytest.raises(BadInput, match=r"split\.count: this is one of 3 parts"):
        open_weights(path)


def test_reads_shards_and_a_single_file_with_an_index(tmp_path: Path) -> None:
    weights = open_weights(sharded(tmp_path / "two", TWO))
    assert sorted(weights.names) == ["a", "b", "c"]
    assert all(torch.equal(weights.read(n), w) for tensors in TWO.values() for n, w in tensors.items())
    assert open_weights(sharded(tmp_path / "one", {"model.safetensors": TWO[A]})).names == ("a",)


def test_reads_the_hub_s_cache_whose_files_are_links_to_blobs(tmp_path: Path) -> None:
    cache = tmp_path / "models--org--name"
    snapshot = sharded(cache / "snapshots" / "0123", TWO)
    (cache / "blobs").mkdir()
    for n, file in enumerate(sorted(snapshot.iterdir())):
        file.rename(cache / "blobs" / str(n))
        file.symlink_to(Path("../../blobs") / str(n))
    assert sorted(open_weights(snapshot).names) == ["a", "b", "c"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_values_that_are_not_finite_are_refused(tmp_path: Path, value: float, dtype: torch.dtype) -> None:
    tensor = torch.zeros(3, 5, dtype=dtype)
    tensor[1, 2] = value
    save_file({"good": torch.ones(1), "w": tensor}, tmp_path / "model.safetensors")
    weights = open_weights(tmp_path)
    weights.read("good")
    with pytest.raises(BadInput, match=r"model\.safetensors: w: holds values that are not finite"):
        weights.read("w")
    path = tmp_path / "a.gguf"
    path.write_bytes(file_bytes.gguf(data=file_bytes.floats(0, value, 0, 0)))
    with pytest.raises(BadInput, match=r"a\.gguf: w: holds values"):
        open_weights(path).read("w")


ONE = entry([1], 0, 4)
HEADERS: dict[str, tuple[bytes, str, str]] = {
    "too short": (b"\2\0\0\0\0\0\0\0{", "size", "too few"),
    "length past the file": (
        file_bytes.safetensors({"w": ONE}, b"\0" * 4, length=1 << 20),
        "header length",
        "bytes left",
    ),
    "length past all": (file_bytes.safetensors({"w": ONE}, b"\0" * 4, length=(1 << 63) - 1), "header length", "is "),
    "not an object": (file_bytes.safetensors([1, 2, 3]), "header", "begin"),
    "name twice": (file_bytes.safetensors(b'{"w": {}, "w": {}}'), "w", "given twice"),
    "overlap": (file_bytes.safetensors({"v": ONE, "w": entry([1], 2, 6)}, b"\0" * 6), "w", "overlaps v"),
    "alias": (file_bytes.safetensors({"v": ONE, "w": ONE}, b"\0" * 4), "w", "overlaps v"),
    "hole": (file_bytes.safetensors({"v": ONE, "w": entry([1], 8, 12)}, b"\0" * 12), "w", "hole"),
    "tail": (file_bytes.safetensors({"w": ONE}, b"\0" * 5), "size", "4 bytes, the file has 5"),
    "cut off": (file_bytes.safetensors({"w": ONE}, b"\0" * 3), "w", "4 bytes, the file has 3"),
    "shape and bytes": (file_bytes.safetensors({"w": entry([2], 0, 4)}, b"\0" * 4), "w", "takes 8 bytes"),
    "product past 2**64": (file_bytes.safetensors({"w": entry([1 << 40, 1 << 40], 0, 4)}, b"\0" * 4), "w", "takes"),
    "no elements": (file_bytes.safetensors({"w": entry([0, 1 << 40], 0, 0)}), "w", "not positive"),
    "negative": (file_bytes.safetensors({"w": entry([-1, -1], 0, 4)}, b"\0" * 4), "w", "not positive"),
    "float axis": (file_bytes.safetensors({"w": entry([1.0], 0, 4)}, b"\0" * 4), "w", "whole numbers"),
    "truth as axis": (file_bytes.safetensors({"w": entry([True], 0, 4)}, b"\0" * 4), "w", "whole numbers"),
    "float 8": (file_bytes.safetensors({"w": entry([4], 0, 4, "F8_E4M3")}, b"\0" * 4), "w", "F8_E4M3 is not read"),
    "dtype 4": (file_bytes.safetensors({"w": entry([1], 0, 4, 4)}, b"\0" * 4), "w", "dtype 4"),
    "no dtype": (file_bytes.safetensors({"w": {"shape": [], "data_offsets": [0, 4]}}, b"\0" * 4), "w", "exactly"),
    "offsets back": (file_bytes.safetensors({"w": entry([1], 4, 0)}, b"\0" * 4), "w", "takes"),
    "metadata number": (file_bytes.safetensors({"__metadata__": {"a": 1}}), "__metadata__.a", "string"),
    "metadata list": (file_bytes.safetensors({"__metadata__": []}), "__metadata__", "object"),
    "empty name": (file_bytes.safetensors({"": ONE}, b"\0" * 4), '""', "1 to 1,024"),
}


@pytest.mark.parametrize("what", HEADERS)
def test_refuses_a_header(tmp_path: Path, what: str) -> None:
    data, field, says = HEADERS[what]
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(BadInput, match=r"model\.safetensors") as caught:
        open_weights(tmp_path)
    assert caught.value.field == field
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"a": "../a.safetensors"}, "a", "not a plain .safetensors file name"),
        ({"a": "/etc/a.safetensors"}, "a", "not a plain"),
        ({"a": A + "\n"}, "a", "not a plain"),
        ({"a": "pytorch_model.bin"}, "a", "not a plain"),
        ({"a": 3}, "a", "not a plain"),
        ({"a": "none.safetensors"}, "none.safetensors", "does not exist"),
        ({"a": A.upper().replace("SAFETENSORS", "safetensors"), "d": A}, "weight_map", "upper and lower case"),
        ({"a": B}, "a", "is not in this shard"),
        ({"c": None}, "c", "is not in model.safetensors.index.json"),
        ({"d": A}, "d", "is not in this shard"),
    ],
)
def test_refuses_an_index(tmp_path: Path, changes: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(BadInput, match=str(tmp_path)) as caught:
        open_weights(sharded(tmp_path, TWO, **changes))
    assert caught.value.field == field
    assert says in str(caught.value)


def test_refuses_a_tensor_in_two_shards_and_a_stale_single_file(tmp_path: Path) -> None:
    sharded(tmp_path, TWO)
    save_file({"a": torch.ones(1), "b": torch.ones(1), "c": torch.ones(1)}, tmp_path / B)
    with pytest.raises(BadInput, match=r"a: is in model-00001-of-00002\.safetensors too"):
        open_weights(tmp_path)
    save_file({"a": torch.ones(1)}, tmp_path / "model.safetensors")
    with pytest.raises(BadInput, match="which does not name it"):
        open_weights(tmp_path)


@pytest.mark.parametrize("target", ["/dev/zero", "/etc/passwd", "../outside.safetensors", "nowhere"])
@pytest.mark.parametrize("name", [A, "model.safetensors"])
def test_refuses_links_that_lead_out(tmp_path: Path, target: str, name: str) -> None:
    save_file(TWO[A], tmp_path / "outside.safetensors")
    directory = tmp_path / "model"
    directory.mkdir()
    if name == A:
        sharded(directory, TWO)
    (directory / name).unlink(missing_ok=True)
    (directory / name).symlink_to(target)
    with pytest.raises(BadInput, match=r"not a regular file inside|does not exist") as caught:
        open_weights(directory)
    assert caught.value.field == name


def test_refuses_a_pipe_and_a_directory_as_a_shard(tmp_path: Path) -> None:
    (sharded(tmp_path, TWO) / A).unlink()
    os.mkfifo(tmp_path / A)
    with pytest.raises(BadInput, match="not a regular file"):
        open_weights(tmp_path)
    (tmp_path / A).unlink()
    (tmp_path / A).mkdir()
    with pytest.raises(BadInput, match="not a regular file"):
        open_weights(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth", "model.ckpt", ".metadata"])
def test_a_directory_of_pickles_is_refused_with_the_way_out(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_bytes(b"\x80\x02.")
    with pytest.raises(
        BadInput, match=r"is a pickle \(a program, not data\); ropewalk does not run it; convert"
    ) as caught:
        open_weights(tmp_path)
    assert caught.value.remedy == sniff.CONVERT


def test_a_directory_without_weights_says_what_to_pass(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"model\.safetensors: is missing, and there"):
        open_weights(tmp_path)
    (tmp_path / "adapter_model.safetensors").touch()
    with pytest.raises(BadInput, match=r"pass the file that is meant: adapter_model\.safetensors"):
        open_weights(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BadInput, match="is JSON, which holds no weights"):
        open_weights(tmp_path / "config.json")


def test_a_file_that_changes_after_it_was_opened_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"w": torch.ones(4)}, path)
    weights = open_weights(path)
    path.unlink()
    save_file({"w": torch.ones(2)}, path)
    with pytest.raises(BadInput, match="changed while it was read"):
        weights.read("w")
    path.unlink()
    with pytest.raises(BadInput, match="w: cannot be read"):
        open_weights_after_removal(tmp_path).read("w")


def open_weights_after_removal(directory: Path) -> Any:
    path = directory / "gone.safetensors"
    save_file({"w": torch.ones(4)}, path)
    weights = open_weights(path)
    path.unlink()
    return weights
