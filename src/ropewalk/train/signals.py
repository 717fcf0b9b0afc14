"""SIGTERM and SIGINT: the first is a wish, agreed on by all ranks at the end of a step; the second ends at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Self

from ropewalk.train import ranks

WATCHED = (signal.SIGTERM, signal.SIGINT)
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

    def asked(self, world: object = None, step: int | None = None) -> bool:
        """Whether any rank was asked to stop: the same answer on all, so they stop at the same step."""
        done = self._last is not None and step is not None and step >= self._last
        return bool(ranks.shared().most(int(self.received is not None or done)))

    def _receive(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.received is None:
            self.received, self._when = number, now
            name = signal.Signals(number).name
            os.write(
                sys.__stderr__.fileno() if sys.__stderr__ else 2, f"{name}: saving; again to end at once\n".encode()
            )
        elif now - self._when > TOGETHER:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
