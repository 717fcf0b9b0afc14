"""What measurements were computed with. Their keys name the model, the text and the scaling, and not the machine: what
one with other instructions computes in bfloat16 is another 1e-3 nats per token in the mean of a document.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch

COMPUTED_WITH = "computed_with.json"


def here() -> dict[str, str]:
    able = getattr(torch.cpu, "get_capabilities", dict)()  # of torch 2.13
    return {
        "torch": torch.__version__,
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "bfloat16": next((name for name in ("amx_bf16", "avx512_bf16") if able.get(name)), "no instructions"),
    }


def kept(work: Path, say: Callable[[str], None]) -> list[dict[str, str]]:
    """All that measured into this directory, this process included; says so where they are several."""
    file, now = work / COMPUTED_WITH, here()
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    if now in before:
        return before
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps([*before, now], indent=1), encoding="utf-8")
    partial.replace(file)
    if before:
        other = ", ".join(f"{key} {before[-1][key]}" for key in now if before[-1].get(key) != now[key])
        said = ", ".join(f"{key} {now[key]}" for key in now if before[-1].get(key) != now[key])
        say(
            f"{work} has measurements computed with {other}, and here it is {said}: the two round differently; to "
            "measure everything alike, give another --work"
        )
    return [*before, now]
