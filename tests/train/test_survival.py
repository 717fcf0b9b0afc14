"""Whatever happens around a run, what it has computed is not lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from ropewalk.data.config import TextData
from ropewalk.data.open import open_data
from ropewalk.data.options import Options
from ropewalk.data.prepare.dataset import prepare
from ropewalk.distributed import apply
from ropewalk.distributed.ranks import launch_name
from ropewalk.train import loop
from ropewalk.train.checkpoint.store import Checkpoints, DiskFull
from ropewalk.train.guard.faults import Fault
from ropewalk.train.guard.signals import Signals
from ropewalk.train.guard.watchdog import Watchdog
from ropewalk.train.loop import Loop
from ropewalk.train.metrics import read
from ropewalk.train.run import train
from tests.train import small_recipe


def at_step(monkeypatch: pytest.MonkeyPatch, what: dict[int, Any]) -> None:
    """Calls these in the middle of the updates of these numbers, counted from 1."""
    plain = Loop.loss

    def loss(self: Loop, batch: Any, **settings: Any) -> Any:
        if self.learner.training and (act := what.pop(self.step + 1, None)) is not None:
            changed = act()
            return plain(self, batch, **settings) * (1.0 if changed is None else changed)
        return plain(self, batch, **settings)

    monkeypatch.setattr(Loop, "loss", loss)


def saved(out: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in (out / "checkpoints").glob("step-*"))


def test_a_save_under_way_is_finished_by_whoever_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Checkpoints._write
    monkeypatch.setattr(Checkpoints, "_write", lambda *given: (time.sleep(0.3), write(*given)))
    at_step(monkeypatch, {6: lambda: float("nan")})
    with pytest.raises(Fault):
        train(small_recipe.recipe(10, save={"every": 5}), tmp_path)
    assert saved(tmp_path) == [5]


def test_it_is_saved_before_it_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Loop) -> None:
        raise RuntimeError("no backend")

    monkeypatch.setattr(Loop, "evaluate", broken)
    recipe = small_recipe.recipe(8, 4)
    with pytest.raises(RuntimeError, match="no backend"):
        train(recipe, tmp_path)
    assert saved(tmp_path) == [4, 8]
    monkeypatch.undo()
    # Everything but the last measurement was done.
    result = train(recipe, tmp_path, resume=True)
    assert result.finished
    assert result.valid["step"] == 8
    assert [record["step"] for record in read(tmp_path / "metrics.jsonl")["valid"]] == [8]


def test_what_was_due_at_the_step_it_resumes_from_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(self: Loop) -> None:
        raise KeyboardInterrupt

    recipe = small_recipe.recipe(8, 4, evaluate={"every": 4, "tokens": 128})
    train(recipe, tmp_path / "whole")
    monkeypatch.setattr(Loop, "evaluate", killed)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "cut")
    assert saved(tmp_path / "cut") == [4]
    monkeypatch.undo()
    assert train(recipe, tmp_path / "cut", resume=True).finished
    whole, cut = (read(tmp_path / name / "metrics.jsonl")["valid"] for name in ("whole", "cut"))
    assert [record["step"] for record in whole] == [4, 8]
    assert cut == whole


def test_data_without_validation_text_is_trained_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("one text after another\n\n" * 200)
    prepare([tmp_path / "text.txt"], tmp_path / "data", Options(vocabulary=280, valid=0, document="blank"))
    recipe = small_recipe.recipe(4, 2).model_copy(update={"data": TextData(path=str(tmp_path / "data"), length=16)})
    result = train(recipe, tmp_path / "run", shown=True)
    assert result.finished
    assert result.valid == {}
    assert "no validation sequences: nothing is measured" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_of_schedulers_and_terminals_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    at_step(monkeypatch, {3: lambda: os.kill(os.getpid(), number)})
    result = train(small_recipe.recipe(100, 50), tmp_path)
    assert (result.finished, result.step, result.signal) == (False, 3, number)
    assert saved(tmp_path) == [3]


def test_a_terminal_that_is_gone_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = os.pipe()
    os.close(here)
    with os.fdopen(there, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        monkeypatch.setattr(sys, "__stderr__", stderr)
        # The wish to stop is written to the terminal too.
        at_step(monkeypatch, {3: lambda: os.kill(os.getpid(), signal.SIGHUP)})
        assert train(small_recipe.recipe(100, 50), tmp_path, shown=True).step == 3
    assert saved(tmp_path) == [3]


def test_weights_that_will_be_read_are_not_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small_recipe.recipe(8, 4)
    train(recipe, tmp_path, until=4)

    def drawn(*given: Any) -> None:
        raise AssertionError("drawn")

    monkeypatch.setattr(apply, "initialise", drawn)
    assert train(recipe, tmp_path, resume=True).finished


def test_a_long_start_is_not_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block that is initialised is progress; so is a step after the one that compiled."""
    phases: list[str] = []
    beat = Watchdog.beat

    def told(self: Watchdog, step: int, phase: str = "step") -> None:
        phases.append(phase)
        beat(self, step, phase)

    monkeypatch.setattr(Watchdog, "beat", told)
    monkeypatch.setattr("torch.compile", lambda function: function)
    train(small_recipe.recipe(3, 3, compile=True), tmp_path)
    assert phases[:4] == ["initialising"] * 4  # two blocks, the encoding, and what is in none
    assert phases[4:7] == ["compiling", "first step", "step"]


def test_resumed_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = small_recipe.recipe(8, 4)
    train(recipe, tmp_path, until=4, resume=True, shown=True)
    assert f"no checkpoint in {tmp_path}: begins at step 1" in capsys.readouterr().err
    train(recipe, tmp_path, resume=True, shown=True)
    assert f"continues from step 4: {tmp_path / 'checkpoints' / 'step-00000004'}" in capsys.readouterr().err


