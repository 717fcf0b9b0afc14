"""What every benchmark says and how: bars with a bound, the verdict first, JSON on request, and 1 as exit code."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

# With its defaults, malloc maps every large tensor afresh. The page faults cost more than the copy and would flatter
# everything that is measured against it.
ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "17179869184"}
# Those who measure ask for the compiled rotation, as `ropewalk train` does; rope.py states the default beside it.
ENVIRONMENT |= {"ROPEWALK_COMPILE": "1"}


def bar(value: float, bound: float, *, at_least: bool) -> dict[str, Any]:
    # Three decimals, or three digits of what is smaller.
    shown = round(value, 3) if abs(value) >= 1 else float(f"{value:.3g}")
    return {"value": shown, "bound": bound, "holds": value >= bound if at_least else value <= bound}


def interleaved(steps: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each, once a round and in turn, so that whatever else the machine does slows all alike."""
    for one in steps.values():
        for _ in range(3):
            one()
    spent: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, one in steps.items():
            began = time.perf_counter()
            one()
            spent[name].append(time.perf_counter() - began)
    return spent


def versions(packages: Iterable[str]) -> dict[str, str]:
    import torch

    import ropewalk

    found = {"python": platform.python_version(), "torch": torch.__version__, "ropewalk": ropewalk.__version__}
    found |= {"threads": str(torch.get_num_threads()), "vectors": torch.backends.cpu.get_cpu_capability()}
    found |= processor()
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "absent"
    return found


def processor() -> dict[str, str]:
    """What a figure depends on and a version does not say: without bfloat16 instructions, bfloat16 is emulated."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {"cpu": platform.processor() or platform.machine(), "bfloat16 instructions": "not known"}
    said = dict(line.split(":", 1) for line in lines if ":" in line)
    named = {key.strip(): value.strip() for key, value in said.items()}
    flags = set(named.get("flags", named.get("Features", "")).split())
    narrow = sorted(flags & {"amx_bf16", "avx512_bf16", "bf16"})
    return {"cpu": named.get("model name", platform.machine()), "bfloat16 instructions": ", ".join(narrow) or "none"}


def main(about: str | None, run: Callable[[int], dict[str, Any]], *, rounds: int) -> int:
    """run(rounds) -> {"bars", "measured", "versions"}."""
    options = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=rounds)
    options.add_argument("--json", action="store_true", help="print the result as JSON")
    given = options.parse_args()
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(sys.executable, sys.orig_argv, os.environ | ENVIRONMENT)
    warnings.simplefilter("ignore")
    result = run(given.rounds)
    return tell(result, as_json=given.json)


def tell(result: dict[str, Any], *, as_json: bool) -> int:
    """Prints a result; the exit code says whether every bar holds."""
    if as_json:
        json.dump(result, sys.stdout, indent=2, ensure_ascii=False)
        print()
    else:
        show(result)
    return 0 if all(each["holds"] for each in result["bars"].values()) else 1


def show(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    broken = [name for name, each in result["bars"].items() if not each["holds"]]
    console.print(f"{len(result['bars'])} bars, all hold" if not broken else f"{len(broken)} bars do not hold")
    table = Table("bar", "measured", "bound", "")
    for name, each in result["bars"].items():
        table.add_row(name, _digits(each["value"]), _digits(each["bound"]), "" if each["holds"] else "[red]broken[/]")
    console.print(table)
    table = Table("measured", "")
    for name, value in result["measured"].items():
        table.add_row(name, _digits(value) if isinstance(value, int | float) else str(value))
    console.print(table)
    console.print(", ".join(f"{name} {version}" for name, version in result["versions"].items()), highlight=False)
    console.print(f"again: python {' '.join(sys.orig_argv[1:])}", highlight=False)


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.3f}" if abs(value) >= 0.1 else f"{value:.2g}"
