"""What the config of one checkpoint says, as a flat row: the census keeps these and counts them.

Checkpoints tuned from one model share its positions. What inspect says of a config is remembered under all of its keys
but those in SILENT, which no rule reads.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from ropewalk.checkpoints.engines import ENGINES
from ropewalk.checkpoints.errors import BadInput, plain
from ropewalk.checkpoints.files.strict_json import MOST_BYTES, parse_json, read_bytes
from ropewalk.checkpoints.inspect.report import Report, inspect
from ropewalk.checkpoints.resolve.native import MODEL_TYPE

SILENT = (
    *("_name_or_path", "torch_dtype", "dtype", "use_cache", "vocab_size"),
    *("bos_token_id", "eos_token_id", "pad_token_id"),
)
"""Keys that differ between checkpoints of one model and change nothing in a row."""
READ, UNREAD = "read", "unread"
LONGEST = 100
"""Signs of a name out of a config."""
MOST = 20
"""Of the keys that a config may have by the thousand."""
REMEMBERED = 2048

Row = dict[str, Any]


def look(path: Path, data: bytes, engines: tuple[str, ...]) -> Row:
    """The row of a config.json: `path`, whose bytes are `data`."""
    try:
        config = parse_json(data, path.name)
    except BadInput as error:
        return _unread(error, None)
    if not isinstance(config, dict) or config.get("model_type") == MODEL_TYPE:
        return _looked(path, engines, config)
    kept = {key: value for key, value in config.items() if key not in SILENT}
    key = (hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).digest(), engines)
    if key not in _remembered:
        if len(_remembered) == REMEMBERED:
            del _remembered[next(iter(_remembered))]
        _remembered[key] = _looked(path, engines, config)
    return dict(_remembered[key])


_remembered: dict[tuple[bytes, tuple[str, ...]], Row] = {}


def look_at_path(path: Path, engines: tuple[str, ...]) -> tuple[str, Row]:
    """The digest and the row of what lies on this machine: a directory, a config.json or a .gguf file."""
    config = path / "config.json" if path.is_dir() else path
    if config.suffix == ".json" and config.is_file():
        data = read_bytes(config, MOST_BYTES)
        return hashlib.sha256(data).hexdigest(), look(config, data, engines)
    report = inspect(path, engines=engines)
    said = json.dumps(dict(report.resolved.config), sort_keys=True, default=str)
    return hashlib.sha256(said.encode()).hexdigest(), row(report)


def _looked(path: Path, engines: tuple[str, ...], config: Any) -> Row:
    try:
        return row(inspect(path, engines=engines))
    except BadInput as error:
        return _unread(error, config)
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError, MemoryError) as error:
        # A mistake of ours that some config brings to light must not end the census of all others.
        return _unread(BadInput(path.name, "inspect", f"{type(error).__name__}: {error}"), config)


def _unread(error: BadInput, config: Any) -> Row:
    stated = config.get("model_type") if isinstance(config, dict) else None
    return {
        "state": UNREAD,
        "model_type": plain(stated, LONGEST) if isinstance(stated, str) else None,
        "field": plain(error.field, LONGEST),
        "why": plain(error.problem, 300),
    }


def row(report: Report) -> Row:
    """What a reader of many checkpoints counts."""
    resolved, plan = report.resolved, report.resolved.plan
    layers = list(plan.groups())
    scaled = [layer.scaling for layer in layers if layer.scaling is not None]
    factors = (getattr(one, "ratio", None) or getattr(one, "factor", None) for one in scaled)
    compared = report.loading if report.rotates else ()
    return {
        "state": READ,
        "model_type": plain(resolved.model_type, LONGEST),
        "stack": resolved.stack,
        "layers": len(plan.layers),
        "kinds": _each(layer.kind for layer in layers),
        "bases": _each(layer.base for layer in layers),
        "scalings": _each(one.kind for one in scaled),
        "factors": _each(float(factor) for factor in factors if factor),
        "layouts": _each(layer.layout for layer in layers),
        "rotary_widths": _each(layer.rotary_width for layer in layers),
        "head_widths": _each(layer.head_width for layer in layers),
        "windows": _each(layer.window for layer in layers),
        "trained": plan.trained,
        "stated": plan.stated,
        "extended": plan.extended,
        "table": plan.table,
        "rotates": report.rotates,
        "loading": list(compared),
        "at_odds": list(report.at_odds),
        "departs": [f"{name}: {aspect}" for name in report.at_odds for aspect in report.rows[name].departs],
        "not_compared": list(report.unknown) if compared else [],
        "not_understood": [plain(key, LONGEST) for key in list(resolved.not_understood)[:MOST]],
    }


def _each(values: Any) -> list[Any]:
    return list(dict.fromkeys(value for value in values if value is not None))


@lru_cache(maxsize=8)
def rules(engines: tuple[str, ...]) -> str:
    """What a row depends on beside the config: the files that read it, and the engines that count."""
    found = hashlib.sha256(json.dumps([list(engines), sorted(ENGINES)]).encode())
    package = Path(__file__).parents[2]
    for folder in (package / "checkpoints", package / "scaling"):
        for file in sorted(file for end in ("*.py", "*.json") for file in folder.rglob(end)):
            found.update(file.read_bytes())
    return found.hexdigest()[:16]
