"""The page of `ropewalk extend`: the numbers of its JSON, in both languages, whatever a document is named."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from ropewalk.evaluate.battery import FAR_TOKENS
from ropewalk.evaluate.measures.needles import Needles
from ropewalk.evaluate.store import Stored
from ropewalk.extend.asking import Asking
from ropewalk.extend.candidates import listed
from ropewalk.extend.candidates.base import STILL
from ropewalk.extend.judging import Judged
from ropewalk.extend.sets import FAR, RULE
from ropewalk.extend.tournament import Result, run
from ropewalk.report.extension.page import page
from ropewalk.trials.jobs import Workers
from tests.extend.test_tournament import ALL, CROP, GOOD, LEAVE, REACH, AtHome
from tests.extend.toys import ROPE, TAIL, TO, Engineered, sets
from tests.report.reading import Page, stands_alone

HOSTILE = '<script>alert("x")</script>'


def held(engine: Engineered, candidates: list[Any], judge: int = 10) -> dict[str, Any]:
    far = FAR.format(tail=TAIL, least=FAR_TOKENS, near=ROPE.reads)
    rule = RULE.format(longest=TO, far=far, search=2, select=2, judge=judge)
    drawn = replace(sets(judge), rule=rule)
    drawn.judge[0] = type(drawn.judge[0])(HOSTILE, "ab" * 32, drawn.judge[0].tokens, 1)
    found = run(Asking(Stored(engine, None), engine, Workers()), ROPE, drawn, candidates, None, tail_tokens=TAIL)
    needles = [Needles(n, [[True] * 12 + [False] * 4] * 4, [0.5] * 4) for n in (32, TO)]
    judged = {name: Judged(one.candidate, one.tail, needles, one.by_position) for name, one in found.judged.items()}
    changed = Result(**{**found.__dict__, "judged": judged, "not_measured": ["a <b>thing</b>"]})
    written = {
        "path": "longer <i>model</i>", "engines": {"transformers 5": None, "vLLM": "it reads <u>another</u> gain"},
        "proofs": [
            {"engine": "HF", "against": "ropewalk", "mean": 1e-6, "most": 2e-6, "bound": 1e-4, "not_run": None},
            {"engine": "vLLM", "against": "", "mean": 0, "most": 0, "bound": 0, "not_run": "not from here"},
        ],
        "commands": {"vLLM": "vllm serve longer"},
    }  # fmt: skip
    return {"model": "m", **changed.to_dict(), "written": written if found.winner is not None else None}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return held(Engineered(REACH, {6.0: 0.1, 8.0: 0.3}), ALL)


def test_the_page_stands_alone_and_runs_nothing_out_of_a_file(found: dict[str, Any]) -> None:
    text = page(f"model {HOSTILE}", found)
    stands_alone(text)
    assert HOSTILE not in text
    assert "&lt;script&gt;" in text
    assert not re.search(r"<b>thing|<i>model|<u>another", text)


def test_a_kept_result_gives_the_same_page(found: dict[str, Any]) -> None:
    assert page("m", json.loads(json.dumps(found))) == page("m", found)


def test_both_languages_say_the_same_numbers(found: dict[str, Any]) -> None:
    text = page("m", found)
    each = {language: " ".join(Page(text, language).words) for language in ("en", "zh-CN")}
    gain = found["judged"]["good"]["tail"]["gain"][TO]
    assert all(f"{gain[key]:+.4f}" in said for said in each.values() for key in ("mean", "low", "high"))
    numbers = [sorted(re.findall(r"[+\u2212-]?\d[\d.,]*\d", said)) for said in each.values()]
    assert numbers[0] == numbers[1]
    first, _, rest = found["verdict"]["sentence"].partition("; ")
    assert f"{first}. {rest[0].upper()}{rest[1:]}" in each["en"]
    for name in found["judged"]:
        assert name in each["zh-CN"]
    assert "vllm serve longer" in text
    assert "not run: not from here" in each["en"]


@pytest.mark.parametrize(
    ("engine", "candidates", "judge", "chinese"),
    [
        (Engineered(REACH), ALL, 10, "\u65e0\u663e\u8457\u5dee\u5f02\uff0c\u53d6\u6700\u7b80\u5355"),
        (Engineered({}), [LEAVE, GOOD], 10, "\u4e0e\u622a\u65ad\u65e0\u663e\u8457\u5dee\u5f02"),
        (Engineered({}, {4.0: 0.5}), [LEAVE, GOOD], 10, "\u622a\u65ad\u66f4\u597d"),
        (Engineered(REACH), [LEAVE, GOOD], 5, "5 \u7bc7\u6587\u6863\u592a\u5c11"),
    ],
)
def test_every_verdict_has_its_page(engine: Engineered, candidates: list[Any], judge: int, chinese: str) -> None:
    found = held(engine, candidates, judge)
    text = page("m", found)
    assert chinese in text
    if found["written"] is None:
        why = "there is no verdict yet" if judge == 5 else "serve the unchanged model, with texts truncated to"
        assert f"Nothing was written: {why}" in text
        assert "<strong>crop</strong>" not in text


@pytest.mark.parametrize(
    ("after", "chinese"), [(0.02, "\u6bd4\u4fdd\u6301\u539f\u6837\u597d +0.02"), (-0.02, "\u770b\u4e0d\u51fa")]
)
def test_at_its_own_length_the_page_compares_with_no_change(after: float, chinese: str) -> None:
    engine = AtHome()
    engine.after = after
    asking = Asking(Stored(engine, None), engine, Workers())
    found = run(asking, replace(ROPE, trained=TO), sets(), [LEAVE, CROP, GOOD], None, tail_tokens=TAIL)
    text = page("m", {"model": "m", **found.to_dict(), "written": None})
    assert chinese in " ".join(Page(text, "zh-CN").words)
    assert found.sentence.partition("; ")[0] in " ".join(Page(text, "en").words)


def test_the_numbers_of_the_needles_are_under_their_names_as_drawn(found: dict[str, Any]) -> None:
    text = page("m", found)
    section = text[text.index('id="map"') :]
    rows = re.findall(r'<th scope="row">(.*?)</th>', section[: section.index("</details>")])
    order = sorted(found["judged"], key=lambda name: -found["judged"][name]["tail"]["gain"][TO]["mean"])
    assert rows == order


def test_a_pair_that_is_stopped_has_no_number_and_rounds_have_chinese_names(found: dict[str, Any]) -> None:
    clipped = listed("clipped", "", [1.0] * 7 + [STILL], 1.0, ROPE)
    text = page("m", held(Engineered(REACH), [LEAVE, GOOD, clipped]))
    assert "e+09" not in text
    assert "stopped" in Page(text, "en").words
    assert "\u505c\u8f6c" in Page(text, "zh-CN").words
    said = Page(page("m", found), "zh-CN").words
    assert any(f"\u641c\u7d22\uff0c{TO:,} \u4e2a\u8bcd\u5143" in each for each in said)
    assert not [word for word in said if re.match(r"(search|select) at", word)]


def test_the_chinese_verdict_has_the_same_reservations(found: dict[str, Any]) -> None:
    """Of far tokens, over which crop; of an interval without zero that Holm's correction leaves open."""
    one = found["judged"]["good"]
    for best in (32, 64):
        other = one | {"tail": one["tail"] | {"best_crop": best}}
        said = page("m", found | {"judged": found["judged"] | {"good": other}})
        assert ("\u8bcd\u5143\u4e0a\u76f8\u5bf9\u622a\u65ad\u5230 64 \u7684\u6536\u76ca\u4e3a" in said) == (best == 32)
    crop = found | {"verdict": found["verdict"] | {"kind": "crop", "winner": "crop", "best": "good"}}
    finals = sum(one["candidate"]["text"] == "whole" for one in found["judged"].values())
    said = page("m", crop)
    assert f"\u5bf9 {finals} \u4e2a\u5165\u56f4\u5019\u9009\u505a Holm" in said
    assert "\u91cd\u590d\u8fdc\u5904\u5185\u5bb9\u7684\u8bcd\u5143" in said


