"""Targets for our own encodings (`ours`) and for the public interfaces of other libraries, one file each.

A library's file has `targets()`, a list of named targets for the version that is installed. What it is known to fail is
in `expected/<library>.json`, a list of causes, each stated once:

    {"id", "reason", "issue" (a report), "introduced" (the change that made it so), "explains": {requirement: [target]}}

and `expected/<library>/<cause>.py` shows it without ropewalk.
"""

from __future__ import annotations

import importlib
import json
from difflib import get_close_matches
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NOT_LIBRARIES = {"checkpoint", "ours", "peer"}


def names() -> list[str]:
    """Libraries there is an adapter for, as `pip` spells them."""
    files = sorted(HERE.glob("*.py"))
    return [f.stem.replace("_", "-") for f in files if not f.stem.startswith("_") and f.stem not in NOT_LIBRARIES]


def spelled(name: str) -> str:
    """A library as `pip` spells it, out of any spelling that `pip` or `import` takes."""
    plain = name.lower().replace("_", "-").replace(".", "-")
    if plain not in names():
        near = get_close_matches(plain, names(), n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names())}"
        raise ValueError(f"no adapter for {name!r}{hint}")
    return plain


def targets(name: str) -> list[Any]:
    """The targets of one library. One that is not installed is an ImportError with its pip line."""
    return _adapter(name).targets()


def installed(name: str) -> str:
    """The version of a library."""
    return metadata.version(_adapter(name).DISTRIBUTION)


def _adapter(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{_folder(name)}")


def causes(name: str) -> list[dict[str, Any]]:
    """Why a library fails what it is known to fail."""
    path = HERE / "expected" / f"{_folder(name)}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


def reproduction(name: str, cause: str) -> Path:
    """A script that shows one cause: it needs the library, and not ropewalk."""
    return HERE / "expected" / _folder(name) / f"{cause}.py"


def expected(name: str) -> dict[str, dict[str, Any]]:
    """Known failures of a library: target to requirement to {"cause", "reason", "issue"}."""
    found: dict[str, dict[str, Any]] = {}
    for cause in causes(name):
        told = {"cause": cause["id"], "reason": cause["reason"], "reproduction": str(reproduction(name, cause["id"]))}
        told |= {"issue": cause["issue"]} if "issue" in cause else {}
        for requirement, targets in cause["explains"].items():
            for target in targets:
                found.setdefault(target, {})[requirement] = told
    return found


def _folder(name: str) -> str:
    return spelled(name).replace("-", "_")