def test_drift_that_is_allowed_is_on_the_screen_and_in_the_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(small_recipe.recipe(8, 4), tmp_path, until=4)
    train(small_recipe.recipe(8, 4, seed=5), tmp_path, resume=True, allow_drift=True)
    assert "recipe.train.seed: was 0, is 5" in capsys.readouterr().err
    (event,) = read(tmp_path / "metrics.jsonl")["event"]
    assert event["what"] == "drift"
    assert event["differences"] == ["recipe.train.seed: was 0, is 5"]


def test_the_cure_that_is_named_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_step(monkeypatch, {6: lambda: float("nan")})
    with pytest.raises(Fault, match=r"write train\.faults\.policy=skip or rollback to go on past it"):
        train(small_recipe.recipe(8, 4), tmp_path)
    at_step(monkeypatch, {6: lambda: float("nan")})
    assert train(small_recipe.recipe(8, 4, faults={"policy": "skip"}), tmp_path, resume=True).finished
    stopped, skipped = read(tmp_path / "metrics.jsonl")["event"]
    assert stopped == skipped
    assert (stopped["what"], stopped["step"], stopped["loss"]) == ("not finite", 6, "nan")
    assert "decoder.blocks.0.attention.q.weight" in stopped["parameters"]
    assert len(stopped["samples"]) == 8


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 2 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "theirs").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_full_disk_is_survived(
    disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asynchronous: bool
) -> None:
    recipe = small_recipe.recipe(50, save={"every": 4, "asynchronous": asynchronous})
    at_step(monkeypatch, {6: lambda: fill(disk), 47: (disk / "theirs").unlink})
    result = train(recipe, disk / "run")
    assert result.finished
    assert saved(disk / "run")[-1] == 50
    records = read(disk / "run" / "metrics.jsonl")
    assert [record["step"] for record in records["train"]] == list(range(1, 51))
    assert records["event"][0]["what"] == "not saved"
    said = capsys.readouterr().err
    if not asynchronous:  # then a save that is given up leaves room for records
        assert "metrics.jsonl: No space left on device; records are kept in memory until there is room" in said
    assert "is not saved" in said


def test_a_finished_run_waits_for_room(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "TRY_AGAIN", 0.1)
    at_step(monkeypatch, {6: lambda: fill(disk)})
    threading.Timer(3.0, (disk / "theirs").unlink).start()
    assert train(small_recipe.recipe(8, 4), disk / "run").finished
    assert saved(disk / "run") == [4, 8]


def test_a_finished_run_does_not_wait_for_ever(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "WAIT_FOR_ROOM", 0.0)
    at_step(monkeypatch, {6: lambda: fill(disk)})
    with pytest.raises(DiskFull, match=r"step 8 is not saved.*Make room"):
        train(small_recipe.recipe(8, 4), disk / "run")
    assert saved(disk / "run") == [4]
    (disk / "theirs").unlink()
    monkeypatch.undo()
    assert train(small_recipe.recipe(8, 4), disk / "run", resume=True).finished


def test_what_a_recipe_does_not_get_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(small_recipe.recipe(2, 2, batch=190), tmp_path, shown=True)
    said = capsys.readouterr().err
    assert "train.batch=190 is no multiple of 16 tokens: every update has 192" in said
    assert "the learning rate rises to the end: train.schedule.warmup=100, the run has 2 steps" in said


def test_speed_is_of_tokens_that_are_not_padding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the time a batch takes to be read is time."""
    recipe = small_recipe.recipe(2, 2)
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"shortest": 1})})
    plain = Loop.batches

    def slow(self: Loop, start: int) -> Iterator[Any]:
        for batch in plain(self, start):
            time.sleep(0.2)
            yield batch

    monkeypatch.setattr(Loop, "batches", slow)
    train(recipe, tmp_path)
    data = open_data(recipe.data, stack="decoder", seed=0).batch("train", 0, rows=8)
    first = read(tmp_path / "metrics.jsonl")["train"][0]
    assert first["seconds"] >= 0.2
    real = int((data.at.segment >= 0).sum())
    assert real < 0.8 * 8 * 16
    assert first["tokens_per_second"] * first["seconds"] == pytest.approx(real, rel=1e-2)


def test_what_torchrun_restarts_is_resumed_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ropewalk.train.run.die_with_parent", lambda: None)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")  # as torchrun has it, unless it is told another
    recipe = small_recipe.recipe(8, 4)
    train(recipe, tmp_path, until=4)
    # Not by the same worker, which would not ask for it twice.
    with pytest.raises(ValueError, match="holds a run already"):
        train(recipe, tmp_path)
    worker, launcher = os.getpid(), os.getppid()
    monkeypatch.setattr(os, "getpid", lambda: launcher)  # a process that lives, and has not begun the run
    assert train(recipe, tmp_path).finished
    # Another start of torchrun is refused, and is not let in by its own restart.
    monkeypatch.setattr(os, "getppid", lambda: worker)
    for restarts in ("0", "1"):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
        with pytest.raises(ValueError, match="holds a run already"):
            train(recipe, tmp_path)


def test_every_worker_of_a_start_of_torchrun_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    store = dist.HashStore()
    assert launch_name(store) == ""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    assert launch_name(store) == launch_name(store) != launch_name(dist.HashStore()) != ""
    # A store that is made anew at every restart names nothing.
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "False")
    assert launch_name(store) == launch_name(dist.HashStore()) == launch_name(None)
    assert str(os.getppid()) in launch_name(None)


def test_one_rank_that_is_asked_is_enough() -> None:
    class Others:
        def agree(self, flag: bool) -> bool:
            return True

    assert Signals().asked(Others(), 1)  # pyrefly: ignore[bad-argument-type]
