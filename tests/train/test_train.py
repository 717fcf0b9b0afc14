"""Runs from end to end on one process: what is learned, what a stop leaves, and what resuming makes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ropewalk.cli.train import _say
from ropewalk.data.batch import Batch
from ropewalk.data.layout import describe
from ropewalk.data.open import open_data
from ropewalk.data.prepare.sample import sample
from ropewalk.distributed.world import World
from ropewalk.overrides import load
from ropewalk.train import loop
from ropewalk.train.config import Recipe
from ropewalk.train.fast import clear
from ropewalk.train.guard.drift import Drift
from ropewalk.train.guard.faults import Fault
from ropewalk.train.metrics import read
from ropewalk.train.run import Result, train
from tests.cli.conftest import Ropewalk, ropewalk

__all__ = ["ropewalk"]

REPOSITORY = Path(__file__).parents[2]
RECIPES = sorted((REPOSITORY / "src" / "ropewalk" / "recipes").glob("*.yaml"))
FROM_NOTHING = [file for file in RECIPES if file.stem != "finetune"]
SMALL = [
    *("model.width=32", "model.heads=2", "model.layers=2", "model.hidden=64", "data.kind=task", "data.task=copy"),
    *("data.length=24", "train.steps=12", "train.batch=96", "train.save.every=4", "train.evaluate.every=6"),
    *("train.evaluate.tokens=480", "train.schedule.warmup=3", "model.dropout.residual=0.1"),
]


def recipe(*changes: str) -> Recipe:
    return load(Recipe, None, [*SMALL, *changes])


def losses(out: Path) -> list[float]:
    return [record["loss"] for record in read(out / "metrics.jsonl")["train"]]


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "export" / "model.safetensors")


def same(a: Path, b: Path) -> bool:
    one, other = weights(a), weights(b)
    return losses(a) == losses(b) and all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_leaves_what_it_says(tmp_path: Path) -> None:
    result = train(recipe(), tmp_path / "a")
    assert result.finished
    assert len(set(losses(tmp_path / "a"))) == 12
    records = read(tmp_path / "a" / "metrics.jsonl")
    assert [record["step"] for record in records["train"]] == list(range(1, 13))
    assert [record["step"] for record in records["valid"]] == [6, 12]
    assert result.valid["tokens"] > 0
    assert load(Recipe, tmp_path / "a" / "recipe.yaml").train == recipe().train
    assert sorted(path.name for path in (tmp_path / "a" / "checkpoints").iterdir()) == [
        "step-00000008",
        "step-00000012",
    ]


def test_milestones_are_saved_and_stay(tmp_path: Path) -> None:
    """Also at steps that are no multiple of save.every, and in a run that is resumed without the setting."""

    def steps() -> list[int]:
        return sorted(int(path.name.removeprefix("step-")) for path in (tmp_path / "checkpoints").iterdir())

    train(recipe("train.save.keep_every=3"), tmp_path, until=7)
    assert steps() == [3, 6, 7]
    train(recipe(), tmp_path, resume=True)
    assert steps() == [3, 6, 8, 12]


@pytest.mark.parametrize("asynchronous", ["true", "false"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_resumed_is_uninterrupted_bit_for_bit(tmp_path: Path, asynchronous: str, optimizer: str) -> None:
    plan = recipe(f"train.save.asynchronous={asynchronous}", f"train.optimizer.kind={optimizer}")
    train(plan, tmp_path / "whole")
    for until in (3, 4, 9):
        assert not train(plan, tmp_path / "cut", resume=True, until=until).finished
    assert train(plan, tmp_path / "cut", resume=True).finished
    assert same(tmp_path / "whole", tmp_path / "cut")


def test_passes_and_recomputation_change_only_rounding(tmp_path: Path) -> None:
    train(recipe(), tmp_path / "whole")
    train(recipe("train.micro=24", "train.recompute=true"), tmp_path / "parts")
    assert losses(tmp_path / "parts") == pytest.approx(losses(tmp_path / "whole"), rel=1e-5)


def test_what_was_measured_before_the_last_step_is_said_of_its_step(capsys: pytest.CaptureFixture[str]) -> None:
    valid = {"step": 4, "loss": 2.0, "by_position": [{"from": 0, "loss": 2.0, "tokens": 9}]}
    _say(Result(Path("run"), 7, 10, valid, None))
    said = capsys.readouterr().out
    assert said.startswith("step 7 of 10: validation at step 4 2.0000 nats per token\n")
    assert "loss at step 4" in said
    _say(Result(Path("run"), 4, 10, valid, None))
    said = capsys.readouterr().out
    assert said.startswith("step 4 of 10: validation 2.0000 nats per token\n")
    assert "at step" not in said


def test_the_record_of_what_left_no_checkpoint_is_set_aside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = '{"step": 99, "loss": 1.0}\n'
    (tmp_path / "metrics.jsonl").write_text(before)
    train(recipe(), tmp_path, until=4, shown=True)
    assert f"{tmp_path / 'metrics-1.jsonl'} is the record of what began here before" in capsys.readouterr().err
    assert train(recipe(), tmp_path, resume=True).finished
    assert (tmp_path / "metrics-1.jsonl").read_text() == before
    assert not (tmp_path / "metrics-2.jsonl").exists()
    assert [record["step"] for record in read(tmp_path / "metrics.jsonl")["train"]] == list(range(1, 13))


def test_pairs_that_are_left_out_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = sample("pairs", tmp_path / "pairs")
    given = ["data.kind=pairs", f"data.path={pairs}", "data.length=8", "data.source_length=60", "train.steps=1"]
    small = [change for change in SMALL if not change.startswith(("data.", "train.steps"))]
    plan = load(Recipe, None, [*small, *given, "model.stack=encoder-decoder"])
    train(plan, tmp_path / "run", shown=True)
    said = " ".join(capsys.readouterr().err.split())
    data = open_data(plan.data, stack="encoder-decoder", seed=0)
    for split in ("train", "valid"):
        count = describe(pairs)["splits"][split]["documents"]
        left_out = data.splits[split].left_out  # pyrefly: ignore[missing-attribute]
        told = f"{split}: {left_out} of {count} pairs are longer than data.length or data.source_length and left out"
        assert (told in said) == (left_out > 0)
    assert data.splits["train"].left_out > 0  # pyrefly: ignore[missing-attribute]


def test_a_folder_with_a_run_is_not_written_over(tmp_path: Path) -> None:
    train(recipe(), tmp_path, until=4)
    with pytest.raises(ValueError, match="holds a run already; continue it with --resume"):
        train(recipe(), tmp_path)


def test_what_rank_0_refuses_every_rank_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the others end in a traceback of gloo's, about a connection that was closed."""
    monkeypatch.setattr(World, "first", False)
    monkeypatch.setattr(World, "share", lambda self, value: (None, ValueError("rank 0 says no")))
    with pytest.raises(ValueError, match="rank 0 says no"):
        train(recipe(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_drift_is_an_error_that_lists_what_differs(tmp_path: Path) -> None:
    train(recipe(), tmp_path, until=4)
    other = recipe("model.encoding=alibi", "train.optimizer.lr=5e-3", "data.task=reverse")
    with pytest.raises(Drift, match=r"(?s)kind: was 'rope', is 'alibi'.*lr: was None, is 0.005"):
        train(other, tmp_path, resume=True)
    changed = recipe("train.optimizer.lr=5e-3", "train.micro=24")
    assert train(changed, tmp_path, resume=True, allow_drift=True).finished


def poison(monkeypatch: pytest.MonkeyPatch, step: int, times: int = 1) -> list[int]:
    """Makes the loss of one step NaN, as a broken batch would."""
    told: list[int] = []
    plain = loop.Loop.loss

    def loss(self: loop.Loop, batch: Any, **settings: Any) -> torch.Tensor:
        found = plain(self, batch, **settings)
        if self.step == step and self.learner.training and len(told) < times:
            told.append(step)
            return found * float("nan")
        return found

    monkeypatch.setattr(loop.Loop, "loss", loss)
    return told


def test_a_bad_step_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch, 5)
    with pytest.raises(Fault, match=r"step 6: not finite.*Nothing was updated"):
        train(recipe(), tmp_path)
    monkeypatch.undo()
    assert train(recipe(), tmp_path, resume=True).finished


@pytest.mark.parametrize("policy", ["skip", "rollback"])
def test_a_bad_batch_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    told = poison(monkeypatch, 5)
    result = train(recipe(f"train.faults.policy={policy}"), tmp_path)
    assert told == [5]
    assert result.finished
    assert all(torch.isfinite(tensor).all() for tensor in weights(tmp_path).values())
    assert [record["step"] for record in read(tmp_path / "metrics.jsonl")["event"]] == [6]
    steps = [record["step"] for record in read(tmp_path / "metrics.jsonl")["train"]]
    assert steps == [1, 2, 3, 4, 5, *range(7, 13)]


def test_skipping_leaves_the_optimizer_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways around a bad batch come to the same weights: neither let it touch anything."""
    for policy in ("skip", "rollback"):
        with monkeypatch.context() as patched:
            poison(patched, 5)
            train(recipe(f"train.faults.policy={policy}"), tmp_path / policy)
    assert same(tmp_path / "skip", tmp_path / "rollback")


def test_a_batch_that_asks_for_nothing_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As masked text may, or the last token of a document: its mean loss is 0 / 0, and nothing is wrong with it."""
    update = loop.Loop.update

    def silent(self: loop.Loop, batch: Batch, began: float) -> str:
        return update(self, batch.silent(torch.full((len(batch.tokens),), self.step == 5)), began)

    with monkeypatch.context() as patched:
        patched.setattr(loop.Loop, "update", silent)
        assert train(recipe(), tmp_path / "silent").finished
    poison(monkeypatch, 5)
    train(recipe("train.faults.policy=skip"), tmp_path / "skip")
    assert same(tmp_path / "silent", tmp_path / "skip")
    events = read(tmp_path / "silent" / "metrics.jsonl")["event"]
    assert [(event["step"], event["what"]) for event in events] == [(6, "no targets")]


def test_more_tokens_than_the_model_has_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"model.vocabulary=8 and the data has tokens up to 31; leave"):
        train(recipe("model.vocabulary=8"), tmp_path)


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight:UserWarning")  # bfloat16, by torch
@pytest.mark.no_poison
@pytest.mark.parametrize("file", FROM_NOTHING, ids=lambda file: file.stem)
def test_every_recipe_runs_fast(tmp_path: Path, ropewalk: Ropewalk, file: Path) -> None:
    arguments = ("--fast", "--out", str(tmp_path / "run"), "--json", "mesh.tp=1", "mesh.cp=1")
    answer = ropewalk("train", str(file), *arguments)
    assert answer.code == 0, answer.stderr
    assert answer.data["step"] == answer.data["steps"] == 2
    assert (tmp_path / "run" / "export" / "model.safetensors").exists()


