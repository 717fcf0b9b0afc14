"""Ranks as forks of one process that has imported torch: a world of two in a fraction of a second.

`run` calls a function in each rank; `command` is `ropewalk ...` itself, with the environment that torchrun gives to its
workers: only the imports were done before. Only for processes that have no threads of their own; pytest starts the
campaigns that use this as processes.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from tests.train import small_recipe


def warm() -> None:
    """Imports what a run imports late, once for all forks."""
    import grain.python  # noqa: F401
    import torch._dynamo

    import ropewalk.cli.main
    import ropewalk.train.run
    from ropewalk.models.transformer import Transformer

    assert ropewalk.train.run
    assert ropewalk.cli.main
    with torch.device("meta"):
        Transformer(small_recipe.recipe().model)


def run(work: Callable[[int], object], ranks: int = 1, *, limit: float = 60.0, grace: float = 0.2) -> list[int]:
    """Exit codes, negative for signals. When one fails, the others are killed after a moment, as a launcher would."""
    with tempfile.TemporaryDirectory(prefix="ropewalk-forked-") as folder:
        pids = [_fork(work, rank, ranks, Path(folder)) for rank in range(ranks)]
        codes: dict[int, int] = {}
        end = time.monotonic() + limit
        while len(codes) < ranks:
            for rank, pid in enumerate(pids):
                if rank in codes:
                    continue
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    codes[rank] = os.waitstatus_to_exitcode(status)
                    if codes[rank]:
                        end = min(end, time.monotonic() + grace)
            if time.monotonic() > end:
                for rank, pid in enumerate(pids):
                    if rank not in codes:
                        os.kill(pid, signal.SIGKILL)
                end = float("inf")
            time.sleep(0.005)
        return [codes[rank] for rank in range(ranks)]


def command(arguments: Sequence[str], ranks: int, log: Path) -> list[int]:
    """`ropewalk` with these arguments in so many ranks: their process ids. What they write goes to the log."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log.unlink(missing_ok=True)
    return [_entered(list(arguments), rank, ranks, port, log) for rank in range(ranks)]


def _entered(arguments: list[str], rank: int, ranks: int, port: int, log: Path) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    code = 1
    try:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        places = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": ranks,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        os.environ |= {name: str(value) for name, value in places.items()} if ranks > 1 else {}
        torch.set_num_threads(1)
        sys.argv = ["ropewalk", *arguments]
        from ropewalk.__main__ import run as entry_point

        entry_point()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _fork(work: Callable[[int], object], rank: int, ranks: int, folder: Path) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    code = 1
    try:
        torch.set_num_threads(1)
        warnings.simplefilter("error")
        if ranks > 1:
            dist.init_process_group(
                "gloo",
                init_method=f"file://{folder / 'store'}",
                rank=rank,
                world_size=ranks,
                timeout=timedelta(seconds=60),
            )
        work(rank)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
