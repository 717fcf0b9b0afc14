"""A tournament as a process of its own, killed by SIGKILL at random moments: the same result at the end."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ropewalk.evaluate.passage import Passage
from ropewalk.evaluate.store import Stored
from ropewalk.extend.asking import Asking
from ropewalk.extend.candidates import Candidate
from ropewalk.extend.tournament import MEASUREMENTS, RESULT, alone, run, save
from ropewalk.trials.jobs import Workers
from tests.extend.toys import ROPE, TAIL, TO, Engineered, planted, sets

REPOSITORY = Path(__file__).parents[2]
KILLS = 10


class Slow(Engineered):
    """Each pass takes a while, so that there is something to kill; after so many it waits to be killed, however late a
    busy machine delivers that."""

    file: Path
    most: float

    def nats(self, passage: Passage, scaling: Any = None) -> Any:
        time.sleep(0.003 if measured(self.file) < self.most else 60.0)
        return super().nats(passage, scaling)


def tournament(directory: Path, most: float = math.inf) -> None:
    engine = Slow({4.0: TO, 8.0: TO, 6.0: TO}, {6.0: 0.1, 8.0: 0.3})
    engine.file, engine.most = directory / MEASUREMENTS, most
    candidates = [Candidate("leave", ""), Candidate("crop", "", text="cropped")]
    candidates += [planted(f"x{factor}", factor) for factor in (4, 5, 6, 8)]
    with alone(directory):
        asking = Asking(Stored(engine, directory / MEASUREMENTS), engine, Workers())
        save(directory, run(asking, ROPE, sets(), candidates, None, tail_tokens=TAIL, cheap=False).to_dict())


def begin(directory: Path, most: float = math.inf) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.extend.test_killed", str(directory), str(most)]
    return subprocess.Popen(command, cwd=REPOSITORY)


def measured(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def test_killed_ten_times_it_ends_with_the_same_table(tmp_path: Path) -> None:
    tournament(tmp_path / "whole")
    want, passes = (tmp_path / "whole" / RESULT).read_text(), measured(tmp_path / "whole" / MEASUREMENTS)
    draws, run_directory = random.Random(0), tmp_path / "killed"
    file = run_directory / MEASUREMENTS
    for drawn in sorted(draws.sample(range(1, passes * 2 // 3), KILLS)):
        # The run before may have come further than this when it was killed.
        moment = max(drawn, measured(file) + 1)
        process = begin(run_directory, most=moment + 1)
        while measured(file) < moment:
            assert process.poll() is None, "it ended before it was killed"
            time.sleep(0.001)
        with pytest.raises(ValueError, match="another run is at work"), alone(run_directory):
            pass
        process.kill()
        assert process.wait() == -9
        assert not (run_directory / RESULT).exists()
    assert begin(run_directory).wait() == 0
    assert (run_directory / RESULT).read_text() == want
    assert json.loads(want)["verdict"]["winner"] == "x4"
    # Nothing was measured twice, but for a line that a kill may have cut.
    assert measured(file) <= passes + KILLS


if __name__ == "__main__":
    tournament(Path(sys.argv[1]), float(sys.argv[2]))
