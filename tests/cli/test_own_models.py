"""What `ropewalk train` writes, read by the other commands: a translation run, a decoder with ALiBi, a Llama."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file

from ropewalk.checkpoints.load.model import load
from ropewalk.data.prepare.sample import sample
from ropewalk.models import complete
from ropewalk.train.config import Recipe
from ropewalk.train.run import train
from tests.cli.conftest import Ropewalk

SIZES = {"width": 32, "heads": 4, "hidden": 64}
MODELS: dict[str, dict[str, Any]] = {
    "translation": {
        **SIZES,
        "stack": "encoder-decoder",
        "layers": {"encoder": 2, "decoder": 1},
        "encoding": "sinusoidal",
    },
    "alibi": {**SIZES, "layers": 2, "encoding": "alibi"},
    "gelu": {**SIZES, "layers": 2, "activation": "gelu"},
    "llama": {**SIZES, "layers": 2},
}
PROMPT = "Save the file"


class Run:
    """A run, and what its data says of the tokens around a text, by no code that reads checkpoints."""

    def __init__(self, name: str, folder: Path) -> None:
        kind = "pairs" if name == "translation" else "text"
        about = json.loads((sample(kind, folder / "data") / "data.json").read_text())
        self.start, self.end = about["special"]["start"], about["special"]["end"]
        self.ids = tokenizers.Tokenizer.from_file(str(folder / "data" / "tokenizer.json")).encode(PROMPT).ids
        data: dict[str, Any] = {"kind": kind, "path": str(folder / "data"), "length": 48}
        data |= {"source_length": 56} if kind == "pairs" else {}
        once = {"steps": 1, "batch": 96, "evaluate": {"tokens": 96}}
        recipe = Recipe.model_validate({"model": MODELS[name], "data": data, "train": once})
        self.path = folder / name
        train(recipe, self.path)
        # After one step it would say the same of every prompt.
        weights = load_file(self.path / "export" / "model.safetensors")
        noise = torch.Generator().manual_seed(1)
        changed = {key: value + torch.randn(value.shape, generator=noise) for key, value in weights.items()}
        save_file(changed, self.path / "export" / "model.safetensors", metadata={"format": "pt"})

    @property
    def export(self) -> Path:
        return self.path / "export"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    return cache(lambda name: Run(name, tmp_path_factory.mktemp("runs")))


@pytest.fixture(params=list(MODELS))
def run(request: pytest.FixtureRequest, made: Callable[[str], Run]) -> Run:
    return made(request.param)


def test_it_generates_as_it_was_trained(ropewalk: Ropewalk, run: Run) -> None:
    done = ropewalk("generate", str(run.path), "--prompt", PROMPT, "--max-tokens", "6", "--temperature", "0", "--json")
    assert (done.code, done.stderr) == (0, "")
    (said,) = done.data
    model, options = load(run.export), {"max_tokens": 6, "temperature": 0, "stop": run.end}
    # The encoder read its sources with the end token, a decoder its texts from the start token on.
    prompt = [*run.ids, run.end] if model.encoder else [run.start, *run.ids]
    options |= {"start": run.start} if model.encoder else {}
    want = complete(model, prompt, **options)
    assert (said["prompt_tokens"], said["tokens"]) == (len(prompt), want)
    other = [*run.ids] if model.encoder else [run.end, *run.ids]
    assert complete(model, other, **options) != want, "the test would not see a wrong token around the prompt"


def test_it_is_inspected(ropewalk: Ropewalk, run: Run) -> None:
    done = ropewalk("inspect", str(run.path), "--layers")
    assert (done.code, done.stderr) == (0, "")
    own = run.path.name != "llama"
    assert ("Only ropewalk reads it" in done.stdout) == own
    assert ("in a form that ropewalk alone reads" in done.stdout) == own
    if own:
        assert f"{run.path.name} \u00b7" in done.stdout
        assert "trained 48 [config.json:trained_length]" in done.stdout
        assert ("trained 56 [config.json:trained_source_length]" in done.stdout) == (run.path.name == "translation")
        assert {"translation": "sinusoidal", "alibi": "ALiBi", "gelu": "RoPE (half)"}[run.path.name] in done.stdout
    report = ropewalk("inspect", str(run.path), "--json").data
    refused = [name for name, engine in report["engines"].items() if engine["refusal"] is not None]
    assert refused == (["transformers5", "transformers4", "vllm", "llama.cpp", "sglang", "mlx"] if own else [])


def test_no_engine_is_told_how_to_reach_further(ropewalk: Ropewalk, made: Callable[[str], Run]) -> None:
    done = ropewalk("inspect", str(made("gelu").path), "--to", "192", "--json")
    assert done.code == 0, done.stderr
    assert [scaling["overrides"] for scaling in done.data["scalings"]] == [[]] * len(done.data["scalings"])
    assert {"yarn", "linear"} <= {scaling["scaling"] for scaling in done.data["scalings"]}


def test_it_is_exported_or_not_for_one_reason(ropewalk: Ropewalk, run: Run) -> None:
    done = ropewalk("export", str(run.path), "out", "--format", "hf")
    reasons = {"translation": "stack is encoder-decoder", "alibi": "positions are alibi", "gelu": "activation is gelu"}
    if run.path.name == "llama":
        assert (done.code, done.stderr) == (0, "")
        return
    assert (done.code, done.stdout, Path("out").exists()) == (3, "", False)
    assert f"it is not a Llama ({reasons[run.path.name]})" in done.stderr
    assert done.stderr.count("\n") == 1


def test_it_is_verified_where_it_is_a_decoder(ropewalk: Ropewalk, run: Run) -> None:
    done = ropewalk("verify", str(run.path), "--only", "C12")
    if run.path.name == "translation":
        assert (done.code, done.stdout) == (3, "")
        assert "is an encoder-decoder; a decoder alone is verified" in done.stderr
    else:
        assert done.code == 0, done.stdout
        assert "1 applies" in done.stdout
    if run.path.name == "alibi":
        theirs = ropewalk("verify", str(run.path), "--engine", "transformers")
        assert theirs.code == 3
        assert "which transformers does not load" in theirs.stderr


def test_transformers_tokenizes_as_it_was_trained(run: Run) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(run.export)
    assert (theirs.bos_token_id, theirs.eos_token_id) == (run.start, run.end)
    want = [*run.ids, run.end] if run.path.name == "translation" else [run.start, *run.ids]
    assert theirs(PROMPT).input_ids == want


def test_an_answer_without_a_start_token(ropewalk: Ropewalk, made: Callable[[str], Run], tmp_path: Path) -> None:
    shutil.copytree(made("translation").export, tmp_path / "old")
    config = json.loads((tmp_path / "old" / "config.json").read_text())
    del config["decoder_start_token_id"]
    (tmp_path / "old" / "config.json").write_text(json.dumps(config))
    done = ropewalk("generate", "old", "--prompt", PROMPT)
    assert done.code == 3
    assert "decoder_start_token_id is missing" in done.stderr


def test_a_directory_with_one_gguf_file(ropewalk: Ropewalk, made: Callable[[str], Run]) -> None:
    Path("model").mkdir()
    assert ropewalk("export", str(made("llama").path), "model/a.gguf", "--format", "gguf").code == 0
    options = ("--prompt", PROMPT, "--max-tokens", "4", "--temperature", "0", "--seed", "1", "--json")
    whole, file = ropewalk("generate", "model", *options), ropewalk("generate", "model/a.gguf", *options)
    assert (whole.code, whole.stderr) == (0, "")
    assert whole.data == file.data
    assert whole.data[0]["prompt_tokens"] == 1 + len(made("llama").ids)
