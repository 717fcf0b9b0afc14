"""Runs that hang and runs that are told to stop: real processes, and what they say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ropewalk.train.guard import watchdog
from ropewalk.train.guard.faults import FaultConfig
from ropewalk.train.guard.watchdog import TEMPORARY_FAILURE, blame, report
from tests.distributed.steps import ALONE

REPOSITORY = Path(__file__).parents[2]


def launch(out: Path, *arguments: str, ranks: int = 1) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
    command = [sys.executable, *(torchrun if ranks > 1 else []), "-m", "tests.train.tiny_run", str(out), *arguments]
    return subprocess.Popen(
        command, env=environment, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def until_it_trains(out: Path, limit: float = 120.0) -> None:
    end = time.monotonic() + limit
    while not (out / "losses.jsonl").exists() or not (out / "losses.jsonl").read_text():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_rank_that_hangs_is_named(tmp_path: Path) -> None:
    said, _ = launch(tmp_path, "--hang", "4", "--hang-at", "1:3:sleep", ranks=2).communicate(timeout=200)
    assert "nothing moved for 4 s after 3 steps" in said
    assert "rank 1 hangs: it does not wait for others, it is at" in said
    assert "rank 0 hangs" not in said
    assert "in hang" in (tmp_path / "stacks" / "rank-1.txt").read_text()
    assert "tiny_run.py" in (tmp_path / "stacks" / "rank-0.txt").read_text()


def test_a_rank_that_is_stopped_is_named(tmp_path: Path) -> None:
    run = launch(tmp_path, "--hang", "4", "--slow", "0.05", "--steps", "100000", ranks=2)
    until_it_trains(tmp_path)
    os.kill(int((tmp_path / "pid-1").read_text()), signal.SIGSTOP)
    began = time.monotonic()
    assert run.stdout is not None
    lines = []
    while "rank 1 hangs: it does not answer" not in "".join(lines):
        line = run.stdout.readline()
        assert line, "".join(lines)
        lines.append(line)
    assert time.monotonic() - began < 4 + 2
    os.kill(int((tmp_path / "pid-1").read_text()), signal.SIGKILL)
    run.communicate(timeout=60)


def test_alone(tmp_path: Path) -> None:
    run = launch(tmp_path, "--hang", "2", "--hang-at", "0:2:spin")
    said, _ = run.communicate(timeout=120)
    assert run.returncode == TEMPORARY_FAILURE
    assert "rank 0 hangs: it does not wait for others, it is at" in said


def test_nothing_is_left_of_a_run_that_went_well(tmp_path: Path) -> None:
    run = launch(tmp_path, "--hang", "5")
    run.communicate(timeout=120)
    assert run.returncode == 0
    assert list((tmp_path / "stacks").iterdir()) == []


@pytest.mark.parametrize("ranks", [1, 2])
def test_told_to_stop_it_saves_first(tmp_path: Path, ranks: int) -> None:
    run = launch(tmp_path, "--slow", "0.05", "--steps", "100000", "--every", "100000", "--asynchronous", ranks=ranks)
    until_it_trains(tmp_path)
    began = time.monotonic()
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=60)
    assert time.monotonic() - began < 30
    steps = len((tmp_path / "losses.jsonl").read_text().splitlines())
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [f"step-{steps:08d}"]


def test_told_twice_it_ends_at_once(tmp_path: Path) -> None:
    run = launch(tmp_path, "--slow", "30", "--steps", "100000")
    end = time.monotonic() + 120
    while not (tmp_path / "pid-0").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    time.sleep(1.5)
    assert run.poll() is None
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=10)
    assert run.returncode == -signal.SIGINT


def waiting(step: int, is_waiting: bool) -> dict[str, object]:
    return {"step": step, "waiting": is_waiting, "line": "a.py:1 in f"}


def test_who_is_to_blame() -> None:
    assert list(blame({0: waiting(3, True), 1: {}})) == [1]
    assert list(blame({0: waiting(3, True), 1: waiting(2, True)})) == [1]
    assert list(blame({0: waiting(3, True), 1: waiting(3, False)})) == [1]
    assert list(blame({0: waiting(3, True), 1: waiting(3, True)})) == []
    assert "every rank waits" in report({0: waiting(3, True), 1: waiting(3, True)}, 60.0, Path("stacks"))


def test_who_reads_a_number_of_all_ranks_waits_for_them(tmp_path: Path) -> None:
    """On a GPU a rank waits for the others where it reads the loss, not in a call of torch.distributed."""
    watched = watchdog.Watchdog(FaultConfig(), ALONE, tmp_path)
    assert watched._where()[0] is False
    with watched.reading():
        assert watched._where()[0] is True
    assert watched._where()[0] is False


def test_a_run_of_slow_steps_is_not_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a step took a minute, the next may: the limit follows the slowest."""
    clock = [0.0]
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: clock[0])
    watched = watchdog.Watchdog(FaultConfig(hang=60), ALONE, tmp_path)
    assert watched.limit == 600
    watched.beat(0)
    assert watched.limit == 60
    clock[0] = 50.0
    watched.beat(1)
    assert watched.limit == 250
    watched.beat(1, "saving")
    assert watched.limit == 2500
