"""Signals that ask a run to stop: the first is a wish, agreed on by all ranks after a step; a second ends it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

from ropewalk.distributed.world import World

WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
"""From a scheduler, a person, a terminal that has gone, and what Slurm is told to send before the time is up."""
# A launcher passes on what the terminal has sent already: that is one wish, not two.
TOGETHER = 1.0


class Signals:
    def __init__(self) -> None:
        self.received: int | None = None
        self._when = 0.0
        self._last: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._receive) for number in WATCHED}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def stop_after(self, step: int) -> None:
        """As if a signal came when so many steps are done."""
        self._last = step

    def asked(self, world: World, step: int) -> bool:
        """Whether any rank was asked to stop: the same answer on all, so they stop at the same step."""
        return world.agree(self.received is not None or (self._last is not None and step >= self._last))

    def _receive(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.received is None:
            self.received, self._when = number, now
            name = signal.Signals(number).name
            with suppress(OSError):  # the terminal may be what has gone
                os.write(
                    sys.__stderr__.fileno() if sys.__stderr__ else 2,
                    f"{name}: saving; again to end at once\n".encode(),
                )
        elif now - self._when > TOGETHER:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