def test_a_text_that_begins_with_bos_is_told_in_both_languages(found: dict[str, Any]) -> None:
    said = page("m", found | {"engine": "ours, texts begin with <s>"})
    assert "ours, texts begin with &lt;s&gt;; trained length" in said
    assert "ours\uff0c\u6587\u672c\u4ee5 &lt;s&gt; \u5f00\u5934\uff1b" in said


def taken(one: dict[str, Any]) -> dict[str, Any]:
    """What training bought, where that is taken."""
    about = {"start": "good", "steps": 20, "seconds": 90.0, "texts": 4, "judged": one, "kind": "take"}
    return about | {"not_measured": []} | dict.fromkeys(("over", "own"), one["tail"]["gain"][TO])


def test_a_model_of_our_own_is_told_what_to_change(found: dict[str, Any]) -> None:
    """Nothing is written for it, whatever the verdict."""
    own = found | {"written": None}
    words = " ".join(Page(page("m", own), "en").words)
    assert "the verdict is to change nothing" not in words
    assert '"factor": 4.0' in words
    text = page("m", own | {"tuned": taken(found["judged"]["good"])})
    assert "The tuned model is in the run" in text
    assert "the verdict is to change nothing" not in text


def test_a_run_that_only_measured_says_so(found: dict[str, Any]) -> None:
    """As of a campaign, on a model that is not ropewalk's own."""
    measured = found | {"written": None, "native": False}
    trained = measured | {"tuned": taken(found["judged"]["good"])}
    for each, says in ((measured, '"factor": 4.0'), (trained, "The tuned model is in the run")):
        text = page("m", each)
        english, chinese = (" ".join(Page(text, language).words) for language in ("en", "zh-CN"))
        assert "this run only measured" in english
        assert says in english
        assert "ropewalk's own" not in english
        assert "\u8fd9\u6b21\u8fd0\u884c\u53ea\u505a\u6d4b\u91cf" in chinese


