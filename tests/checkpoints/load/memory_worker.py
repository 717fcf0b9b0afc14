"""Loads or exports a checkpoint in a process of its own and prints what memory that took: what to do, PATH, OUT, ...

Each is a fork of this process, which has done the imports. What an export to a directory has written is removed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from pathlib import Path

import torch

from ropewalk.checkpoints.export.convert import export
from ropewalk.checkpoints.load.model import load


def resident(key: str) -> int:
    """Bytes, from the kernel: VmRSS now, VmHWM at most. getrusage would count the process this one was forked from."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{key}:"))
    return int(line.split()[1]) << 10


def run(task: str, path: str, out: str) -> None:
    before, model = resident("VmRSS"), 0
    if task == "load":
        model = sum(parameter.nbytes for parameter in load(path).parameters())
    else:
        export(path, out, format="gguf" if task == "gguf" else "hf")
    print(json.dumps({"before": before, "peak": resident("VmHWM"), "model": model}), flush=True)


def main() -> int:
    torch.set_num_threads(1)
    given = iter(sys.argv[1:])
    for task, path, out in zip(given, given, given, strict=True):
        if (pid := os.fork()) == 0:
            try:
                run(task, path, out)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        if os.waitpid(pid, 0)[1]:
            return 1
        if task == "hf":
            shutil.rmtree(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
