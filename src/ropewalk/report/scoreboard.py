"""Which library holds which requirement: gathered as data, and shown as one page.

    board([gather("transformers")], ...) -> the data        scoreboard_page.page(data) -> HTML

A cell is a library's version against a requirement, over all its targets. A red one leads to every target that broke
it: what was measured, from which position on, the lines that show it again, and the upstream issue where there is one.
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Iterable
from importlib import import_module, metadata
from typing import Any

OURS = {
    "rope": (),
    "rope_partial": ("rotary_width=32", "layout=pairs"),
    "rope_window": ("window=9",),
    "rope_yarn": ("base=500000", "scaling.kind=yarn", "scaling.factor=4", "scaling.trained=8192"),
    "rope_dynamic": ("scaling.kind=dynamic", "scaling.factor=4", "scaling.trained=64"),
    "rope_llama3": ("base=500000", "scaling.kind=llama3", "scaling.factor=8", "scaling.trained=8192"),
    "xpos": (),
    "alibi": (),
    "t5": (),
    "sinusoidal": (),
}
"""Our own encodings that stand beside the libraries, and their settings."""


def gather(library: str, only: str | None = None) -> dict[str, Any]:
    """One library: what each of its targets was found to be. Raises ImportError where it is not installed."""
    from ropewalk.conformance import adapters
    from ropewalk.conformance.run import verify

    began = time.perf_counter()
    if library == "ropewalk":
        given, version, known = _ours(), metadata.version("ropewalk"), {}
    else:
        given, known = adapters.targets(library), adapters.expected(library)
        version = import_module(f"{adapters.__name__}.{library.replace('-', '_')}").installed()
    shown = []
    for target in given:
        reasons = known.get(target.short, {})
        data = verify(target, only=only, expected=reasons).to_dict()
        data["results"] = [_short(result, reasons.get(result["id"], {})) for result in data["results"]]
        shown.append({"short": target.short, "says": target.says, "name": data["target"], **_kept(data)})
    return {
        "library": library,
        "version": version,
        "seconds": round(time.perf_counter() - began, 1),
        "targets": shown,
    }


def _kept(data: dict[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in ("seconds", "counts", "results")}


def _short(result: dict[str, Any], known: dict[str, str]) -> dict[str, Any]:
    """What the page and a reader need: no titles (said once), nothing empty, no places on this machine."""
    names = ["id", "status", "measured", "bound", "at", "what", "why", "mended"]
    red = result["status"] in ("broken", "expected")
    if result["status"] == "not applicable":
        names = ["id", "status", "why"]
    elif red:
        names += ["unit", "first_position", "reproduction", "issue"]
    found = {name: result[name] for name in names if result[name] not in (None, "") and result[name] is not False}
    if "why" in found:
        found["why"] = re.sub(r"/[^\s\"'()]*/(?:site-packages|src)/", "", found["why"])
    return {**found, "reason": known["reason"]} if red and "reason" in known else found


def _ours() -> list[Any]:
    from ropewalk.conformance.adapters.ours import target

    found = []
    for short, settings in OURS.items():
        made: Any = target(short.partition("_")[0], *settings)
        made.short, made.says = short, made.name
        found.append(made)
    return found


def board(entries: Iterable[dict[str, Any]], *, date: str, command: str, not_run: dict[str, str]) -> dict[str, Any]:
    """The whole result, of what was gathered."""
    import torch

    from ropewalk.conformance.checks import every
    from ropewalk.conformance.spec import VERSION, page

    return {
        "date": date,
        "command": command,
        "spec": VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "requirements": [{"id": one.id, "title": one.title, "page": page(one.id)} for one in every().values()],
        "libraries": list(entries),
        "not_run": not_run,
    }


def cell(entry: dict[str, Any], id: str) -> dict[str, Any]:
    """What a library makes of one requirement: {"state", "held", "broken", "apply", "mended"}."""
    results = [(target, result) for target in entry["targets"] for result in target["results"] if result["id"] == id]
    broken = [pair for pair in results if pair[1]["status"] in ("broken", "expected")]
    held = [pair for pair in results if pair[1]["status"] == "held"]
    mended = [pair for pair in held if pair[1].get("mended")]
    state = "broken" if broken else "mended" if mended else "held" if held else "none"
    return {"state": state, "broken": broken, "held": held, "mended": mended, "apply": len(broken) + len(held)}
