"""What `eval` and `extend` share: the scaling that a person names, and one line on what is being computed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ropewalk.amounts import duration

if TYPE_CHECKING:
    from ropewalk.scaling import Scaling


def named_scaling(kind: str, factor: float | None, trained: int, now: Scaling | None = None) -> Scaling:
    """The scaling of this kind, with those of the settings that it has. now: the checkpoint's own, whose other settings
    stay, as in what `inspect --to` prints."""
    from ropewalk.checkpoints.inspect.lengths import as_before
    from ropewalk.scaling import find

    cls = find(kind)
    given: dict[str, Any] = {"factor": factor, "trained": trained}
    found = cls(**{name: value for name, value in given.items() if name in cls.model_fields and value is not None})
    return as_before(now, found)


class Left:
    """How long a stage still takes, from those of its steps that were computed and not found in a store."""

    FOUND = 0.05
    """Seconds below which a step was not computed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.stage = clock, ""

    def __call__(self, stage: str, done: int, total: int) -> str:
        now = self.clock()
        if stage != self.stage:
            self.stage, self.done, self.then, self.spent, self.steps = stage, done, now, 0.0, 0
        elif done > self.done and now - self.then > self.FOUND:
            self.spent, self.steps = self.spent + now - self.then, self.steps + done - self.done
        self.done, self.then = done, now
        if not self.steps:
            return f"{stage} {done:,} of {total:,}"
        left = self.spent / self.steps * (total - done)
        return f"{stage} {done:,} of {total:,}, {duration(left)} left"


@contextmanager
def status_line(silent: bool) -> Iterator[Callable[[str], None]]:
    """Shows what is being computed, on a terminal, and erases it at the end."""
    shown = not silent and sys.stderr.isatty()

    def show(text: str) -> None:
        if shown:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        show("")