def test_fast_removes_nothing_but_a_fast_run(tmp_path: Path, ropewalk: Ropewalk) -> None:
    file = next(file for file in RECIPES if file.stem == "decoder")
    (tmp_path / "thesis.txt").write_text("years of work")
    answer = ropewalk("train", str(file), "--fast", "--out", str(tmp_path))
    assert answer.code == 3
    assert "holds something else than a run of --fast" in answer.stderr
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    run = tmp_path / "run"
    train(recipe(), run, until=4)
    with pytest.raises(ValueError, match="something else than a run of --fast"):
        clear(run)
    assert losses(run)
    train(recipe("train.steps=2"), tmp_path / "fast")
    clear(tmp_path / "fast")
    assert not (tmp_path / "fast").exists()


@pytest.mark.parametrize("device", ["cuda:99", "mps:99", "gpu"])
def test_a_device_that_is_not_there_is_one_line(ropewalk: Ropewalk, device: str) -> None:
    answer = ropewalk("train", str(RECIPES[0]), "--fast", "--device", device)
    assert (answer.code, answer.stdout, len(answer.stderr.splitlines())) == (5, "", 1)
    assert answer.stderr.startswith(f"Error: there is no device '{device}' here; torch ")
    assert " finds cpu" in answer.stderr


def test_a_typo_is_answered(tmp_path: Path, ropewalk: Ropewalk) -> None:
    typos = ("model.encodng.kind=rope", "train.tokns=3M")
    answer = ropewalk("train", str(RECIPES[0]), *typos, "--out", str(tmp_path))
    assert answer.code == 3
    assert "2 problems" in answer.stderr
    assert "Did you mean model.encoding?" in answer.stderr
    assert "train.tokens" in answer.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_saves(tmp_path: Path, number: signal.Signals, code: int) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("{}")
    changes = [*SMALL, "train.steps=100000", "train.save.every=50000", "train.evaluate.every=50000"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "ropewalk", "train", str(file), *changes, "--out", str(tmp_path / "run")]
    with subprocess.Popen(line, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        metrics = tmp_path / "run" / "metrics.jsonl"
        while not (metrics.exists() and metrics.stat().st_size):
            assert running.poll() is None, running.communicate()[1]
        running.send_signal(number)
        _, said = running.communicate(timeout=120)
    assert running.returncode == code, said
    assert f"continue with --resume, or write its model: ropewalk export {tmp_path / 'run'} OUT" in said
    (saved,) = (tmp_path / "run" / "checkpoints").glob("step-*")
    assert int(saved.name.removeprefix("step-")) == read(metrics)["train"][-1]["step"]
