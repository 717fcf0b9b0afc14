"""Writes src/ropewalk/lab/checkpoints.json: what the lab starts from, of every published config that the tests know.

python scripts/lab_checkpoints.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "src")]
OUT = REPOSITORY / "src" / "ropewalk" / "lab" / "checkpoints.json"


def checkpoints() -> list[dict[str, Any]]:
    """Those whose positions are computed: learned tables, and what `inspect` refuses, have nothing to show here; nor
    has a linear scaling of a length that is not known."""
    from ropewalk.plot.subject import planned
    from tests.checkpoints.published import config, names, path

    found = []
    for name in names():
        try:
            _, plan = planned(path(name))
        except ValueError:
            continue
        if (entry := _entry(plan, config(name))) is not None:
            found.append({"name": name, **entry})
    return found


def _entry(plan: Any, config: dict[str, Any]) -> dict[str, Any] | None:
    from ropewalk.checkpoints.inspect.lengths import counted_from, scaled_layer

    layer = scaled_layer(plan)
    if layer is None:
        return _without_rotation(plan, config)
    length = counted_from(plan, layer)
    if layer.ladders != (layer.rotary_width,) or length is None:
        return None
    entry = {"kind": "rope", "base": layer.base, "width": layer.rotary_width, "layout": layer.layout}
    entry |= {"trained": length} if plan.trained else {"trained": length, "stated": True}
    if layer.scaling is not None:
        scaling = layer.scaling.for_length(plan.extended or length)
        given = scaling.model_dump(exclude_defaults=True, exclude_none=True, mode="json")
        entry["scaling"] = {"kind": scaling.kind, **given}
        entry |= {"reach": plan.extended} if plan.extended else {}
    return entry


def _without_rotation(plan: Any, config: dict[str, Any]) -> dict[str, Any] | None:
    layer = plan.layers[0]
    settings = {"kind": layer.kind, **json.loads(layer.settings)}
    if layer.kind == "sinusoidal":
        return {**settings, "width": config["d_model"]}
    if layer.kind in ("alibi", "t5"):
        heads = next(config[key] for key in ("num_attention_heads", "num_heads", "n_heads") if key in config)
        return {**settings, "heads": heads}
    return None


def text() -> str:
    lines = ",\n".join(json.dumps(entry) for entry in checkpoints())
    return f"[\n{lines}\n]\n"


if __name__ == "__main__":
    OUT.write_text(text(), encoding="utf-8")
    print(OUT.relative_to(REPOSITORY))
