"""Published configs, and the plans they are known to mean.

whole/NAME.json, and published/NAME.json where published_sources.json has the name, is a whole config.json as a public
repository keeps it; the sources say which, and what was cut. The others are blocks: sizes and positions as documented,
without the rest; `resaved` completes them as transformers would. plans.txt is the plan of each, or why there is none.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.plan import LayerPlan

FOLDERS = [Path(__file__).parent / "published", Path(__file__).parent / "whole"]
SOURCES = Path(__file__).parent / "published_sources.json"


def names() -> list[str]:
    return sorted(file.stem for folder in FOLDERS for file in folder.glob("*.json"))


def config(name: str) -> dict[str, Any]:
    return json.loads(path(name).read_text(encoding="utf-8"))


def path(name: str) -> Path:
    return next(file for folder in FOLDERS if (file := folder / f"{name}.json").exists())


def sources() -> dict[str, dict[str, str]]:
    """Repository, path and commit of every whole config, and what differs there from the published one."""
    return json.loads(SOURCES.read_text(encoding="utf-8"))["whole"]


def resaved(config: dict[str, Any]) -> dict[str, Any]:
    """The config as the installed transformers writes it: every default of its type, the values given kept."""
    from transformers import CONFIG_MAPPING

    made = CONFIG_MAPPING[config["model_type"]].from_dict(copy.deepcopy(config))
    return json.loads(made.to_json_string(use_diff=False))


def plans() -> dict[str, str]:
    """The known plan of each, or `error:` and what the message must hold."""
    found: dict[str, list[str]] = {}
    lines = [line for folder in FOLDERS for line in (folder / "plans.txt").read_text(encoding="utf-8").splitlines()]
    for line in lines:
        if not line.startswith(" "):
            name = line
            found[name] = []
        else:
            found[name].append(line[4:])
    return {name: "\n".join(lines) for name, lines in found.items()}


def said(resolved: Resolved) -> str:
    """A plan in one line for the lengths of each side and one for each group of layers."""
    lines = []
    for side, plan in resolved.plans.items():
        lengths = " ".join(
            f"{name}={getattr(plan, name)}"
            for name in ("trained", "stated", "extended", "table")
            if getattr(plan, name)
        )
        lines.append(f"{side} {len(plan.layers)} {lengths}".strip())
        lines += [
            f"  {_numbers(numbers, len(plan.layers))}: {_layer(layer)}" for layer, numbers in plan.groups().items()
        ]
    if resolved.refusal:
        lines.append(f"refused: {resolved.refusal}")
    return "\n".join(lines)


def _numbers(numbers: list[int], count: int) -> str:
    if len(numbers) == count:
        return "all"
    if len(numbers) <= 6:
        return ",".join(map(str, numbers))
    return f"{','.join(map(str, numbers[:6]))}..{numbers[-1]} ({len(numbers)})"


def _layer(layer: LayerPlan) -> str:
    parts = [layer.kind]
    if layer.base is not None:
        parts += [str(layer.layout), f"{layer.rotary_width}/{layer.head_width}", f"base={layer.base:.12g}"]
    settings = json.loads(layer.settings)
    if layer.kind == "rope":
        settings = {key: value for key, value in settings.items() if value not in (None, "blocks")}
    if settings:
        parts.append(json.dumps(settings))
    if layer.scaling is not None:
        parts.append(f"[{layer.scaling}]")
    if layer.rotary_gain != 1:
        parts.append(f"gain={layer.rotary_gain:.6f}")
    if layer.logit_gain != 1:
        parts.append(f"scores={layer.logit_gain:.6f}")
    if layer.window is not None:
        parts.append(f"window={layer.window}")
    return " ".join(parts)
