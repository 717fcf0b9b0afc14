"""One rank of test_a_killed_rank_is_replaced: the second one dies the first time, all of them meet again after it."""

from __future__ import annotations

import os
import signal

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
    print(f"attempt {attempt}, rank {world.rank}: sum {int(total)}, agreed {agreed}", flush=True)
    world.stop()
