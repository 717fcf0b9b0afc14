"""Loads or exports a checkpoint in a process of its own and prints what memory that took: what to do, PATH, OUT."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from ropewalk.checkpoints.export.convert import export
from ropewalk.checkpoints.load.model import load


def resident(key: str) -> int:
    """Bytes, from the kernel: VmRSS now, VmHWM at most. getrusage would count the process this one was forked from."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{key}:"))
    return int(line.split()[1]) << 10


def main() -> None:
    task, path, out = sys.argv[1:]
    torch.set_num_threads(1)
    before, model = resident("VmRSS"), 0
    if task == "load":
        model = sum(parameter.nbytes for parameter in load(path).parameters())
    else:
        export(path, out, format="gguf" if task == "gguf" else "hf")
    print(json.dumps({"before": before, "peak": resident("VmHWM"), "model": model}))


if __name__ == "__main__":
    main()
