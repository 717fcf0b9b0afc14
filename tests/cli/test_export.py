"""`ropewalk export`: the proof it prints, its JSON, and what each exit code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from ropewalk.checkpoints.export import hf
from ropewalk.checkpoints.load.model import load
from tests.checkpoints.small_models import make
from tests.cli.conftest import Ropewalk


@pytest.fixture
def model(tmp_path: Path) -> str:
    make("llama", tmp_path / "model")
    return "model"


def test_the_proof_is_printed(ropewalk: Ropewalk, model: str) -> None:
    answer = ropewalk("export", model, "--format", "hf", "out")
    assert (answer.code, answer.stderr) == (0, "")
    place, tensors, positions, logits, tokenizer = answer.stdout.splitlines()
    assert place == "out"
    assert tensors.split(maxsplit=1) == ["tensors", "21 equal bit for bit, 102,720 numbers, float32, layout half"]
    assert positions.split(maxsplit=1) == ["positions", "identical; stated 256"]
    assert logits.split(maxsplit=1) == ["logits", "equal bit for bit, 256 tokens at positions up to 255"]
    assert tokenizer.startswith("tokenizer  302 tokens")
    load("out")


def test_json(ropewalk: Ropewalk, model: str) -> None:
    answer = ropewalk("export", model, "--format", "gguf", "out.gguf", "--dtype", "float16", "--json")
    assert answer.code == 0
    data = answer.data
    assert (data["out"], data["format"], data["dtype"]) == ("out.gguf", "gguf", "float16")
    assert data["layouts"] == ["half", "pairs"]
    assert data["lengths"] == {"trained": None, "stated": 256, "extended": None, "table": None}
    assert 0 < data["rounding"] < 2e-3
    assert 0 < data["difference"] < 1e-4
    assert data["exact"] is False


def test_quiet(ropewalk: Ropewalk, model: str) -> None:
    assert ropewalk("export", model, "--format", "hf", "out", "--quiet").stdout == "out\n"


def test_what_is_refused(ropewalk: Ropewalk, model: str) -> None:
    answer = ropewalk("export", model, "--format", "hf", model)
    assert (answer.code, answer.stdout) == (3, "")
    assert answer.stderr == "Error: model already exists and is not overwritten; give another name, or remove it\n"
    assert ropewalk("export", model, "--format", "onnx", "out").code == 2
    assert ropewalk("export", "nothing", "--format", "hf", "out").code == 3
    assert not Path("out").exists()


def test_what_is_not_proven_is_1(ropewalk: Ropewalk, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write = hf.write_tensor
    monkeypatch.setattr(hf, "write_tensor", lambda file, tensor, dtype: write(file, tensor * 1.001, dtype))
    answer = ropewalk("export", model, "--format", "hf", "out")
    assert (answer.code, answer.stdout) == (1, "")
    assert (
        answer.stderr
        == "Error: model: model.layers.0.self_attn.q_proj.weight read back is not the source's; nothing was written\n"
    )
    assert not Path("out").exists()
