"""What a model says during training: as `ropewalk generate` of its export would, and at no cost to the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from ropewalk.checkpoints.load.model import load
from ropewalk.checkpoints.tokens import tokenizer
from ropewalk.data.open import open_data
from ropewalk.data.prepare.sample import sample
from ropewalk.distributed.world import World
from ropewalk.models.generate import complete
from ropewalk.train.config import Recipe
from ropewalk.train.fast import smaller
from ropewalk.train.metrics import read
from ropewalk.train.run import train
from ropewalk.train.samples import Sampler
from tests.distributed.steps import ALONE

PROMPTS = ["The rope", "One more [/b] of these: \x1b"]
KIND = {"decoder": "text", "encoder": "text", "encoder-decoder": "pairs"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("data")
    return {kind: sample(kind, folder / kind) for kind in ("text", "pairs")}  # pyrefly: ignore[bad-argument-type]


def recipe(data: dict[str, Path], stack: str = "decoder", samples: Any = None, **more: Any) -> Recipe:
    kind = KIND[stack]
    lengths = {"length": 48, **({"source_length": 48} if kind == "pairs" else {})}
    model = {"stack": stack, "width": 32, "heads": 2, "layers": 2, "hidden": 64, "dropout": {"residual": 0.2}}
    train = {"steps": 8, "batch": 192, "optimizer": {"kind": "adamw", "lr": 0.02}, "schedule": {"kind": "constant"}}
    train |= {"evaluate": {"every": 4, "tokens": 96}, "samples": samples}
    given = {"model": model | more.pop("model", {}), "data": {"kind": kind, "path": str(data[kind]), **lengths}}
    return Recipe.model_validate({**given, "train": train | more.pop("train", {}), **more})


def records(out: Path) -> list[dict[str, Any]]:
    return read(out / "metrics.jsonl")["sample"]


@pytest.mark.parametrize("stack", ["decoder", "encoder-decoder"])
def test_what_the_export_would_say(
    tmp_path: Path, data: dict[str, Path], stack: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"prompts": PROMPTS, "tokens": 6, "every": 3}
    plan = recipe(data, stack, asked)
    train(plan, tmp_path / "run", shown=True)
    said = capsys.readouterr().err
    assert [record["step"] for record in records(tmp_path / "run")] == [3, 6, 8]
    last = records(tmp_path / "run")[-1]["samples"]
    assert [each["prompt"] for each in last] == PROMPTS
    assert "step 8: The rope | " in said
    assert "step 8: One more [/b] of these: \\x1b | " in said
    assert "\x1b" not in said
    model, words = load(tmp_path / "run" / "export"), tokenizer.of(tmp_path / "run" / "export")
    ids = [words.encode(text) for text in PROMPTS]
    opened = open_data(plan.data, stack=stack, seed=0)  # pyrefly: ignore[bad-argument-type]
    options = {} if stack == "decoder" else {"start": opened.start}
    new = complete(model, ids, max_tokens=6, temperature=0, stop=words.stops, **options)
    for each, before, after in zip(last, ids, new, strict=True):
        whole = words.decode([*before, *after])[len(words.decode(before)) :]
        assert each["text"] == (whole if stack == "decoder" else words.decode(after))
    assert any(each["text"] for each in last)


def test_masked_tokens_are_filled_in(tmp_path: Path, data: dict[str, Path]) -> None:
    plan = recipe(data, "encoder", {"prompts": ["The <mask> of the <mask>", "<mask> rope"]})
    train(plan, tmp_path)
    assert [record["step"] for record in records(tmp_path)] == [4, 8]  # as often as it is measured
    words, model = Tokenizer.from_file(str(data["text"] / "tokenizer.json")), load(tmp_path / "export")
    opened = open_data(plan.data, stack="encoder", seed=0)
    for each in records(tmp_path)[-1]["samples"]:
        ids = [opened.start, *words.encode(each["prompt"], add_special_tokens=False).ids, opened.end]
        best = model(torch.tensor([ids])).argmax(-1)[0].tolist()
        assert opened.mask in ids
        assert each["text"] == words.decode([b if a == opened.mask else a for a, b in zip(ids, best, strict=True)])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_losses_are_those_of_a_run_without(tmp_path: Path, data: dict[str, Path], precision: str) -> None:
    """Bit for bit, with dropout; and torch's generator is where it was."""
    more = {"train": {"precision": precision}}
    states, losses = [], []
    for name, asked in (("with", {"prompts": PROMPTS, "tokens": 3, "every": 1}), ("without", None)):
        torch.manual_seed(7)
        train(recipe(data, samples=asked, **more), tmp_path / name)
        states.append(torch.get_rng_state())
        found = read(tmp_path / name / "metrics.jsonl")
        losses.append([record["loss"] for kind in ("train", "valid") for record in found[kind]])
    assert losses[0] == losses[1]
    assert torch.equal(*states)


def test_a_compiled_model_is_asked_uncompiled(
    tmp_path: Path, data: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each length would be another graph."""
    stances: list[str] = []
    plain = Sampler._logits

    def logits(self: Sampler, *given: Any) -> Any:
        stances.append(torch._dynamo.eval_frame._stance.stance)
        return plain(self, *given)

    monkeypatch.setattr(Sampler, "_logits", logits)
    monkeypatch.setattr(torch, "compile", lambda function: function)
    for compiled in (True, False):
        train(
            recipe(data, samples={"prompts": ["a"], "tokens": 1}, train={"compile": compiled}), tmp_path / f"{compiled}"
        )
    assert stances == ["force_eager"] * 2 + ["default"] * 2


def test_what_cannot_be_asked_is_refused_at_the_start(tmp_path: Path, data: dict[str, Path]) -> None:
    def refused(plan: Recipe, says: str, world: World = ALONE) -> None:
        opened = open_data(plan.data, stack=plan.model.stack, seed=0)
        with pytest.raises(ValueError, match=says):
            Sampler(plan.train, opened, plan.model, world)

    asked = {"prompts": ["The rope"]}
    refused(recipe(data, "encoder", asked), "'The rope' has no <mask>, which an encoder is to fill in")
    filled = {"prompts": ["<mask>"], "tokens": 5}
    refused(recipe(data, "encoder", filled), r"train\.samples\.tokens=5 is for models that write")
    table = {"encoding": {"kind": "learned", "longest": 48}}
    refused(recipe(data, samples={**asked, "tokens": 47}, model=table), "the decoder's table has 48")
    task = {"data": {"kind": "task", "task": "copy", "length": 16}}
    refused(Recipe.model_validate({**recipe(data, samples=asked).model_dump(), **task}), r"data\.kind=task has none")
    world = World(None, torch.device("cpu"))
    world.cp_size = 2
    refused(recipe(data, samples=asked), r"write mesh\.cp=1", world)
    with pytest.raises(ValueError, match="prompts"):
        recipe(data, samples={"tokens": 5})
    # Before anything is written.
    with pytest.raises(ValueError, match="has no <mask>"):
        train(recipe(data, "encoder", asked), tmp_path / "run")
    assert not (tmp_path / "run" / "recipe.yaml").exists()


def test_a_fast_run_asks_nothing_where_a_sample_stands_in_for_the_data(tmp_path: Path, data: dict[str, Path]) -> None:
    plan = recipe(data, "encoder", {"prompts": ["[MASK]"]})
    gone = plan.model_copy(update={"data": plan.data.model_copy(update={"path": str(tmp_path / "gone")})})
    assert smaller(plan, tmp_path, 1).train.samples == plan.train.samples
    assert smaller(gone, tmp_path, 1).train.samples is None
