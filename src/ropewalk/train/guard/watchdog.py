"""A rank that hangs is named, with the stacks of all that can still speak, and the run ends so that it can start again.

    RUN/stacks/rank-1.json    where rank 1 was when it found that nothing moved: step, line, whether it waits for others
    RUN/stacks/rank-1.txt     its stacks

Every rank has a thread that looks at the rank's own progress, and writes only when there is none: all wait for the one
that hangs, so all find it at the same time. Files and not the store of the process group, which is kept by a process
that may be the one that hangs. A rank is named if it does not answer; else if it is behind the others; else if it is
the one that is not waiting in a collective.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from ropewalk.distributed.ranks import Ranks
from ropewalk.train.guard.faults import FaultConfig

TEMPORARY_FAILURE = 75
"""Exit code: EX_TEMPFAIL, starting again may help."""
SLOWER = 5
"""Times the slowest step so far, where that is longer than the limit."""
STEP, FIRST = "step", "first step"
PATIENT = 10
"""Times the limit, for what takes longer than a step: the first one, a measurement, a save."""
NOTICED, ANSWERED = 0.8, 0.15
"""Shares of the limit: when a rank finds that it hangs, and how long it then waits for what the others say."""


class Watchdog:
    """Around the steps of a run; `beat` is called by the thread that takes them."""

    def __init__(self, config: FaultConfig, ranks: Ranks, folder: Path) -> None:
        self.hang, self.folder, self.ranks = config.hang, Path(folder), ranks
        self.step, self.phase, self.since, self.slowest = 0, "start", time.monotonic(), 0.0
        self.collecting = False
        """Whether the watched thread reads a number that all ranks compute: where it waits for them on a GPU."""
        self._tick = min(1.0, self.hang / 20)
        self._watched = threading.get_ident()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._forget()
        self._watched, self.since = threading.get_ident(), time.monotonic()
        self._stacks = self._file(self.ranks.rank, "txt").open("w", encoding="utf-8")
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        faulthandler.cancel_dump_traceback_later()
        self._stacks.close()
        self._forget()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around what reads a number from the device after a collective."""
        self.collecting = True
        try:
            yield
        finally:
            self.collecting = False

    def beat(self, step: int, phase: str = STEP) -> None:
        """So many steps are done, and this begins: a `step` has the limit, anything else ten times as long."""
        now = time.monotonic()
        if self.phase in (STEP, FIRST):
            self.slowest = max(self.slowest, now - self.since)
        self.step, self.phase, self.since = step, phase, now

    @property
    def limit(self) -> float:
        """Seconds. A run whose steps are slow has no hang where a step takes as long as they do."""
        own = max(self.hang, SLOWER * self.slowest)
        return own if self.phase == STEP else PATIENT * own

    def _watch(self) -> None:
        while not self._ended.wait(self._tick):
            limit = self.limit
            # A call in C that keeps the interpreter to itself stops this thread too; then this goes off by itself.
            faulthandler.dump_traceback_later(limit, exit=True, file=self._stacks)
            if time.monotonic() - self.since > NOTICED * limit:
                self._end(limit)

    def _end(self, limit: float) -> None:
        faulthandler.cancel_dump_traceback_later()
        waiting, line = self._where()
        said = {"step": self.step, "phase": self.phase, "waiting": waiting, "line": line, "pid": os.getpid()}
        self._file(self.ranks.rank, "json").write_text(json.dumps(said), encoding="utf-8")
        faulthandler.dump_traceback(file=self._stacks, all_threads=True)
        if self.ranks.size > 1:
            time.sleep(min(10.0, ANSWERED * limit))
        told = {rank: self._read(rank) for rank in range(self.ranks.size)}
        speaker = min((rank for rank, each in told.items() if each), default=self.ranks.rank)
        if self.ranks.rank == speaker:
            print(report(told, limit, self.folder), file=sys.stderr, flush=True)
        os._exit(TEMPORARY_FAILURE)

    def _where(self) -> tuple[bool, str]:
        """Whether the watched thread is in a collective, and its innermost line."""
        frame: FrameType | None = sys._current_frames().get(self._watched)  # noqa: SLF001  the documented name
        if frame is None:
            return False, "its end"
        line = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        waiting, depth = self.collecting, 0
        while frame is not None and depth < 12:
            waiting = waiting or f"torch{os.sep}distributed{os.sep}" in frame.f_code.co_filename
            frame, depth = frame.f_back, depth + 1
        return waiting, line

    def _file(self, rank: int, ending: str) -> Path:
        return self.folder / f"rank-{rank}.{ending}"

    def _forget(self) -> None:
        for ending in ("json", "txt"):
            self._file(self.ranks.rank, ending).unlink(missing_ok=True)

    def _read(self, rank: int) -> dict[str, Any]:
        try:
            return json.loads(self._file(rank, "json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}


def blame(told: dict[int, dict[str, Any]]) -> dict[int, str]:
    """Ranks that hold up the others, each with the reason. Empty: all wait for one another."""
    if silent := [rank for rank, each in told.items() if not each]:
        return dict.fromkeys(silent, "does not answer; its process is stopped or gone")
    steps = [each["step"] for each in told.values()]
    if min(steps) != max(steps):
        late = [rank for rank, each in told.items() if each["step"] == min(steps)]
        return {
            rank: f"has done {min(steps)} steps, others {max(steps)}; it is at {told[rank]['line']}" for rank in late
        }
    busy = [rank for rank, each in told.items() if not each["waiting"]]
    return {rank: f"does not wait for others, it is at {told[rank]['line']}" for rank in busy}


def report(told: dict[int, dict[str, Any]], limit: float, folder: Path) -> str:
    done = max((each["step"] for each in told.values() if each), default=0)
    lines = [f"nothing moved for {limit:g} s after {done} steps; the stacks of the ranks are in {folder}"]
    named = blame(told)
    lines += [f"rank {rank} hangs: it {reason}" for rank, reason in named.items()]
    if not named:
        lines.append("every rank waits for the others: they do not take part in the same collective")
    return "\n".join(lines)
