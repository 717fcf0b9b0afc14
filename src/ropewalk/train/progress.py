"""What a person sees of a run: a bar with the time to go on a terminal, a plain line now and then anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from ropewalk.system import tell

LINE_EVERY = 10.0
"""Seconds between lines off a terminal."""
SMOOTHED = 0.1
"""Share of the last step in the speed that is shown."""


class Progress:
    def __init__(self, steps: int, done: int, *, shown: bool) -> None:
        self.steps, self.shown, self.said = steps, shown, 0.0
        self.bar: Any = None
        self.speed: float | None = None
        self.began, self.first = time.monotonic(), done
        if shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}"), BarColumn(None), MofNCompleteColumn(), TimeRemainingColumn())
            self.bar = Bar(*columns, console=Console(stderr=True))
            self.task = self.bar.add_task("train", total=steps, completed=done)

    def __enter__(self) -> Self:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.bar is not None:
            self._on_bar(self.bar.stop)

    def step(self, record: dict[str, Any]) -> None:
        if not self.shown:
            return
        now = record["tokens_per_second"]
        self.speed = now if self.speed is None else (1 - SMOOTHED) * self.speed + SMOOTHED * now
        text = (
            f"loss {record['loss']:.4f}  norm {record['norm']:.3g}  lr {record['lr']:.2e}"
            f"  {self.speed:,.0f} tokens/s"
            f"  {record['memory'] / 2**20:,.0f} MiB" + (f"  MFU {record['mfu']:.0%}" if record.get("mfu") else "")
        )
        done = record["step"]
        if self.bar is not None:
            self._on_bar(lambda: self.bar.update(self.task, completed=done, description=text))
        elif time.monotonic() - self.said >= LINE_EVERY or done in (self.first + 1, self.steps):
            self.said = time.monotonic()
            left = (self.said - self.began) / max(1, done - self.first) * (self.steps - done)
            self.say(f"step {done:,} of {self.steps:,}  {text}  {_clock(left)} to go")

    def say(self, text: str) -> None:
        if not self.shown:
            return
        if self.bar is not None:
            self._on_bar(lambda: self.bar.console.print(text, highlight=False, markup=False))
        else:
            tell(text)

    def _on_bar(self, act: Callable[[], object]) -> None:
        """A terminal that has gone takes its bar with it, not the run."""
        try:
            act()
        except OSError:
            self.bar, self.shown = None, False


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