def test_a_proof_that_failed_is_told(found: dict[str, Any]) -> None:
    """One that is within the bound of the mean, and off in one token."""
    one = {"engine": "HF", "against": "ropewalk", "mean": 5e-5, "most": 6e-3, "bound": 1e-4, "most_bound": 5e-3}
    for failed in (False, True):
        written = found["written"] | {"proofs": [one | {"failed": failed, "not_run": None}]}
        text = page("m", found | {"written": written})
        assert "0.0001; 0.005" in text
        assert ("ropewalk: exceeds what is allowed" in text) == failed
        assert ("\u8d85\u51fa\u5141\u8bb8\u8303\u56f4" in text) == failed


def test_weights_that_training_made_better_are_named_at_the_top(found: dict[str, Any]) -> None:
    start, one = next(iter(found["judged"].items()))
    over = one["tail"]["gain"][TO]
    tuned = {"start": start, "steps": 20, "seconds": 90.0, "texts": 4, "judged": one, "over": over, "own": over}
    tuned |= {"kind": "take", "not_measured": ["needles: too short"]}
    text = page("m", found | {"tuned": tuned})
    assert "needles: too short" in text
    for language, said, below in (
        ("en", "Take the tuned weights", "What training bought"),
        ("zh-CN", "\u7528\u8bad\u7ec3\u540e\u7684\u6743\u91cd", "\u8bad\u7ec3\u5e26\u6765\u4e86\u4ec0\u4e48"),
    ):
        words = " ".join(Page(text, language).words)
        assert 0 < words.index(said) < words.index(str(over["documents"]), words.index(said)) < words.index(below)
