"""What docs/*/extend.md says of the campaigns of `extend` is what their results hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.blocks import ROOT

PAGES = {language: (ROOT / "docs" / language / "extend.md").read_text(encoding="utf-8") for language in ("en", "zh")}
RESULTS = {file.stem: file for file in sorted((ROOT / "campaigns" / "results").glob("extend-*.json"))}
TINY = "TinyLlama-1.1B"
SMALL = "SmolLM2-135M"


def result(name: str) -> dict[str, Any]:
    return json.loads(RESULTS[name].read_text(encoding="utf-8"))


def between(one: dict[str, float]) -> str:
    return "{mean:+.4f} [{low:+.4f}, {high:+.4f}]".format(**one)


def row(name: str) -> str:
    """From the best candidate on: its gain over cropping, on far tokens, needles, a crop's, short text, minutes."""
    said = result(name)
    found = said["result"]
    judged, best = found["judged"], found["verdict"]["best"]
    tail, needles = judged[best]["tail"], [judged[one]["needles"][-1]["found"] for one in (best, "crop")]
    cells = [
        best,
        between(tail["gain"][str(found["to"])]),
        between(tail["far_tokens"]),
        ", ".join(f"{100 * share:.0f} %" for share in needles),
        between(tail["short_cost"]),
        f"{said['bars']['minutes in all']['value']:.0f}",
    ]
    return " | ".join(cells) + " |"


@pytest.mark.parametrize("language", PAGES)
@pytest.mark.parametrize("name", [name for name in RESULTS if "search" not in name and "assume" not in name])
def test_a_tournament(name: str, language: str) -> None:
    model = {"tinyllama": TINY, "smollm2": SMALL}[name.split("-")[1]]
    found = result(name)["result"]
    lines = [line for line in PAGES[language].splitlines() if line.endswith(row(name))]
    assert any(model in line and f"{found['trained']:,}" in line and f"{found['to']:,}" in line for line in lines)
