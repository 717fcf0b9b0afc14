"""Workers that go when their launcher does: torchrun starts them in sessions of their own and, killed, leaves them.

Without torch, so that it can be called before torch is imported, which takes seconds in which a launcher can die.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

PR_SET_PDEATHSIG = 1
_watched: set[int] = set()


def die_with_parent() -> None:
    """A worker of torchrun ends when torchrun does, however that ends. Other processes may outlive their shell."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    parent = os.getppid()
    if os.getpid() in _watched:
        return
    _watched.add(os.getpid())
    if not _is_python(parent):
        os._exit(128 + signal.SIGTERM)  # the launcher went before we came to this line, and another took us over
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def poll() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=poll, name="parent", daemon=True).start()


def _is_python(pid: int) -> bool:
    """As torchrun is, and what inherits its children is not. True where one cannot know."""
    try:
        return "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return True
