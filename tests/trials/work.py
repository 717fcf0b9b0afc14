"""What the workers of a test do: in a file that imports little, as each of them imports it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def scaled(factor: int, job: int) -> tuple[int, int]:
    time.sleep(0.02 * (job % 3))
    return factor * job, os.getpid()


def dies_once(folder: str, job: int) -> int:
    """Job 3 ends its worker the first time, in the middle."""
    mark = Path(folder) / "died"
    if job == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return job


def dies(_: None, job: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuses(_: None, job: int) -> int:
    if job == 5:
        raise ValueError(f"job {job} is refused")
    return job


def variable(name: str, job: int) -> str | None:
    return os.environ.get(name)


def slow(folder: str, job: int) -> None:
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(60)
