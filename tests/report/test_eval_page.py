"""The page of `ropewalk eval`: the numbers of its JSON, in both languages, whatever a model or document is named."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from ropewalk.evaluate.battery import Report, rule
from ropewalk.evaluate.measures.needles import Needles
from ropewalk.evaluate.measures.perplexity import Perplexity
from ropewalk.evaluate.measures.tail import Tail
from ropewalk.evaluate.statistics import paired
from ropewalk.report.eval_page import page
from tests.report.reading import Page, stands_alone

LENGTHS = (1024, 2048, 4096)
HOSTILE = '<script>alert("x")</script>'


def evaluated(steps: tuple[float, float] = (0.2, 0.1), documents: int = 10, **changes: Any) -> dict[str, Any]:
    """Loss falls by `steps` from one length to the next, a little differently in each document."""
    crop = {n: [3.0 - drop + 0.01 * d for d in range(documents)] for n, drop in zip(LENGTHS[:2], (0, 0.2), strict=True)}
    drops = dict(zip(LENGTHS, (0.0, steps[0], sum(steps)), strict=True))
    loss = {n: [3.02 - drop + (0.01 + 0.001 * (n // 1024)) * d for d in range(documents)] for n, drop in drops.items()}
    tail = Tail(LENGTHS, LENGTHS[:2], crop, loss, [3.0] * documents, [(3.0, 2.5)] * documents)
    report = Report(
        "ropewalk 0.1.0, float32", 2048, {"kind": "yarn", "factor": 2.0, "trained": 2048}, 512,
        rule(LENGTHS[-1], 2048, 512, 2048), [
            {"name": f"{HOSTILE} {n}", "sha256": f"{n:064x}"} for n in range(documents)
        ], ["left <b>out</b>"], tail, [Needles(n, [[True] * 12 + [False] * 4] * 4, [0.5] * 4) for n in (352, 4096)],
        [Perplexity("sliding", 2048, 512, [2.9] * 4, 8188, 30000, 2.95)], ["needles at 8,192: no <i>room</i>"],
    )  # fmt: skip
    return {"model": "m", "digest": "ab" * 32, **report.to_dict(), **changes}


def test_the_page_stands_alone_and_runs_nothing_out_of_a_file() -> None:
    text = page(f"model {HOSTILE}", evaluated())
    stands_alone(text)
    assert HOSTILE not in text
    assert "&lt;script&gt;" in text
    assert "<b>out</b>" not in text
    assert "<i>room</i>" not in text


def test_a_kept_result_gives_the_same_page() -> None:
    found = evaluated()
    assert page("m", json.loads(json.dumps(found))) == page("m", found)


def test_one_document_has_no_interval() -> None:
    found = evaluated()
    one = paired([0.25]).to_dict()
    found["tail"]["far_tokens"] = json.loads(json.dumps(one, allow_nan=False))
    for language, said in (("en", "one document"), ("zh-CN", "\u53ea\u6709\u4e00\u7bc7\u6587\u6863")):
        words = Page(page("m", found), language).words
        assert said in words
        assert not [word for word in words if re.search(r"\b(inf|nan)\b", word)]


def test_both_languages_say_the_same_numbers() -> None:
    found = evaluated()
    text = page("m", found)
    gain = found["tail"]["gain"][4096]
    each = {language: " ".join(Page(text, language).words) for language in ("en", "zh-CN")}
    assert all(f"{gain[key]:+.4f}" in said for said in each.values() for key in ("mean", "low", "high"))
    numbers = [sorted(re.findall(r"[+\u2212-]?\d[\d.,]*\d", said)) for said in each.values()]
    assert numbers[0] == numbers[1]
    assert f"{found['tail']['benefit']['mean']:+.4f}" in text
    assert f"{found['perplexity'][0]['perplexity']:.3f}" in text
    assert all(one["sha256"][:16] in text for one in found["documents"])


@pytest.mark.parametrize(
    ("steps", "said", "chinese"),
    [
        ((0.2, 0.1), "at every step measured, up to 4,096 tokens", "每次增加上下文都能降低损失"),
        ((0.2, 0.009), "to 4,096, the interval of the difference includes zero", "下一步增加到 4,096 个词元时"),
        ((0.2, -0.3), "up to 2,048 tokens; the next step, to 4,096, raises it", "损失反而升高"),
        ((0.0045, 0.1), "the difference, 1,024 to 2,048 tokens, includes zero", "看不出损失下降"),
        ((-0.3, 0.5), "1,024 to 2,048 tokens, raises the loss already", "损失就已升高"),
    ],
)
def test_where_the_use_of_context_ends(steps: tuple[float, float], said: str, chinese: str) -> None:
    """A step that raises the loss has an interval without zero, and one that does not lower it says nothing of the
    next."""
    text = page("m", evaluated(steps))
    assert said in text
    assert chinese in text
    assert "No step" not in text


def test_few_documents_conclude_nothing() -> None:
    text = page("m", evaluated(documents=5))
    assert "5 documents are too few for a verdict" in text
    assert "5 \u7bc7\u6587\u6863\u592a\u5c11" in text
    assert "lowers the loss" not in text


def test_without_a_scaling_there_is_no_cost_on_short_text() -> None:
    assert "On short text the scaling costs" in page("m", evaluated())
    assert "On short text" not in page("m", evaluated(scaling=None))


def test_engines_stand_side_by_side() -> None:
    assert "By engine" not in page("m", evaluated())
    one = evaluated()
    zero = {**one["tail"]["gain"][4096], "mean": 0.0125, "low": -0.25, "high": 0.275}
    row = {"loss": 2.5, "apart": zero, "gain": zero, "short_cost": zero, "not_measured": []}
    rows = [row | {"engine": "ropewalk"}, row | {"engine": HOSTILE, "not_measured": ["needles at <b>8</b>"]}]
    text = page("m", one | {"engines": rows})
    stands_alone(text)
    for language, title in (("en", "By engine"), ("zh-CN", "\u5404\u5f15\u64ce\u5bf9\u6bd4")):
        said = " ".join(Page(text, language).words)
        assert title in said
        assert "+0.0125 (\u22120.2500\u00a0\u2026\u00a0+0.2750)" in said
    assert HOSTILE not in text
    assert "<b>8</b>" not in text
