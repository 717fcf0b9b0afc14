"""`ropewalk export RUN`, and what the other commands answer to a run that was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.load.model import load
from ropewalk.data.prepare.sample import sample
from ropewalk.train.config import Recipe
from ropewalk.train.run import train
from tests.cli.conftest import Ropewalk


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama on text, stopped at step 2 of 5, whose data is gone."""
    folder = tmp_path_factory.mktemp("stopped")
    data = sample("text", folder / "data")
    said: dict[str, Any] = {
        "model": {"width": 32, "heads": 4, "layers": 2, "hidden": 64},
        "data": {"kind": "text", "path": str(data), "length": 48},
        "train": {"steps": 5, "batch": 96, "evaluate": {"tokens": 96}},
    }
    train(Recipe.model_validate(said), folder / "run", until=2)
    data.rename(folder / "elsewhere")
    return folder / "run"


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> str:
    (tmp_path / "run").symlink_to(stopped)
    return "run"


def test_a_stopped_run_is_a_model(ropewalk: Ropewalk, run: str, stopped: Path) -> None:
    done = ropewalk("export", run, "out")
    assert (done.code, done.stderr) == (0, "")
    place, weights, tensors = done.stdout.splitlines()
    assert (place, weights.split(maxsplit=1)) == ("out", ["weights", "step 2"])
    assert tensors.startswith("tensors    20 equal bit for bit, ")
    special = json.loads((stopped.parent / "elsewhere" / "data.json").read_text())["special"]
    inner = tokenizers.Tokenizer.from_file(str(stopped.parent / "elsewhere" / "tokenizer.json"))
    theirs = transformers.AutoTokenizer.from_pretrained("out")
    assert theirs("the sea").input_ids == [special["start"], *inner.encode("the sea").ids]
    ids = (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id)
    assert ids == (special["start"], special["end"], special["end"])
    config = transformers.AutoModelForCausalLM.from_pretrained("out").config
    assert (config.bos_token_id, config.eos_token_id) == (special["start"], special["end"])
    assert config.max_position_embeddings == 48
    said = ropewalk("generate", "out", "--prompt", "the sea", "--max-tokens", "3", "--json")
    assert (said.code, said.stderr) == (0, "")
    assert ropewalk("inspect", "out").code == 0
    assert ropewalk("verify", "out", "--only", "C12").code == 0


def test_a_mean_for_llama_cpp(ropewalk: Ropewalk, run: str) -> None:
    done = ropewalk("export", run, "out.gguf", "--format", "gguf", "--average", "3", "--json")
    assert done.code == 3
    assert done.stderr == (
        "Error: run has 2 whole checkpoints, of steps 1, 2; --average 3 needs 3: ask for fewer, or train with "
        "train.save.keep=3\n"
    )
    done = ropewalk("export", run, "out.gguf", "--format", "gguf", "--average", "2", "--dtype", "float16", "--json")
    assert (done.code, done.stderr) == (0, "")
    assert (done.data["steps"], done.data["format"], done.data["dtype"]) == ([1, 2], "gguf", "float16")
    assert ropewalk("inspect", "out.gguf").code == 0


@pytest.mark.parametrize(
    "command",
    [("generate", "--prompt", "a"), ("inspect",), ("verify", "--only", "C12"), ("eval", "--text", "a.txt")],
    ids=lambda command: command[0],
)
def test_the_other_commands_say_what_to_type(ropewalk: Ropewalk, run: str, command: tuple[str, ...]) -> None:
    Path("a.txt").write_text("text " * 400)
    done = ropewalk(command[0], run, *command[1:])
    assert (done.code, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert "the run has not finished; its newest checkpoint is of step 2" in done.stderr
    assert "ropewalk export run OUT" in done.stderr
    inner = ropewalk(command[0], f"{run}/checkpoints/step-00000002", *command[1:])
    assert (inner.code, inner.stdout, inner.stderr.count("\n")) == (3, "", 1)
    assert "ropewalk export run OUT --step 2" in inner.stderr


def test_python_says_it_too(run: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="ropewalk export run OUT"):
        load(run)


def test_what_is_refused(ropewalk: Ropewalk, run: str, stopped: Path, checkpoint: Path) -> None:
    def says(*arguments: str, code: int) -> str:
        done = ropewalk("export", *arguments)
        assert (done.code, done.stdout) == (code, ""), done
        return " ".join(done.stderr.replace("\u2502", " ").split())

    assert "--step and --average choose" in says(str(checkpoint), "out", "--format", "hf", "--step", "3", code=2)
    assert "--format is missing" in says(str(checkpoint), "out", code=2)
    assert "--dtype needs --format" in says(run, "out", "--dtype", "bfloat16", code=2)
    assert "does not exist" in says("runs/typo", "out", code=3)
    assert "it has steps 1, 2" in says(run, "out", "--step", "15", code=3)
    assert "or add --format gguf" in says(run, "out.gguf", code=3)
    assert "inside the source" in says(run, f"{run}/best", code=3)
    assert "--step 2" in says(f"{run}/checkpoints/step-00000002", "out", code=3)
    assert "run/checkpoints: model: holds the checkpoints of a run" in says(f"{run}/checkpoints", "out", code=3)
    Path("runs").mkdir()
    assert "runs is neither a model nor a run: it has no config.json" in says("runs", "out", code=3)
    assert ropewalk("inspect", "runs").stderr.startswith("Error: runs: config.json: is missing")
    Path("empty/checkpoints").mkdir(parents=True)
    Path("empty/recipe.yaml").touch()
    assert "ropewalk train RECIPE --out empty --resume" in says("empty", "out", code=3)
    assert "ropewalk train RECIPE --out empty --resume" in ropewalk("inspect", "empty").stderr
    assert not Path("out").exists()
