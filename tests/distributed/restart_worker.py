"""One rank of test_a_killed_rank_is_replaced: the second one dies the first time, all of them meet again after it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch

from ropewalk.distributed import World

if __name__ == "__main__":
    world = World.start(timeout=60)
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    total = world.sum(torch.tensor(world.rank + 1))
    if attempt == 0 and world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    # The survivor waits here for the dead one, and is stopped by torchrun.
    agreed = world.agree(world.rank == 1)
    world.stop()
    left = sum("gloo" in comm.read_text() for comm in Path("/proc/self/task").glob("*/comm"))
    print(f"attempt {attempt}, rank {world.rank}: sum {int(total)}, agreed {agreed}, {left} threads left", flush=True)
