"""What may differ when a run is resumed, and what may not."""

from __future__ import annotations

import pytest

from ropewalk.train.config import Recipe
from ropewalk.train.guard.drift import Drift, check_drift
from tests.train import small_recipe

VERSIONS = {"torch": "2.13.0", "python": "3.11.7"}


def facts(recipe: Recipe, data: str = "abc", **versions: str) -> dict[str, object]:
    return {"recipe": recipe.model_dump(mode="json"), "data": data, "versions": VERSIONS | versions}


def test_the_same() -> None:
    saved = facts(small_recipe.recipe()) | {"step": 4, "bad": []}
    assert check_drift(saved, facts(small_recipe.recipe())) == []


def test_every_difference_is_listed() -> None:
    saved = facts(small_recipe.recipe())
    now = facts(small_recipe.recipe(optimizer={"kind": "adamw", "lr": 0.5}, seed=3), data="abd", torch="2.14.0")
    with pytest.raises(Drift) as found:
        check_drift(saved, now)
    assert found.value.differences == [
        "recipe.train.optimizer.lr: was None, is 0.5",
        "recipe.train.seed: was 0, is 3",
        "data: was 'abc', is 'abd'",
        "versions.torch: was '2.13.0', is '2.14.0'",
    ]
    assert "--allow-drift" in str(found.value)
    assert len(check_drift(saved, now, allow=True)) == 4


def test_where_and_how_often_may_differ() -> None:
    recipe = small_recipe.recipe().model_dump()
    saved = facts(small_recipe.recipe())
    recipe["mesh"]["tp"] = 2
    recipe["train"]["micro"] = 32
    recipe["train"]["save"]["every"] = 100
    recipe["train"]["faults"] = {"hang": 5.0, "policy": "skip"}
    assert check_drift(saved, facts(Recipe.model_validate(recipe), python="3.11.9")) == []
    with pytest.raises(Drift, match=r"versions\.python: was '3\.11\.7', is '3\.12\.0'"):
        check_drift(saved, facts(Recipe.model_validate(recipe), python="3.12.0"))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"schedule": {"kind": "constant"}}, "recipe.train.schedule.kind"),
        ({"batch": 256}, "recipe.train.batch"),
        ({"steps": 24}, "recipe.train.steps"),
        ({"clip": 2.0}, "recipe.train.clip"),
        ({"label_smoothing": 0.1}, "recipe.train.label_smoothing"),
        ({"precision": "bfloat16"}, "recipe.train.precision"),
        ({"compile": True}, "recipe.train.compile"),
    ],
)
def test_what_changes_the_numbers_may_not_differ(changed: dict[str, object], named: str) -> None:
    with pytest.raises(Drift) as found:
        check_drift(facts(small_recipe.recipe()), facts(small_recipe.recipe(**changed)))
    assert any(each.startswith(f"{named}: was") for each in found.value.differences)


def test_what_an_older_checkpoint_has_not() -> None:
    with pytest.raises(Drift, match="data: was 'absent', is 'abc'"):
        check_drift({"recipe": {}, "versions": {}}, {"data": "abc"})


def test_matrices_in_one_or_apart() -> None:
    def with_model(**train: object) -> dict[str, object]:
        recipe = small_recipe.recipe(**train)
        return facts(recipe.model_copy(update={"model": recipe.model.model_copy(update={"fused": True})}))

    assert check_drift(with_model(), facts(small_recipe.recipe())) == []
    # Muon makes orthogonal what is one matrix.
    muon = {"optimizer": {"kind": "muon"}}
    with pytest.raises(Drift, match=r"recipe\.model\.fused: was True, is False"):
        check_drift(with_model(**muon), facts(small_recipe.recipe(**muon)))
