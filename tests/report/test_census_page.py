"""The page of a census: the numbers of its summary in both languages, and nothing of a config but as text."""

from __future__ import annotations

import re
from typing import Any

from ropewalk.checkpoints.census.look import UNREAD
from ropewalk.checkpoints.census.summary import summary
from ropewalk.report.census.page import MOST_ROWS, page
from tests.report.reading import Page, stands_alone

HOSTILE = '<script>alert("x")</script>\u202e'


def read(name: str, **changes: Any) -> dict[str, Any]:
    lists = ("windows", "not_compared", "not_understood", "scalings")
    found = {
        "name": name,
        "state": "read",
        "model_type": "llama",
        "kinds": ["rope"],
        "bases": [10_000.0],
        "rotates": True,
    }
    found |= {"trained": None, "stated": 4096, "extended": None, "table": None, **{key: [] for key in lists}}
    return {**found, "loading": ["vllm", "mlx"], "at_odds": [], "departs": [], **changes}


def counted() -> dict[str, Any]:
    rows = [read(f"a/{n}", bases=[10_000.0 + n], stated=2048 * (1 + n)) for n in range(MOST_ROWS + 3)]
    rows += [
        read(HOSTILE, model_type=HOSTILE, at_odds=["mlx"], departs=["mlx: frequencies"], not_understood=[HOSTILE]),
        read("a/scaled", scalings=["yarn"], trained=1024, extended=4096, not_compared=["windows"]),
        {"name": f"{HOSTILE} 2", "state": UNREAD, "model_type": HOSTILE, "field": "model_type", "why": HOSTILE},
        {"name": "a/bad", "state": UNREAD, "model_type": None, "field": HOSTILE, "why": "is not JSON"},
        {"name": "a/gone", "state": "missing", "why": "status 404"},
    ]
    return summary(rows, {"content": 40, "unchanged": 8, "retries": 3}, ("vllm", "mlx"), len(rows))


def test_the_page_stands_alone_and_shows_names_as_text() -> None:
    text = page(counted())
    stands_alone(text)
    assert "<script>alert" not in text
    assert "\u202e" not in text
    assert "&lt;script&gt;alert" in text


def test_both_languages_say_the_same_numbers() -> None:
    found = counted()
    text = page(found)
    each = {language: " ".join(Page(text, language).words) for language in ("en", "zh-CN")}
    numbers = [sorted(re.findall(r"\d[\d.,]*\d|\d", said)) for said in each.values()]
    assert numbers[0] == numbers[1]
    assert "from 1 of the 45 configs" in each["en"]
    assert "More values: 4, counted 4 times" in each["en"]  # of 44 lengths
    assert "More values: 3, counted 3 times" in each["en"]  # of 43 bases
    assert "With a model type that is not known: 1, of 1 types" in each["en"]
    assert "304" in each["zh-CN"]
    assert "的 8 个" in each["zh-CN"]


def test_a_census_of_nothing_that_rotates_has_a_page() -> None:
    found = summary([{"name": "a", "state": "missing", "why": ""}], {"missing": 1, "retries": 0}, ("vllm",), 1)
    assert "nothing to compare" in page(found)
    stands_alone(page(found))
