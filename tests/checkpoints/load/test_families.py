"""Every family against transformers: logits, padding, far positions, cached decoding, gradients of one step."""

from __future__ import annotations

import re

import pytest
import transformers

from ropewalk import positions
from ropewalk.checkpoints import families
from tests.checkpoints.family_models import BY_NAME, CASES, LENGTHS, Pair, family_file
from tests.checkpoints.family_page import FILES

BOUND = 2e-4
GRADIENT = 1e-5


@pytest.fixture(scope="module", params=list(BY_NAME))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(BY_NAME[request.param], tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("length", LENGTHS)
def test_logits_are_transformers(pair: Pair, length: int) -> None:
    assert pair.at_length(length) <= BOUND


def test_left_padding_changes_nothing(pair: Pair) -> None:
    assert pair.padded() <= BOUND


def test_logits_at_far_positions(pair: Pair) -> None:
    # Exact angles in transformers: its float32 ones alone are worth up to 4e-4 here, which the next test bounds.
    assert pair.far() <= BOUND


def test_float32_angles_explain_the_rest_at_far_positions(pair: Pair) -> None:
    assert pair.far(exact=False) <= 1e-3


def test_cached_decoding_is_the_whole_pass(pair: Pair) -> None:
    if pair.ours.decoder is None:
        pytest.skip("an encoder sees its whole text at once")
    assert pair.decoded(positions.plain(128, batch=2)) <= BOUND


def test_cached_decoding_with_left_padding(pair: Pair) -> None:
    if pair.ours.decoder is None:
        pytest.skip("an encoder sees its whole text at once")
    assert pair.decoded(positions.padded((128, 90), side="left")) <= BOUND


def test_gradients_of_one_step(pair: Pair) -> None:
    apart = pair.gradients()
    assert len(apart) >= len(pair.ours.state_dict()) - 1  # Marian's output bias is a buffer there
    worst = max(apart, key=lambda name: apart[name])
    assert apart[worst] <= GRADIENT, worst


def test_sources_of_the_plan_name_the_file(pair: Pair) -> None:
    said = [source for plan in pair.ours.plans.values() for layer in plan.layers for _, source in layer.sources]
    assert said
    assert all(source.startswith(("config.json:", "transformers", "the whole head")) for source in said)


def test_every_family_has_a_model_here() -> None:
    kinds = {getattr(transformers, case.config).model_type for case in CASES}
    assert kinds == set(families.model_types())


def test_the_table_in_the_docs_lists_these_families() -> None:
    rows = re.findall(r"^\| ([^|]+) \| `(\w+)` \| (\w+)\.py \|", FILES["en"].read_text(encoding="utf-8"), re.MULTILINE)
    kinds = [(case, getattr(transformers, case.config).model_type) for case in CASES]
    assert rows == [(case.name, kind, family_file(kind)) for case, kind in kinds]


def test_files_are_named_in_the_docs() -> None:
    text = FILES["en"].read_text(encoding="utf-8")
    assert [name for name in families.names() if f"| {name}.py |" not in text] == []
