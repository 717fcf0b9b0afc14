"""The README's first picture: drawn from the study that is kept, in two languages, the same every time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from campaigns import study_picture
from ropewalk.plot.drawing import svg
from tests.report.reading import svg_numbers, svg_stands_alone, svg_texts


@pytest.fixture(scope="module")
def study() -> dict[str, Any]:
    return json.loads(study_picture.STUDY.read_text(encoding="utf-8"))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_picture_that_is_kept_is_the_study_drawn(study: dict[str, Any], language: str) -> None:
    drawn = svg(study_picture.chart(study, language))
    assert drawn == svg(study_picture.chart(study, language))
    kept = study_picture.PICTURES[language].read_text(encoding="utf-8")
    assert svg_texts(drawn) == svg_texts(kept)
    assert svg_numbers(drawn) == pytest.approx(svg_numbers(kept), abs=1e-3)
    names = svg_texts(drawn).split("\n")
    assert set(study["text"]["arms"]) | set(study["tasks"]["arms"]) <= set(names)
    svg_stands_alone(drawn)


def test_a_line_is_where_its_data_is(study: dict[str, Any]) -> None:
    drawn = svg_numbers(svg(study_picture.chart(study, "en")))
    text, tasks = json.loads(json.dumps(study)), json.loads(json.dumps(study))
    text["text"]["arms"]["alibi"]["same_tokens"]["4096"][:] = [5.0, 5.0, 5.0]
    tasks["tasks"]["arms"]["nope"]["exact"]["copy"]["25"]["points"][:] = [0.5] * 5
    for changed in (text, tasks):
        assert svg_numbers(svg(study_picture.chart(changed, "en"))) != drawn


def test_the_study_that_is_kept_is_whole(study: dict[str, Any]) -> None:
    assert study["trials"]["missing"] == []
    assert study["text"]["context_pays"]["pays"]
