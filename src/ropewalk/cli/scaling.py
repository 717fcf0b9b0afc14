"""What `eval`, `extend` and `inspect` share: lengths and scalings as they are typed, and a line on what is computed."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ropewalk.amounts import amount, duration

if TYPE_CHECKING:
    from ropewalk.scaling import Scaling


NAMED = ("yarn", "linear", "ntk", "dynamic", "llama3")
"""Kinds that a factor and a trained length say all of."""


def named_scaling(kind: str, factor: float | None, trained: int, now: Scaling | None = None) -> Scaling:
    """The scaling of this kind, with those of the settings that it has. now: the checkpoint's own, whose other settings
    stay, as in what `inspect --to` prints."""
    from ropewalk.checkpoints.inspect.lengths import as_before
    from ropewalk.scaling import find

    if kind not in NAMED:
        near = get_close_matches(kind.lower(), NAMED, 1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise typer.BadParameter(f"no scaling {kind!r}{meant}; there are {', '.join(NAMED)}", param_hint="'--scaling'")
    if factor is None:
        raise typer.BadParameter(
            f"--scaling {kind} needs the wanted length over the trained one: add --factor 2", param_hint="'--scaling'"
        )
    cls = find(kind)
    given: dict[str, Any] = {"factor": factor, "trained": trained}
    found = cls(**{name: value for name, value in given.items() if name in cls.model_fields and value is not None})
    return as_before(now, found)


def tokens(said: str, option: str) -> int:
    """A number of tokens as it was typed."""
    try:
        return int(amount(said))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=f"'{option}'") from None


def local(path: str, command: str) -> None:
    """Raises for the name of a model on the hub, of which `inspect` alone reads the config."""
    if not Path(path).exists() and re.fullmatch(r"[\w.-]+/[\w.-]+", path):
        raise ValueError(
            f"{path} does not exist here, and {command} needs the weights: hf download {path} --local-dir MODEL"
        )


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
