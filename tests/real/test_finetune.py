"""SmolLM2 out of its GGUF file, trained on for a few steps: a Llama that transformers reads, with its own tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from ropewalk.checkpoints.load.model import load
from ropewalk.checkpoints.tokens.tokenizer import of
from ropewalk.train.metrics import read
from ropewalk.train.run import train
from ropewalk.train.start.recipe import load_recipe
from tests.cli.conftest import Ropewalk, ropewalk
from tests.real.fetch import model

__all__ = ["ropewalk"]

pytestmark = [pytest.mark.real, pytest.mark.no_poison]

TEXT = Path(__file__).parents[2] / "LICENSE"


def test_a_few_steps_from_gguf_to_transformers(tmp_path: Path, ropewalk: Ropewalk) -> None:
    source, text = model("smollm2"), tmp_path / "text.txt"
    text.write_text(TEXT.read_text(encoding="utf-8"), encoding="utf-8")
    asked = ["--tokenizer", str(source), "--out", str(tmp_path / "data"), "--valid-fraction", "0", "--quiet"]
    assert ropewalk("data", "prepare", str(text), *asked).code == 0
    given = [f"data.path={tmp_path / 'data'}", "data.length=32", "train.steps=2", "train.batch=32", "train.micro=32"]
    given += ["train.save.every=2", "train.schedule={kind: constant}", "train.optimizer.lr=1e-4"]
    given += ["data.isolate=false"]
    plan = load_recipe(Path(__file__).parents[2] / "src/ropewalk/recipes/finetune.yaml", given, start=str(source))
    out = train(plan, tmp_path / "run").export
    assert out is not None
    first = read(tmp_path / "run" / "metrics.jsonl")["train"][0]["loss"]
    assert first < 6  # of weights drawn at random it is ln 49152 = 10.8
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out)
    assert type(theirs).__name__ == "LlamaForCausalLM"
    ids = of(source).encode(TEXT.read_text(encoding="utf-8"))[:64]
    assert transformers.AutoTokenizer.from_pretrained(out)(TEXT.read_text(encoding="utf-8"))["input_ids"][:64] == ids
    with torch.no_grad():
        apart = theirs(torch.tensor([ids])).logits - load(out)(torch.tensor([ids]))
    assert float(apart.abs().max()) < 2e-3
