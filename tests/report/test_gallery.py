"""The gallery and the page of one checkpoint: what `inspect` finds, in both languages, whatever a config holds."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from ropewalk.checkpoints.engines.llama_cpp import rules
from ropewalk.checkpoints.inspect.report import inspect
from ropewalk.report import checkpoint_page, gallery, gallery_page
from ropewalk.report.engine_words import linked, told
from scripts.gallery import PAGE, made
from tests.checkpoints import published
from tests.cli.test_inspect_published import AT_ODDS
from tests.report.reading import Page, shown, stands_alone


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return gallery.gather([published.path(name) for name in published.names()])


@pytest.fixture(scope="module")
def text() -> str:
    return made()


def test_the_committed_page_is_up_to_date(text: str) -> None:
    assert PAGE.read_text(encoding="utf-8") == text, "run: python scripts/gallery.py"
    stands_alone(text)


def test_every_config_is_there(whole: dict[str, Any]) -> None:
    assert {one["name"] for one in [*whole["entries"], *whole["unread"]]} == set(published.names())
    refused = {name for name, plan in published.plans().items() if plan.startswith("error: ")}
    assert {one["name"] for one in whole["unread"]} == refused
    json.dumps(whole, allow_nan=False)


def test_disagreements_stand_first_with_why(whole: dict[str, Any], text: str) -> None:
    """Against `inspect`, config by config."""
    at_odds = {one["name"] for one in whole["entries"] if not one["agree"]}
    assert at_odds >= {name for name, engines in AT_ODDS.items() if engines}
    agree = [one["agree"] for one in whole["entries"]]
    assert agree == sorted(agree)
    seen = shown(text)
    first = seen[: seen.index("All checkpoints")]
    for name in at_odds:
        assert name in first
        report = inspect(published.path(name))
        for engine in report.at_odds:
            counted = [note for note in report.rows[engine].reading.notes if note.counts]
            assert counted
            assert all(note.what in first and note.why in first for note in counted)
    hrefs = {link["href"] for link in Page(text).all("a")}
    assert "https://github.com/ggml-org/llama.cpp/issues/8361" in hrefs
    ids = {found.get("id") for _, found in Page(text).tags}
    assert {href[1:] for href in hrefs if href and href.startswith("#")} <= ids


def test_everything_engines_do_is_told_in_chinese(whole: dict[str, Any]) -> None:
    engines = [found for one in whole["entries"] for found in one["engines"].values()]
    said = {note[key] for found in engines for note in found["notes"] for key in ("what", "why")}
    said |= {found["refusal"] for found in engines if found["refusal"]}
    assert len(said) > 30
    assert {sentence for sentence in said if "zh" not in told(sentence)} == set()


def test_a_rule_that_changes_changes_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    path = published.path("gpt-oss-20b")
    before = gallery_page.page(gallery.gather([path]))
    monkeypatch.setattr(rules, "VERSION", "of tomorrow")
    assert gallery_page.page(gallery.gather([path])) != before


def test_wavelengths_are_those_of_the_formula() -> None:
    """Llama-2-7B: 10000^(2i/128) times 2 pi."""
    (waves,) = gallery.entry(inspect(published.path("llama-2-7b")))["waves"]
    (row,) = waves["rows"]
    assert row["who"] == gallery.CONFIG
    want = [2 * 3.141592653589793 * 10_000 ** (2 * i / 128) for i in range(64)]
    assert row["wavelengths"] == pytest.approx(want, rel=1e-12)


def test_an_engine_that_departs_has_its_own_wavelengths() -> None:
    (waves,) = gallery.entry(inspect(published.path("gpt-oss-20b")))["waves"]
    config, other, *_ = waves["rows"]
    assert (config["who"], other["who"]) == ("config", "llama.cpp")
    apart = max(max(a / b, b / a) for a, b in zip(config["wavelengths"], other["wavelengths"], strict=True))
    assert apart == pytest.approx(1.76, abs=0.01), "as inspect prints"


def test_sentences_of_rules_are_found_by_their_form() -> None:
    assert told("sees 4,097 tokens in sliding layers, one more than transformers")["zh"].count("4,097") == 1
    # The longer sentence, not the one that it begins with.
    assert "yarn" in told("takes theta 10,000 instead of 500,000 and no yarn")["zh"]
    assert told("turns to the moon") == {"en": "turns to the moon"}
    assert str(linked("vllm#27722 (the same rounding there, since fixed)")).startswith(
        '<a href="https://github.com/vllm-project/vllm/issues/27722"'
    )
    assert "<a" not in linked("unheard#1")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("qwen3-8b", "computes what the config says"),
        ("gpt2", "Nothing rotates here"),
        ("gemma-3-4b", "what the config says"),
    ],
)
def test_pages_of_other_kinds(name: str, says: str) -> None:
    text = checkpoint_page.page(inspect(published.path(name)))
    stands_alone(text)
    assert says in shown(text)


def test_a_length_to_reach_is_on_the_page() -> None:
    text = checkpoint_page.page(inspect(published.path("qwen2.5-7b-instruct"), to=131072))
    assert "To reach 131,072 tokens" in shown(text)
    assert "--rope-scaling yarn --rope-scale 4" in shown(text)


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_the_readme_counts_as_the_gallery_does(whole: dict[str, Any], name: str) -> None:
    turning = [one for one in whole["entries"] if one["rotates"]]
    bad = [one for one in turning if not one["agree"]]
    lines = (PAGE.parents[1] / name).read_text("utf-8").splitlines()
    (line,) = (one for one in lines if one.startswith("- **") and "vLLM" in one)
    assert re.findall(r"\b\d+\b", line)[:2] == [str(len(turning)), str(len(bad))]


def test_a_picture_that_cannot_be_drawn_is_named() -> None:
    text = checkpoint_page.page(inspect(published.path("qwen2.5-7b-instruct"), to=1000))
    assert "Not drawn: to=1,000 is within the stated length" in shown(text)


def test_a_gain_on_the_scores_has_a_column_on_the_page() -> None:
    def tables(name: str, to: int) -> str:
        return shown(checkpoint_page.page(inspect(published.path(name), to=to)))

    # YaRN as DeepSeek has it, 200,000 / 4,096 times: (0.1 ln s + 1) squared.
    assert "1.9289" in tables("deepseek-v3", 200_000)
    assert "1.9289" not in tables("deepseek-v3", 100_000)
