"""Places where a process can be made to die, so that a test can show what is left behind.

    ROPEWALK_CRASH_AT=save.manifest      dies there, as by `kill -9`: no handler runs, nothing is flushed
    ROPEWALK_CRASH_AT=save.manifest:3    the third time it comes by

Modules that write list their places in `POINTS`; a campaign visits every one of them.
"""

from __future__ import annotations

import os
import signal

_seen: dict[str, int] = {}


def here(point: str) -> None:
    asked = os.environ.get("ROPEWALK_CRASH_AT")
    if not asked:
        return
    name, _, times = asked.partition(":")
    if name == point:
        _seen[point] = _seen.get(point, 0) + 1
        if _seen[point] == int(times or 1):
            os.kill(os.getpid(), signal.SIGKILL)
