"""Which library passes which requirement: gathered as data, and shown as one page.

    board([gather("transformers")], ...) -> the data     scoreboard_page.page(data) -> HTML     table(data) -> text

A cell is a library's version against a requirement, over all its targets. One that is not green leads to what was
measured, from which position on, and to its cause. A cause is stated once, with all that it explains, its report or the
change that introduced it, and a script that shows it without ropewalk.
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from ropewalk import __version__

LIBRARIES = (
    "ropewalk", "transformers", "x-transformers", "rotary-embedding-torch", "litgpt", "torchtune", "torchtitan",
    "llama-cpp", "mlx-lm",
)  # fmt: skip
"""In the order of their columns."""
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


def gather(
    library: str, only: str | None = None, seed: int = 0, progress: Callable[[Any], None] | None = None
) -> dict[str, Any]:
    """One library: what each of its targets was found to be. Raises ImportError where it is not installed."""
    from ropewalk.conformance import adapters
    from ropewalk.conformance.run import verify

    began = time.process_time()  # a machine that does other work too makes no library slower
    if library == "ropewalk":
        given, version, known, causes = _ours(), __version__, {}, []
    else:
        given, version, known = adapters.targets(library), adapters.installed(library), adapters.expected(library)
        causes = [
            {**cause, "reproduction": adapters.reproduction(library, cause["id"]).read_text(encoding="utf-8")}
            for cause in adapters.causes(library)
        ]
    shown = []
    for target in given:
        reasons = known.get(target.short, {})
        data = verify(target, only=only, seed=seed, expected=reasons, progress=progress).to_dict()
        data["results"] = [_short(result, reasons.get(result["id"], {})) for result in data["results"]]
        shown.append({"short": target.short, "says": target.says, "name": data["target"], **_kept(data)})
    return {
        "library": library,
        "version": version,
        "seconds": round(time.process_time() - began, 1),
        "causes": causes,
        "targets": shown,
    }


def _kept(data: dict[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in ("seconds", "counts", "results")}


def _short(result: dict[str, Any], known: dict[str, str]) -> dict[str, Any]:
    """What the page and a reader need: no titles (said once), nothing empty, no places on this machine."""
    names = ["id", "status", "measured", "bound", "at", "within", "what", "why", "fixed"]
    red = result["status"] in ("failed", "expected", "float32")
    if result["status"] == "not applicable":
        names = ["id", "status", "why"]
    elif red:
        names += ["unit", "first_position", "reproduction", "issue"]
    found = {name: result[name] for name in names if result[name] not in (None, "") and result[name] is not False}
    if "why" in found:
        found["why"] = re.sub(r"/[^\s\"'()]*/(?:site-packages|src)/", "", found["why"])
    if result["status"] == "expected" and "cause" in known:
        # Its own lines would need ropewalk; the cause has a script that does not.
        found.pop("reproduction", None)
        found.pop("issue", None)
        return {**found, "cause": known["cause"]}
    return found


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
    """What a library makes of one requirement: {"state", "passed", "float32", "failed", "apply", "fixed"}."""
    results = [(target, result) for target in entry["targets"] for result in target["results"] if result["id"] == id]
    failed = [pair for pair in results if pair[1]["status"] in ("failed", "expected")]
    single = [pair for pair in results if pair[1]["status"] == "float32"]
    # What has no bound is reported, and neither passes nor fails.
    passed = [pair for pair in results if pair[1]["status"] == "passed" and "bound" in pair[1]]
    fixed = [pair for pair in passed if pair[1].get("fixed")]
    state = "failed" if failed else "float32" if single else "fixed" if fixed else "passed" if passed else "none"
    apply = len(failed) + len(single) + len(passed)
    return {"state": state, "failed": failed, "float32": single, "passed": passed, "fixed": fixed, "apply": apply}


def unexpected(data: dict[str, Any]) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(library, target, result) of everything that failed and is on no list."""
    return [
        (entry["library"], target, result)
        for entry in data["libraries"]
        for target in entry["targets"]
        for result in target["results"]
        if result["status"] == "failed"
    ]


TOLD = {
    "apply": "apply", "passed": "passed", "float32": "within float32's error", "failed": "failed", "expected": "known",
}  # fmt: skip


def said(entry: dict[str, Any]) -> str:
    """One library in one line."""
    counts = [target["counts"] for target in entry["targets"]]
    total = {key: sum(count.get(key, 0) for count in counts) for key in TOLD}
    fixed = sum(result.get("fixed", False) for target in entry["targets"] for result in target["results"])
    words = ", ".join(f"{value} {TOLD[key]}" for key, value in total.items())
    return f"{entry['library']} {entry['version']}: {len(counts)} targets, {words}, {fixed} fixed, {entry['seconds']} s"


def table(data: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the matrix as text: how many targets pass, or how many of those it applies to fail.

    A library that fails nothing but what is on its list has `known` in its cell, any other `failed`; `float32` is past
    the bound, and within what float32 products of positions cost.
    """
    asked = {result["id"] for entry in data["libraries"] for one in entry["targets"] for result in one["results"]}
    rows = []
    for one in (one for one in data["requirements"] if one["id"] in asked):
        cells = [cell(entry, one["id"]) for entry in data["libraries"]]
        rows.append([one["id"], *(_in_words(found) for found in cells)])
    return ["", *(entry["library"] for entry in data["libraries"])], rows


def _in_words(found: dict[str, Any]) -> str:
    if found["state"] == "none":
        return "-"
    if found["state"] == "float32":
        return f"float32 {len(found['float32'])}/{found['apply']}"
    if found["state"] != "failed":
        return f"{found['state']} {found['apply']}"
    word = "failed" if any(result["status"] == "failed" for _, result in found["failed"]) else "known"
    return f"{word} {len(found['failed'])}/{found['apply']}"
