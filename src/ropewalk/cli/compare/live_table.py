"""The live table of a study: every trial under way, its step and loss, and how long it still takes."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.amounts import duration
from ropewalk.cli.output import note

if TYPE_CHECKING:
    from rich.table import Table

    from ropewalk.compare.driver import Watcher
    from ropewalk.compare.trials import Trial

EVERY = 1.0
"""Seconds between two looks."""
LAST = 8192
"""Bytes at the end of a record that are read."""


@contextmanager
def table_of_trials(silent: bool) -> Iterator[Watcher]:
    """A table on a terminal, elsewhere one line for each trial that is done; silent: nothing."""
    from ropewalk.compare.driver import Watcher

    if silent:
        yield Watcher()
        return
    shown = _Live() if sys.stderr.isatty() else _Lines()
    try:
        yield Watcher(shown.say, shown.begin, shown.done)
    finally:
        shown.close()


class _Lines:
    def __init__(self) -> None:
        self.total = self.count = 0

    def say(self, text: str) -> None:
        note(text)

    def begin(self, trials: Sequence[Trial], out: Path) -> None:
        self.total, self.count = len(trials), 0

    def done(self, trial: Trial) -> None:
        self.count += 1
        note(f"{self.count} of {self.total}: {trial.name}")

    def close(self) -> None:
        pass


class _Live(_Lines):
    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__()
        self.trials: dict[str, Trial] = {}
        self.out: Path | None = None
        self.live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
        self.live.start()
        self.end = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()

    def say(self, text: str) -> None:
        self.live.console.print(text, highlight=False, markup=False)

    def begin(self, trials: Sequence[Trial], out: Path) -> None:
        super().begin(trials, out)
        self.trials, self.out = {trial.hash: trial for trial in trials}, out

    def done(self, trial: Trial) -> None:
        self.count += 1

    def close(self) -> None:
        self.end.set()
        self.thread.join()
        self.live.stop()

    def _look(self) -> None:
        while not self.end.wait(EVERY):
            if self.out is not None:
                self.live.update(rows(self.trials, self.out), refresh=True)


def rows(trials: dict[str, Trial], out: Path) -> Table:
    """What the folders of the trials say of them, wherever they run."""
    from rich.table import Table

    done = sum((out / "trials" / f"{name}.json").is_file() for name in trials)
    shown = Table(title=f"{done} of {len(trials)} trials done", title_justify="left", box=None)
    for heading in ("trial", "step", "loss", "tokens/s", "time left"):
        shown.add_column(heading, justify="left" if heading == "trial" else "right")
    for trial in trials.values():
        record = last_step(out / "runs" / trial.training / "metrics.jsonl")
        if record is not None:
            steps = _steps(trial)
            left = (steps - record["step"]) * record["seconds"]
            loss, speed = f"{record['loss']:.3f}", f"{record['tokens_per_second']:,.0f}"
            shown.add_row(trial.name, f"{record['step']:,}/{steps:,}", loss, speed, duration(left))
    return shown


def _steps(trial: Trial) -> int:
    from ropewalk.train.plan.sizes import sizes

    return sizes(trial.recipe.train, trial.recipe.data.length, 1).steps


def last_step(file: Path) -> dict[str, Any] | None:
    """The last whole record of a step."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - LAST))
            lines = opened.read().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and "kind" not in record and "loss" in record:
            return record
    return None
