"""The picture of angle errors: drawn from the result that is kept, in two languages, the same every time."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from campaigns import angles
from ropewalk.report import angle_picture
from tests.report.reading import svg_numbers, svg_stands_alone, svg_texts

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "campaigns" / "results" / "angles.json"


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    return json.loads(KEPT.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("language", "name"), [("en", "angles.svg"), ("zh", "angles.zh.svg")])
def test_the_picture_that_is_kept_is_the_result_drawn(data: dict[str, Any], language: str, name: str) -> None:
    drawn = angle_picture.draw(data, language)
    assert drawn == angle_picture.draw(data, language)
    kept = (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8")
    assert svg_texts(drawn) == svg_texts(kept)
    assert svg_numbers(drawn) == pytest.approx(svg_numbers(kept), abs=1e-3)
    for library in data["libraries"]:
        assert library.split(",")[0] in svg_texts(drawn), library
    svg_stands_alone(drawn)


def test_a_line_is_where_its_data_is(data: dict[str, Any]) -> None:
    worse = json.loads(json.dumps(data))
    worse["libraries"]["ropewalk"]["rad"] = [1e-3] * len(data["at"])
    drawn = angle_picture.draw(worse)
    assert "ropewalk: within 1.0e-3 rad" in svg_texts(drawn)
    assert svg_numbers(drawn) != svg_numbers(angle_picture.draw(data))


def test_only_those_that_agree_are_one_line() -> None:
    a, b, short, other = {"rad": [1e-5, 1e-4]}, {"rad": [1.1e-5, 1e-4]}, {"rad": [1e-5]}, {"rad": [1e-5, 1e-3]}
    found = angle_picture.together({"a": a, "b": b, "short": short, "other": other})
    assert found == [["a", "b", "short"], ["other"]]


def test_a_rounded_bound_is_never_below() -> None:
    assert angle_picture._at_most(2.034e-7) == "2.1e-7"
    assert float(angle_picture._at_most(9.99e-8)) >= 9.99e-8


def test_the_result_says_how_it_was_found(data: dict[str, Any]) -> None:
    assert data["command"].startswith("python -m campaigns.angles")
    assert "/" not in data["command"]
    assert {"python", "torch", "transformers"} <= set(data["versions"])
    assert all(each["holds"] for each in data["bars"].values())
    assert "llama.cpp" in data["not_run"]
    for found in data["libraries"].values():
        assert len(found["rad"]) == len(data["at"]) or found["ends"]


def test_a_few_points_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(angles, "POSITIONS", 8)
    near, middle, far = angles.measure("ropewalk", [2**17, 2**36, 2**40])["rad"]
    assert near <= 2.5e-7
    assert middle <= 2.5e-7
    assert far <= 1e-6
    assert 1e-3 < angles.measure("transformers", [2**17])["rad"][0] < 1
    assert angles.measure("transformers, model.to(bfloat16)", [2**17])["rad"][0] > 1


def test_one_that_refuses_ends_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(x: Any, positions: Any) -> Any:
        if positions.max() > 10**4:
            raise IndexError("too far")
        return angles.ropewalk(x, positions)

    monkeypatch.setitem(angles.LIBRARIES, "short", (refuses, "short", "half", None))
    found = angles.measure("short", [10**3, 10**5, 10**6])
    assert len(found["rad"]) == 1
    assert found["ends"] == "at 100,000: IndexError: too far"


def test_the_truth_is_the_circle() -> None:
    """Checked where an angle is known: frequency 1, position 355, which is 113 half turns and 3.01e-5."""
    apart = angles.truth((355,))[0][0] - math.pi
    assert apart == pytest.approx(355 - 113 * math.pi, abs=1e-12)
