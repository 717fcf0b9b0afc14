"""The tables of the documentation: each figure is what a file of campaigns/results holds, each version what was run."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from typing import Any

import pytest

from tests.blocks import ROOT


def result(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "campaigns" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def bar(name: str, what: str) -> float:
    return float(result(name)["bars"][what]["value"])


def exactness(model: str, arm: str) -> tuple[float, float]:
    """What is added to the loss, and the half-width of its interval."""
    cell = result("exactness")["measured"][f"{model}, 2,048 tokens, as it is, float32"]
    return cell[arm]["added"], cell[arm]["within"]


def above(value: float) -> float:
    """The next tenth: `less than` that is true."""
    return (math.floor(10 * value) + 1) / 10


def score(who: str, what: str) -> float:
    return result("translation_2017")["scores"][who][what]


def of_seeds(what: str) -> float:
    scores = result("translation")["scores"]
    return statistics.fmean(score[what]["score"] for name, score in scores.items() if name not in ("nearest", "copy"))


def deep(placement: str) -> list[float]:
    return [loss for name, loss in result("depth")["measured"].items() if name.startswith(placement)]


def plus(pair: tuple[float, float], digits: int) -> str:
    return f"{pair[0]:.{digits}f} ± {pair[1]:.{digits}f}"


REPRODUCTION: dict[str, Callable[[], str]] = {
    "post-norm": lambda: f"{max(deep('post')):.2f}",
    "DeepNorm, least": lambda: f"{min(deep('deep')):.3f}",
    "DeepNorm, most": lambda: f"{max(deep('deep')):.3f}",
    "bfloat16, SmolLM2": lambda: plus(exactness("smollm2", "angles from 0"), 2),
    "bfloat16, TinyLlama": lambda: plus(exactness("tinyllama", "angles from 0"), 2),
    "float32, SmolLM2": lambda: "{:.1e} ± {:.1e}".format(*exactness("smollm2", "float32 from 0")).replace("e-0", "e-"),
    "BLEU": lambda: f"{score('model', 'bleu'):.1f} BLEU",
    "BLEU of the nearest": lambda: f"{score('nearest', 'bleu'):.1f}",
    "pairs": lambda: f"{result('translation_2017')['pairs']['training']:,}",
    "minutes": lambda: f"{result('translation_2017')['training']['seconds'] // 60} ",
    "masked": lambda: f"{bar('masked', 'loss over the unigram entropy, at most'):.2f}",
    "angles": lambda: f"{above(bar('angles', 'ropewalk to 2^40, in 1e-7 rad')):.1f}e-7",
    "engines": lambda: f"{max(v['value'] for k, v in result('engines')['bars'].items() if 'furthest' in k):.1f}e-4",
    "for vLLM": lambda: f" {result('overrides')['measured']['vllm: texts']} ",
    "for transformers 4": lambda: f" {result('overrides')['measured']['transformers4: texts']} ",
    "mutants": lambda: f"{result('mutants')['measured']['mutants']} ",
    "kills": lambda: f"{bar('kills', 'kills'):.0f} ",
    "flips": lambda: f"{result('bit_flips')['measured']['flips']:,}",
    "full disks": lambda: f"{result('disk_full')['measured']['positions']} ",
    "not finite": lambda: f"{result('nan_sites')['measured']['trials']} ",
    "bad files": lambda: f"{result('bad_files')['measured']['files']:,}",
    "slowest": lambda: f"{bar('bad_files', 'slowest answer, s'):.2f} ",
    "estimates": lambda: f"{bar('estimates', 'memory, cases not fitted: median error'):.1%}".replace("%", " %"),
    "worst estimate": lambda: f"{bar('estimates', 'memory, cases not fitted: worst error'):.1%}".replace("%", " %"),
}
DECISIONS: dict[str, Callable[[], str]] = {
    "float32": REPRODUCTION["float32, SmolLM2"],
    "far": lambda: plus(exactness("smollm2", "float32 from 100,000,000"), 2),
    "tables": lambda: plus(exactness("smollm2", "tables from 0"), 4),
    "frequencies": lambda: "{:.5f} ± {:.4f}".format(*exactness("smollm2", "frequencies from 0")),
    "angles": REPRODUCTION["bfloat16, SmolLM2"],
    "BLEU": REPRODUCTION["BLEU"],
    "chrF": lambda: f"{score('model', 'chrf'):.1f} ",
    "chrF of the nearest": lambda: f"{score('nearest', 'chrf'):.1f}",
    "BLEU of the seeds": lambda: f"{of_seeds('BLEU'):.1f} ",
    "BLEU of their nearest": lambda: f"{result('translation')['scores']['nearest']['BLEU']['score']:.1f}",
    "chrF of the seeds": lambda: f"{of_seeds('chrF2'):.1f} ",
    "chrF of their nearest": lambda: f"{result('translation')['scores']['nearest']['chrF2']['score']:.1f}",
    "estimates": REPRODUCTION["worst estimate"],
    "mutants": lambda: str(result("train_mutants")["measured"]["mutants"]),
    "killed": lambda: str(result("train_mutants")["measured"]["killed"]),
}
FIGURES = {("reproduction", name): figure for name, figure in REPRODUCTION.items()} | {
    ("decisions", name): figure for name, figure in DECISIONS.items()
}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("figure", FIGURES, ids=": ".join)
def test_a_figure_is_what_was_measured(figure: tuple[str, str], language: str) -> None:
    page = (ROOT / "docs" / language / "tables" / f"{figure[0]}.md").read_text(encoding="utf-8")
    assert FIGURES[figure]() in page


@pytest.mark.parametrize(
    ("campaign", "bar_named"),
    [
        ("overrides", "vllm: texts not accepted"),
        ("overrides", "transformers4: texts not accepted"),
        ("mutants", "mutants that survive"),
        ("kills", "losses or weights that differ"),
        ("bit_flips", "flips that were not found"),
        ("disk_full", "full disks that harmed or were not told"),
        ("nan_sites", "sites that were updated with, or not agreed on"),
        ("bad_files", "files answered wrongly"),
    ],
)
def test_the_zeros_are_zeros(campaign: str, bar_named: str) -> None:
    assert bar(campaign, bar_named) == 0


@pytest.mark.parametrize("language", ["en", "zh"])
def test_libraries_are_named_with_the_versions_that_were_run(language: str) -> None:
    page = (ROOT / "docs" / language / "tables" / "peers.md").read_text(encoding="utf-8")
    run = {each["library"]: each["version"] for each in result("scoreboard")["libraries"]}
    for library in ("x-transformers", "transformers", "torchtitan", "litgpt"):
        assert f"| {library} {run[library]} |" in page
    assert f"| **ropewalk** {run['ropewalk']} |" in page


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_longest_text_is_that_of_the_campaigns(language: str) -> None:
    page = (ROOT / "docs" / language / "tables" / "limits.md").read_text(encoding="utf-8")
    found = {file.name: result(file.stem)["result"] for file in (ROOT / "campaigns" / "results").glob("extend-*.json")}
    longest = max(one["to"] for one in found.values())
    row = next(line for line in page.splitlines() if f"| {longest:,} " in line)
    named = next(one for name, one in found.items() if f"`campaigns/results/{name}`" in row)
    assert named["to"] == longest
    assert f"x{longest // named['trained']}" in row
