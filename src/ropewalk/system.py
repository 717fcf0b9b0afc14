"""What is asked of the operating system and not every one has. Importing this needs no more than Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROCESSES = Path("/proc")
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt, as malloc.h numbers them."""


def lock(descriptor: int) -> None:
    """Makes an open file this process's alone until it is closed; BlockingIOError where another has it."""
    try:
        import fcntl
    except ImportError:
        said = "This needs file locks as Linux and macOS have them; on Windows run it under WSL"
        raise ImportError(said) from None
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def peak_memory() -> int | None:
    """Bytes this process held at its peak; None where the system does not say."""
    try:
        import resource
    except ImportError:
        return None
    # macOS counts in bytes, others in KiB.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def keep_freed_memory() -> bool:
    """From now on, where the C library is glibc, large blocks that are freed stay in this process. By default each goes
    back to the system, and the next layer waits for as many pages to be zeroed. False: nothing was changed."""
    if sys.platform != "linux":
        return False
    import ctypes  # which most commands do without

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(M_MMAP_MAX, 0) == 1 and mallopt(M_TRIM_THRESHOLD, -1) == 1


def started(pid: int) -> int | str | None:
    """When a process started, as this system tells it; None where there is no such process, or only what is left."""
    if not (PROCESSES / "self" / "stat").exists():  # macOS
        asked = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
        said = subprocess.run(asked, env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True, check=False)
        state, _, when = said.stdout.strip().partition(" ")
        return None if state[:1] in ("", "Z") else " ".join(when.split())
    try:
        after = (PROCESSES / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if after[0] in "ZX" else int(after[19])


def tell(text: str) -> None:
    """A line on stderr. A terminal or a pipe that has gone is no reason for a long run to end."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)
