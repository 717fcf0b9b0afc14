"""`ropewalk doctor`: what is installed, what this machine has, what is slow here and why."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Mapping
from typing import Any

from ropewalk.cli.output import EXTRAS, Json, Quiet, examples, guarded, write, write_json

EPILOG = examples("ropewalk doctor", "ropewalk doctor --json")
SLOW = 2.0
"""A precision that takes this many times as long as float32 is named."""
COMPILERS = ("g++", "clang++", "c++")


@guarded
def doctor(json: Json = False, quiet: Quiet = False) -> None:
    """Print versions, extras and devices, and what is slow or missing here.

    Paste the output into a bug report. With --quiet, print only the advice.
    """
    found = _examined()
    advice = _advice(found)
    if json:
        write_json(found | {"advice": advice})
        return
    if not quiet:
        wide = max(len(name) for name, _ in _lines(found))
        write("\n".join(f"{name:{wide}}  {text}" for name, text in _lines(found)))
    if advice:
        write("\n".join(advice) if quiet else "\n" + "\n".join(f"- {text}" for text in advice))


def _examined() -> dict[str, Any]:
    import torch

    from ropewalk.train.plan.cost import gemm_peak

    devices = [f"cuda:{number} {torch.cuda.get_device_name(number)}" for number in range(torch.cuda.device_count())]
    return {
        "ropewalk": importlib.metadata.version("ropewalk"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "torch": torch.__version__,
        "devices": [*devices, *(["mps"] if torch.backends.mps.is_available() else []), "cpu"],
        # In a container these are fewer than there are.
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "memory_gib": _memory(),
        "gflops": {name: round(gemm_peak(name, size=512) / 1e9, 1) for name in ("float32", "bfloat16")},
        "compiler": next(filter(shutil.which, COMPILERS), None),
        "packages": {name: _version(name) for name in EXTRAS},
    }


def _advice(found: Mapping[str, Any]) -> list[str]:
    """What is slow or missing, why, and what to type."""
    said: list[str] = []
    slow = found["gflops"]["float32"] / found["gflops"]["bfloat16"]
    if found["devices"] == ["cpu"] and slow >= SLOW:
        said.append(
            f"matrix products take {slow:.1f} times as long in bfloat16 as in float32, as usual on CPUs without "
            "bfloat16 instructions: train with train.precision=float32"
        )
    if found["threads"] < found["cores"]:
        limit = os.environ.get("OMP_NUM_THREADS")
        why = "; unset OMP_NUM_THREADS" if limit else ", usually one per physical core"
        said.append(f"torch uses {found['threads']} of {found['cores']} cores{why}")
    if found["compiler"] is None:
        said.append(f"train.compile needs a C++ compiler, and none of {', '.join(COMPILERS)} was found")
    missing = dict.fromkeys(extra for name, extra in EXTRAS.items() if found["packages"][name] is None)
    return said + [f'extra {extra} is not installed: pip install "ropewalk[{extra}]"' for extra in missing]


def _lines(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    memory = "" if found["memory_gib"] is None else f", {found['memory_gib']} GiB of memory"
    speeds = ", ".join(f"{name} {value:,} GFLOP/s" for name, value in found["gflops"].items())
    extras: dict[str, list[str]] = {}
    for name, extra in EXTRAS.items():
        extras.setdefault(extra, []).append(f"{name} {found['packages'][name] or 'not installed'}")
    return [
        ("ropewalk", f"{found['ropewalk']}, Python {found['python']}, {found['system']}"),
        ("torch", f"{found['torch']}, {found['threads']} threads on {found['cores']} cores, {found['instructions']}"),
        ("devices", f"{', '.join(found['devices'])}{memory}"),
        ("matrix products", speeds),
        ("C++ compiler", found["compiler"] or "none"),
        *((f"extra {extra}", ", ".join(packages)) for extra, packages in extras.items()),
    ]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None
