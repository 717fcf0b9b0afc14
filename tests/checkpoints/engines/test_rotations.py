"""What inspect says of MLX-LM and SGLang, against what their own classes answered for every published config.

The answers stand in rotations.json, which campaigns/engine_rotations.py wrote; with `-m engines` the engines are asked
again, where MLX_PYTHON and SGLANG_PYTHON name interpreters that have them."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from campaigns import engine_rotations as campaign

ANSWERS = json.loads(campaign.ANSWERS.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def asked() -> dict[str, dict[str, Any]]:
    pytest.importorskip("transformers")
    return campaign.configs()


@pytest.mark.parametrize("engine", campaign.PYTHONS)
def test_rotations_are_what_the_engine_answered(engine: str, asked: dict[str, dict[str, Any]]) -> None:
    assert set(ANSWERS[engine]) == set(asked), "run python -m campaigns.engine_rotations"
    wrong = {
        name: found
        for name, config in asked.items()
        if (found := campaign.Told(config, engine).wrong(ANSWERS[engine][name], whole=False))
    }
    assert wrong == {}


@pytest.mark.parametrize("engine", campaign.PYTHONS)
def test_a_wrong_number_is_seen(engine: str, asked: dict[str, dict[str, Any]]) -> None:
    name = "llama-3.1-8b"
    answer = json.loads(json.dumps(ANSWERS[engine][name]))
    answer[0]["frequencies"][2] *= 1.00001
    assert campaign.Told(asked[name], engine).wrong(answer, whole=False) == ["frequencies are 1.0e-05 apart"]


@pytest.mark.parametrize("engine", campaign.PYTHONS)
def test_pasted_keys_do_what_inspect_says(engine: str, asked: dict[str, dict[str, Any]]) -> None:
    """What `inspect --to` prints, given to the engine's own code."""
    answers, printed = ANSWERS[f"{engine} pasted"], campaign.pasted(engine)
    assert set(answers) == set(printed), "run python -m campaigns.engine_rotations"
    assert {name: found for name, one in printed.items() if (found := one.wrong(answers[name], whole=False))} == {}


def test_sglang_reads_the_top_of_a_config_or_its_text_part() -> None:
    """So that inspect names both: of these two, each is a silent no-op where the keys are in the other place alone."""
    answers = ANSWERS["sglang pasted"]

    def reached(name: str, place: str) -> bool:
        one, whole = (
            answers[f"{name}, ntk{where}"][0]["frequencies"] for where in (f", {place} text_config alone", "")
        )
        return one == whole

    assert reached("qwen3-vl-8b", "beside")
    assert not reached("qwen3-vl-8b", "within")
    assert reached("mistral-small-3.1-24b", "within")
    assert not reached("mistral-small-3.1-24b", "beside")


@pytest.mark.engines
@pytest.mark.parametrize("engine", campaign.PYTHONS)
def test_engines_answer_as_they_did(engine: str, asked: dict[str, dict[str, Any]]) -> None:
    python = os.environ.get(campaign.PYTHONS[engine])
    if not python:
        pytest.skip(f"{campaign.PYTHONS[engine]} does not name an interpreter that has it")
    answers = campaign.ask(engine, python, asked)
    assert {
        name: found for name, one in asked.items() if (found := campaign.Told(one, engine).wrong(answers[name]))
    } == {}
