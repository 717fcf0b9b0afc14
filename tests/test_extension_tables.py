"""What docs/*/extend.md says of the campaigns of `extend` is what their results hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ropewalk.evaluate.statistics import Interval, paired
from ropewalk.report.extension.page import page
from tests.blocks import ROOT

PAGES = {language: (ROOT / "docs" / language / "extend.md").read_text(encoding="utf-8") for language in ("en", "zh")}
RESULTS = {file.stem: file for file in sorted((ROOT / "campaigns" / "results").glob("extend-*.json"))}
TINY = "TinyLlama-1.1B"
SMALL = "SmolLM2-135M"


def result(name: str) -> dict[str, Any]:
    return json.loads(RESULTS[name].read_text(encoding="utf-8"))


def between(one: dict[str, float]) -> str:
    return "{mean:+.4f} [{low:+.4f}, {high:+.4f}]".format(**one)


def brief(one: Interval) -> str:
    return f"{one.mean:.3f} [{one.low:.3f}, {one.high:.3f}]"


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
@pytest.mark.parametrize("name", [name for name in RESULTS if not {"search", "assume", "losses"} & {*name.split("-")}])
def test_a_tournament(name: str, language: str) -> None:
    model = {"tinyllama": TINY, "smollm2": SMALL}[name.split("-")[1]]
    found = result(name)["result"]
    lines = [line for line in PAGES[language].splitlines() if line.endswith(row(name))]
    assert any(model in line and f"{found['trained']:,}" in line and f"{found['to']:,}" in line for line in lines)


@pytest.mark.parametrize("language", PAGES)
def test_three_draws(language: str) -> None:
    """Of disjoint documents, with the same order of the finalists, and the gain over all of them."""
    draws = [result(f"extend-tinyllama-4096{draw}")["result"] for draw in ("", "-draw1", "-draw2")]
    documents = [one["sha256"] for found in draws for one in found["sets"]["judge"]]
    assert len(set(documents)) == len(documents) == 48
    gains, worth, costs = [], [], []
    orders = set()
    for found in draws:
        tails = {name: one["tail"] for name, one in found["judged"].items()}
        orders.add(tuple(sorted(tails, key=lambda name: tails[name]["gain"]["4096"]["mean"])))
        best = tails[found["verdict"]["best"]]
        gains += [crop - loss for crop, loss in zip(best["crop"]["2048"], best["loss"]["4096"], strict=True)]
        crops, losses = (best[key][length] for key, length in (("crop", str(best["best_crop"])), ("loss", "4096")))
        # Foreign text is read for the first documents alone.
        worth += [foreign - loss for foreign, loss in zip(best["foreign"], losses, strict=False)]
        costs += [foreign - crop for foreign, crop in zip(best["foreign"], crops, strict=False)]
    assert len(orders) == 1
    assert str(paired(gains)) in PAGES[language]
    assert len(worth) == len(costs) == 24
    for each in (worth, costs):
        assert brief(paired(each)) in PAGES[language]


@pytest.mark.parametrize("language", PAGES)
@pytest.mark.parametrize("name", ["extend-tinyllama-4096", "extend-smollm2-16384"])
def test_what_a_gain_is_made_of(name: str, language: str) -> None:
    found = result(name)["result"]
    tail = found["judged"][found["verdict"]["best"]]["tail"]
    for key in ("benefit", "harm"):
        assert tail[key]["documents"] == 8
        assert brief(Interval(**tail[key])) in PAGES[language]


@pytest.mark.parametrize("language", PAGES)
def test_an_assumed_length(language: str) -> None:
    said = result("extend-tinyllama-2048-assume-1365")
    loss, needles = (Interval(**one) for one in said["intervals"].values())
    assert str(loss) in PAGES[language]
    points = f"[{100 * needles.low:+.1f}, {100 * needles.high:+.1f}]"
    assert points in PAGES[language]
    assert f"{100 * needles.mean:+.1f} " in PAGES[language]
    for name in ("yarn", "leave"):
        assert f"{100 * said['result']['judged'][name]['needles'][-1]['found']:.0f} %" in PAGES[language]


@pytest.mark.parametrize("language", PAGES)
def test_one_scaling_alone(language: str) -> None:
    name = "extend-smollm2-32768-scaling-yarn-dtype-float32-losses"
    said = result(name)
    tail = said["result"]["judged"]["yarn"]["tail"]
    assert name in PAGES[language]
    assert said["result"]["verdict"]["kind"] == "crop better"
    assert tail["best_crop"] == said["result"]["trained"] == 8192
    assert len(said["result"]["sets"]["judge"]) == tail["gain"]["32768"]["documents"] == 16
    for interval in (tail["gain"]["32768"], tail["far_tokens"]):
        assert between(interval) in PAGES[language]
    assert f"{said['bars']['minutes in all']['value']:.0f}" == "132"
    # Without needles, foreign or short text, which such a result does not have.
    assert RESULTS[name].with_suffix(".html").read_text(encoding="utf-8") == page("smollm2", said["result"])


@pytest.mark.parametrize("language", PAGES)
def test_a_training(language: str) -> None:
    name = "extend-smollm2-32768-tune-30-scaling-yarn-dtype-float32-losses"
    said = result(name)
    found = said["result"]
    tuned, untuned = found["tuned"], found["judged"]["yarn"]["tail"]
    tail = tuned["judged"]["tail"]
    assert name in PAGES[language]
    assert tuned["kind"] == "crop"
    assert f" {tuned['steps']} " in PAGES[language]
    assert f" {tuned['texts']} " in PAGES[language]
    assert f"{max(one['GiB'] for one in said['took']):.1f} GiB" in PAGES[language]
    crop, own = untuned["crop"]["8192"], tail["loss"]["32768"]
    for interval, pairs in (
        (tuned["over"], (untuned["loss"]["32768"], own)),
        (tail["gain"]["32768"], (crop, own)),
        (tail["far_tokens"], None),
        (tuned["own"], None),
    ):
        assert interval["documents"] == 16
        assert between(interval) in PAGES[language]
        if pairs is not None:
            assert paired([one - other for one, other in zip(*pairs, strict=True)]).mean == pytest.approx(
                interval["mean"]
            )
    assert RESULTS[name].with_suffix(".html").read_text(encoding="utf-8") == page("smollm2", found)


@pytest.mark.parametrize("language", PAGES)
def test_a_search(language: str) -> None:
    name = "extend-tinyllama-4096-search-96-dtype-float32"
    said = result(name)
    found = said["result"]
    searched, judged = found["searched"], found["judged"]
    assert name in PAGES[language]
    loss = Interval(**said["intervals"]["loss, searched better than yarn paper"])
    assert loss.verdict == "no difference"
    assert str(loss) in PAGES[language]
    assert between(judged["searched"]["tail"]["gain"]["4096"]) in PAGES[language]
    shares = [f"{100 * judged[one]['needles'][-1]['found']:.0f} %" for one in ("searched", "yarn paper")]
    assert shares == ["42 %", "41 %"]
    assert all(share in PAGES[language] for share in shares)
    settings, near = len(searched["trials"]), sum(one["formula"] is not None for one in searched["trials"])
    assert (settings, near) == (12, 4)
    assert searched["passes"] <= 96
    assert min(searched["select"], key=searched["select"].__getitem__) == "refined"
