"""What docs/*/compare.md says of the studies that were run is what their result holds."""

from __future__ import annotations

import json
import statistics
from typing import Any

import pytest

from tests.blocks import ROOT

PAGES = {lang: (ROOT / "docs" / lang / "compare.md").read_text(encoding="utf-8") for lang in ("en", "zh")}
SIGNS = {"better": "+", "worse": "-", "tie": "=", "reference": ""}
TASKS = (("copy", "20"), ("copy", "25"), ("sort", "20"), ("sort", "25"), ("sort", "30"))


def result(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "studies" / name / "study.json").read_text(encoding="utf-8"))


def text_row(study: dict[str, Any], arm: str) -> str:
    """The mean over seeds at each length, with the verdict."""
    cells = [arm]
    for length in map(str, study["text"]["lengths"]):
        losses = study["text"]["arms"][arm]["same_tokens"][length]
        verdict = study["text"]["verdicts"][length].get(arm, {"verdict": "reference"})["verdict"]
        cells.append(losses if isinstance(losses, str) else f"{statistics.fmean(losses):.3f} {SIGNS[verdict]}".strip())
    return "| " + " | ".join(cells) + " |"


def task_row(study: dict[str, Any], arm: str) -> str:
    """Right answers in percent: the median over seeds, from the least to the most, with the verdict."""
    cells = [arm]
    for task, length in TASKS:
        points = [round(100 * point) for point in study["tasks"]["arms"][arm]["exact"][task][length]["points"]]
        spread = f" [{min(points)}, {max(points)}]" if min(points) < max(points) else ""
        verdict = study["tasks"]["verdicts"][task][arm]["lengths"][length]["verdict"]
        cells.append(f"{statistics.median(points):g}{spread} {SIGNS[verdict]}".strip())
    return "| " + " | ".join(cells) + " |"


@pytest.mark.parametrize("language", PAGES)
def test_extrapolation(language: str) -> None:
    study = result("extrapolation")
    text = "\n".join(text_row(study, arm) for arm in study["text"]["arms"])
    tasks = "\n".join(task_row(study, arm) for arm in study["tasks"]["arms"])
    assert text in PAGES[language]
    assert tasks in PAGES[language]


@pytest.mark.parametrize(("language", "edge"), [("en", " (edge)"), ("zh", "\uff08边缘\uff09")])
def test_blocks(language: str, edge: str) -> None:
    """With the validation loss and the learning rate of each arm."""
    study = result("blocks")
    rows = []
    for name, arm in study["text"]["arms"].items():
        loss, rate = statistics.fmean(arm["loss"]), f"{1000 * arm['rate']:g}e-3"
        rows.append(f"{text_row(study, name)} {loss:.3f} | {rate}{edge if arm['edge'] else ''} |")
    assert "\n".join(rows) in PAGES[language]


@pytest.mark.parametrize("language", PAGES)
def test_anchors(language: str) -> None:
    text = result("extrapolation")["text"]
    windows = [statistics.fmean(text["arms"]["alibi"]["non_overlapping"][length]) for length in ("256", "4096")]
    over = json.loads((ROOT / "campaigns/results/anchors.json").read_text(encoding="utf-8"))["measured"]
    far = over["perplexity at 1536 over that at the trained length"]
    figures = [f"{loss:.3f}" for loss in windows] + [
        f"{far['t5']:.2f}",
        f"{far['sinusoidal']:.2f}",
        f"{far['alibi']:.3f}",
    ]
    assert [figure for figure in figures if figure not in PAGES[language]] == []


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_readme(name: str) -> None:
    study, page = result("extrapolation"), (ROOT / name).read_text(encoding="utf-8")

    def loss(arm: str, length: str) -> float:
        return statistics.fmean(study["text"]["arms"][arm]["same_tokens"][length])

    def sorted_30(arm: str) -> str:
        return f"{100 * statistics.median(study['tasks']['arms'][arm]['exact']['sort']['30']['points']):.0f}"

    figures = [f"{loss('rope', '4096') - loss('rope', '256'):.1f} nats"]
    figures += [f"{loss(*of):.2f}" for of in (("rope", "256"), ("rope", "4096"), ("alibi", "4096"), ("kerple", "4096"))]
    figures += [f"{sorted_30('nope')} %", f"{sorted_30('alibi')} %"]
    assert [figure for figure in figures if figure not in page] == []
    assert sorted_30("rope") == "0"
