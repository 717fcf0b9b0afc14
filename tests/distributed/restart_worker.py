"""One rank of a run on two machines: the second is killed once, and both must meet again after it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch

from ropewalk.distributed import World

if __name__ == "__main__":
    failed = Path(sys.argv[1]) / "failed"
    is_first = not failed.exists()
    world = World.start(timeout=60)
    total = world.sum(torch.tensor(world.rank + 1))
    if is_first and world.rank == 1:
        failed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if is_first:
        signal.pause()  # healthy, as one that waits in nccl: it is stopped by its own launcher
    agreed = world.agree(world.rank == 1)
    world.stop()
    left = sum("gloo" in comm.read_text() for comm in Path("/proc/self/task").glob("*/comm"))
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    print(f"attempt {attempt}, rank {world.rank}: sum {int(total)}, agreed {agreed}, {left} threads left", flush=True)
