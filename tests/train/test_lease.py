"""One live run to a folder."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ropewalk.train.guard import lease as leases
from ropewalk.train.guard.lease import Lease, LeaseLost, LeaseTaken
from tests.distributed.steps import ALONE

REPOSITORY = Path(__file__).parents[2]
HOLD = """
import sys, time
from ropewalk.distributed.world import World
from ropewalk.train.guard.lease import Lease
with Lease(sys.argv[1], World.start()):
    print(1, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "src")}
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == b"1\n"
    return process


def test_a_live_run_is_left_alone_and_a_dead_one_is_not(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(LeaseTaken, match=f"process {holder.pid} on {socket.gethostname()}"), Lease(tmp_path, ALONE):
        pass
    assert time.monotonic() - began < 1.5
    holder.send_signal(signal.SIGKILL)
    # Not waited for: a process that is dead but not yet buried is dead.
    with Lease(tmp_path, ALONE) as lease:
        assert lease.epoch == 2
        lease.check()
    holder.communicate()


def test_in_turn(tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        with Lease(tmp_path, ALONE) as lease:
            assert lease.epoch == epoch
    assert json.loads((tmp_path / "lease.json").read_text()) == {"epoch": 3}


def test_a_process_number_that_is_used_again(tmp_path: Path) -> None:
    """Our own number, but a process that started at another time."""
    held = {"epoch": 4, "token": "x", **leases._self()}
    (tmp_path / "lease.json").write_text(json.dumps(held | {"started": held["started"] - 1}))
    with Lease(tmp_path, ALONE) as lease:
        assert lease.epoch == 5
    (tmp_path / "lease.json").write_text(json.dumps(held | {"boot": "before"}))
    with Lease(tmp_path, ALONE) as lease:
        assert lease.epoch == 5


def test_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "lease.json"
    held = {"epoch": 4, "token": "x", **leases._self(), "host": "elsewhere"}
    file.write_text(json.dumps(held))
    monkeypatch.setattr(leases, "BEAT", 0.1)
    # Just touched, and its process is gone: waited for, not refused. A restart on another node meets this.
    began = time.monotonic()
    with Lease(tmp_path, ALONE) as lease:
        assert lease.epoch == 5
    assert 0.4 <= time.monotonic() - began < 2


def test_another_machine_whose_clock_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "lease.json"
    file.write_text(json.dumps({"epoch": 4, "token": "x", **leases._self(), "host": "elsewhere"}))
    ticks = itertools.count(2)
    os.utime(file, (1, 1))
    # While it is watched, it is touched: with a time of its own.
    monkeypatch.setattr(leases.time, "sleep", lambda seconds: os.utime(file, (next(ticks), next(ticks))))
    with pytest.raises(LeaseTaken, match="on elsewhere"), Lease(tmp_path, ALONE):
        pass


def test_it_is_touched_while_it_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "BEAT", 0.02)
    with Lease(tmp_path, ALONE):
        before = (tmp_path / "lease.json").stat().st_mtime_ns
        end = time.monotonic() + 5
        while (tmp_path / "lease.json").stat().st_mtime_ns == before:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_a_loser_leaves_the_winner_its_lease(tmp_path: Path) -> None:
    with Lease(tmp_path, ALONE) as lease:
        winner = {"epoch": 2, "token": "winner", **leases._self()}
        leases._put(tmp_path / "lease.json", winner)
        with pytest.raises(LeaseLost):
            lease.check()
    assert json.loads((tmp_path / "lease.json").read_text()) == winner


def test_a_file_that_is_no_lease(tmp_path: Path) -> None:
    (tmp_path / "lease.json").write_text("{")
    with pytest.raises(LeaseTaken, match="remove it"), Lease(tmp_path, ALONE):
        pass


def test_a_shell_may_go(tmp_path: Path) -> None:
    """Only workers of a launcher die with their parent."""
    code = "import os; from ropewalk.train.guard.launcher import die_with_parent; die_with_parent(); print('lives')"
    for environment, says in (({}, b"lives\n"), ({"TORCHELASTIC_RUN_ID": "x"}, b"")):
        # The parent is `sh`, which is no launcher.
        done = subprocess.run(
            ["sh", "-c", f'{sys.executable} -c "{code}"; true'],
            env=os.environ | {"PYTHONPATH": str(REPOSITORY / "src")} | environment,
            capture_output=True,
            check=False,
        )
        assert done.stdout == says


def test_two_take_over_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both found the holder dead; the second must see that the first was faster."""
    alone = leases._only_one

    @contextmanager
    def overtaken(folder: Path) -> Iterator[None]:
        with alone(folder):
            leases._put(folder / "lease.json", {"epoch": 1, "token": "faster", **leases._self()})
            yield

    monkeypatch.setattr(leases, "_only_one", overtaken)
    with pytest.raises(LeaseTaken, match="was taken in this moment: epoch 1"), Lease(tmp_path, ALONE):
        pass
    assert json.loads((tmp_path / "lease.json").read_text())["token"] == "faster"
