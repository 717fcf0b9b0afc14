"""What is asked of the operating system and not every one has. Importing this needs no more than Python."""

from __future__ import annotations

import sys


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
