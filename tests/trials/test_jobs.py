"""Jobs over workers: results in order, a dead worker's job done again, errors as they were, no worker left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import pytest

from ropewalk.system import started
from ropewalk.trials.jobs import AHEAD, Pool, Workers, mapped
from tests.trials.work import dies, dies_once, refuses, scaled, variable

On = Literal["local", "ray"]
RAY = pytest.param(
    "ray",
    marks=[
        pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install 'ropewalk[cluster]'"),
        pytest.mark.filterwarnings("default"),  # Ray's own imports warn
    ],
)
EACH = pytest.mark.parametrize("on", ["local", RAY])
SOURCE = Path(__file__).parents[2] / "src"
PARENT = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from tests.trials.work import slow
from ropewalk.trials.jobs import Workers, mapped
if __name__ == "__main__":
    for _ in mapped(slow, sys.argv[2], range(4), Workers(2)):
        pass
"""


@EACH
def test_results_come_in_order_from_several_processes(on: On) -> None:
    found = list(mapped(scaled, 7, range(20), Workers(3, on)))
    assert [result for result, _ in found] == [7 * job for job in range(20)]
    by = {process for _, process in found}
    assert os.getpid() not in by
    assert len(by) >= 2


def test_one_local_worker_is_this_process() -> None:
    assert list(mapped(scaled, 2, [5], Workers())) == [(10, os.getpid())]


def test_workers_of_a_pool_stay_until_it_is_closed() -> None:
    """What they opened is not opened again by the next call; after an error they are others."""
    pool = Pool(scaled, 3, Workers(2))
    assert list(pool([])) == []
    assert pool._pool is None, "nothing to do starts nobody"
    first, second = ({process for _, process in pool(range(6))} for _ in range(2))
    assert first == second
    assert len(first) == 2
    some = pool(range(100))
    next(some)
    some.close()  # with jobs under way
    assert not any(started(process) for process in first)
    assert [result for result, _ in pool(range(6))] == [3 * job for job in range(6)]
    pool.close()


@EACH
def test_a_dead_worker_changes_nothing(on: On, tmp_path: Path) -> None:
    said: list[str] = []
    assert list(mapped(dies_once, str(tmp_path), range(8), Workers(2, on, say=said.append))) == list(range(8))
    (line,) = said
    assert "a worker was lost" in line
    if on == "local":
        assert "killed by SIGKILL" in line


def test_a_job_that_ends_every_worker_is_given_up() -> None:
    said: list[str] = []
    with pytest.raises(RuntimeError, match="job 1 ended 3 workers, the last one: killed by SIGKILL"):
        list(mapped(dies, None, [1], Workers(2, say=said.append)))
    assert len(said) == 2


@EACH
def test_an_error_is_the_jobs_own(on: On) -> None:
    with pytest.raises(ValueError, match=r"^job 5 is refused$"):
        list(mapped(refuses, None, range(9), Workers(2, on)))


@EACH
def test_workers_get_variables(on: On, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROPEWALK_TEST", raising=False)
    workers = Workers(2, on, {"ROPEWALK_TEST": "here"})
    assert list(mapped(variable, "ROPEWALK_TEST", range(3), workers)) == ["here"] * 3
    assert "ROPEWALK_TEST" not in os.environ


def test_jobs_are_taken_as_they_are_needed() -> None:
    taken: list[int] = []

    def jobs() -> Iterator[int]:
        for job in range(1000):
            taken.append(job)
            yield job

    found = mapped(scaled, 1, jobs(), Workers(2))
    assert next(found)[0] == 0
    found.close()
    assert len(taken) <= 2 * AHEAD + 1


def test_no_worker_outlives_its_parent(tmp_path: Path) -> None:
    root = str(SOURCE.parent)
    script = tmp_path / "parent.py"
    script.write_text(PARENT, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), root])}
    (tmp_path / "marks").mkdir()
    with subprocess.Popen([sys.executable, str(script), root, str(tmp_path / "marks")], env=environment) as parent:
        workers = waited(lambda: list((tmp_path / "marks").iterdir()), lambda found: len(found) == 2)
        parent.kill()
    alive = waited(lambda: [w for w in workers if started(int(w.name)) is not None], lambda found: not found)
    assert alive == []


def waited(look, enough, seconds: float = 30):
    """What is there once it is enough, or when time is up."""
    end = time.monotonic() + seconds
    while not enough(found := look()) and time.monotonic() < end:
        time.sleep(0.05)
    return found
