"""What is asked of the operating system, on one that has /proc and on one that has not."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from ropewalk import system


@pytest.mark.parametrize("processes", [Path("/proc"), Path("/nowhere")])
def test_when_a_process_started(monkeypatch: pytest.MonkeyPatch, processes: Path) -> None:
    monkeypatch.setattr(system, "PROCESSES", processes)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    began = system.started(child.pid)
    assert began is not None
    assert system.started(child.pid) == began
    child.kill()
    limit = time.monotonic() + 30
    while system.started(child.pid) is not None:  # it is dead, and its parent has not asked how it ended
        assert time.monotonic() < limit
        time.sleep(0.05)
    child.communicate()
    assert system.started(child.pid) is None


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as one, (tmp_path / "lock").open("w") as other:
        system.lock(one.fileno())
        with pytest.raises(BlockingIOError):
            system.lock(other.fileno())
        one.close()
        system.lock(other.fileno())


def test_memory_is_in_bytes() -> None:
    peak = system.peak_memory()
    assert peak is not None
    assert 2**23 < peak < 2**40


KEPT = """
import ctypes, resource
from ropewalk import system

library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.malloc.argtypes, library.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]

def faults() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        block = library.malloc(1 << 26)
        ctypes.memset(block, 1, 1 << 26)
        library.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = faults()
kept = system.keep_freed_memory()
faults()
print(int(kept), before, faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is Linux's")
def test_freed_memory_is_kept() -> None:
    """In a process of its own, since this changes how a process allocates."""
    run = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, check=True)
    kept, before, after = map(int, run.stdout.split())
    if not kept:
        pytest.skip("another C library than glibc")
    assert before > 8 * (1 << 26) / (1 << 21) > 8 * after  # pages of 2 MiB at the largest
