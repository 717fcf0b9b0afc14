"""A study as trials: one training and its measurement each, named by the hash of all that its numbers depend on.

A trial that was done is not done again, whichever study of its folder asks for it: one more arm or seed costs what is
new.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from ropewalk.compare import measure_tasks, measure_text
from ropewalk.compare.study import Study, TaskPart, TextPart
from ropewalk.data.config import TaskData, TaskSetData, TextData
from ropewalk.data.drawn.skips import measured_at
from ropewalk.data.layout import describe
from ropewalk.data.task_set import TaskSetRows
from ropewalk.encodings.find import code_of, find
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.overrides import expand, layered, problems
from ropewalk.train.config import Recipe
from ropewalk.train.optim import Muon
from ropewalk.train.plan.sizes import sizes
from ropewalk.train.start.source import open_source

ALIKE = 0.005
"""Share of its parameters by which an arm may differ from the reference unsaid."""


PROTOCOLS = {"text": measure_text.PROTOCOL, "tasks": measure_tasks.PROTOCOL}


@dataclass(frozen=True)
class Trial:
    part: str
    arm: str
    seed: int
    factor: float
    """Of the recipe's learning rate."""
    share: float
    """Of the training that the study's recipe asks for."""
    recipe: Recipe
    measure: dict[str, Any] | None
    """What is measured besides the validation loss; None for a point of the search for a learning rate."""
    threads: int = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """As data: a worker imports an encoding outside the package as a config does, not as pickle would."""
        recipe = self.recipe.model_dump(mode="json")
        told = (self.part, self.arm, self.seed, self.factor, self.share, recipe, self.measure, self.threads)
        return _restored, told

    @property
    def name(self) -> str:
        rate = "" if self.factor == 1 else f", rate x{self.factor:g}"
        return f"{self.part}: {self.arm} / seed {self.seed}{rate}{'' if self.share == 1 else ', search'}"

    @cached_property
    def hash(self) -> str:
        """Of the training and of what is measured of it."""
        return digest(
            {"training": self.training, "measure": self.measure, "protocol": self.measure and PROTOCOLS[self.part]}
        )

    @cached_property
    def training(self) -> str:
        """What the trained weights depend on: trials that only measure otherwise share them."""
        told = {
            "recipe": self.recipe.model_dump(mode="json"),
            "data": _fingerprint(self.recipe),
            "sources": _sources(self.recipe.model),
            "threads": self.threads,
        }
        if measured_at(getattr(self.recipe.data, "positions", None)) is not None:
            told["validated"] = "at drawn positions"  # once at 0, 1, 2, ..., and the best learning rate by that
        if self.recipe.train.start is not None:
            # By content: another checkpoint may stand under the same path later.
            told["start"] = _start(self.recipe.train.start)
        return digest(told)


def _restored(part: str, arm: str, seed: int, factor: float, share: float, recipe: Any, *more: Any) -> Trial:
    return Trial(part, arm, seed, factor, share, Recipe.model_validate(recipe), *more)


class Trials:
    """Makes the trials of a study, and refuses arms that are not comparable with its reference."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.recipes = {(part, arm): _recipe(study, part, arm) for part in study.parts for arm in study.arms_of(part)}
        for part in study.parts:
            for arm in study.arms_of(part):
                self._measurable(part, arm)
            for arm in study.arms_of(part)[1:]:
                self._comparable(part, arm)

        self._made: dict[tuple[str, str, int, float, bool], Trial] = {}

    def trial(self, part: str, arm: str, seed: int, factor: float = 1.0, *, search: bool = False) -> Trial:
        key = (part, arm, seed, factor, search)
        if key not in self._made:
            share = self.study.rates.share if search and self.study.rates else 1.0
            recipe = _trained(self.recipes[part, arm], seed, factor, share)
            measure = None if search else self._measure(part)
            self._made[key] = Trial(part, arm, seed, factor, share, recipe, measure, self.study.threads)
        return self._made[key]

    def _measure(self, part: str) -> dict[str, Any]:
        asked = self.study.parts[part]
        reference = self.recipes[part, self.study.reference]
        if isinstance(asked, TextPart):
            trained = reference.data.length
            lengths = sorted({*asked.lengths, trained})
            return {"trained": trained, "lengths": lengths, "tail": asked.tail, "documents": asked.documents}
        assert isinstance(reference.data, TaskSetData)
        return {"longest": reference.data.longest, "lengths": sorted({*asked.lengths}), "samples": asked.samples}

    def _measurable(self, part: str, arm: str) -> None:
        """What would end in an error after the training is refused before it."""
        data, asked = self.recipes[part, arm].data, self._measure(part)
        if isinstance(data, TaskSetData):
            self._knows_all(arm, data)
            rows = TaskSetRows(data, "decoder", 0, valid=True)
            for task in data.of:
                rows.sample(task, asked["lengths"][-1], np.random.default_rng(0))
            return
        if asked["tail"] >= asked["lengths"][0]:
            raise ValueError(
                f"text.tail={asked['tail']}: a length of {asked['lengths'][0]} tokens has none before so many; write "
                f"text.tail={asked['lengths'][0] - 1} or less"
            )
        assert isinstance(data, TextData)
        measure_text.pieces(data, asked["lengths"][-1], asked["documents"])

    def _knows_all(self, arm: str, data: TaskSetData) -> None:
        reference: Any = self.recipes["tasks", self.study.reference].data
        if missing := [task for task in reference.of if task not in data.of]:
            both = ", ".join(dict.fromkeys([*data.of, *missing]))
            raise ValueError(
                f"tasks: arm {arm} has data.of: [{', '.join(data.of)}], and all arms are asked what the reference "
                f"{self.study.reference} has, {', '.join(missing)} too; write data: {{of: [{both}]}} in the arm, or "
                "the names of the other arms in tasks.arms"
            )

    def _comparable(self, part: str, arm: str) -> None:
        ours, theirs = self.recipes[part, arm], self.recipes[part, self.study.reference]
        allowed, names = self.study.arms[arm].differs, f"{part}: arm {arm} and the reference {self.study.reference}"
        count, wanted = parameters(ours.model), parameters(theirs.model)
        if "parameters" not in allowed and abs(count / wanted - 1) > ALIKE:
            raise ValueError(
                f"{names} differ in parameters: {count:,} and {wanted:,}, {count / wanted - 1:+.1%}, more than "
                f"{ALIKE:.1%}; make them alike, or write differs: [parameters] in the arm"
            )
        unlike = list(changed(_order(theirs), _order(ours)))
        if "data" not in allowed and unlike:
            said = "; ".join(f"{key} is {was} and {now}" for key, was, now in unlike)
            raise ValueError(f"{names} do not read the same batches in the same order: {said}; write differs: [data]")


def parameters(config: TransformerConfig) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Transformer(config).parameters())


def digest(told: Any) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def _recipe(study: Study, part: str, arm: str) -> Recipe:
    asked, chosen = study.parts[part], study.arms[arm]
    assert not isinstance(study.recipe, str)
    data = expand(study.recipe, Recipe)
    for changes in (asked.recipe, chosen.model_dump(exclude={"differs"}, exclude_unset=True)):
        data = expand(layered(Recipe, data, changes), Recipe)
    try:
        recipe = Recipe.model_validate(data)
    except ValidationError as error:
        raise problems(error, Recipe, f"{part}: arm {arm}", data) from None
    kind: Any = TaskSetData if isinstance(asked, TaskPart) else TextData
    if not isinstance(recipe.data, kind):
        wanted = "tasks" if isinstance(asked, TaskPart) else "text"
        raise ValueError(
            f"{part}: arm {arm} has data of kind {recipe.data.kind}; write {part}: {{recipe: {{data: {{kind: {wanted}, "
            "...}}}}"
        )
    # The sizes of the data, where the recipe leaves the vocabulary open: parameters are counted with it.
    if "vocabulary" not in recipe.model.model_fields_set:
        known = recipe.data.vocabulary if isinstance(recipe.data, TaskSetData) else _about(recipe)["vocabulary"]
        model = TransformerConfig.model_validate({**recipe.model.model_dump(), "vocabulary": int(known)})
        recipe = recipe.model_copy(update={"model": model})
    return recipe


def _trained(recipe: Recipe, seed: int, factor: float, share: float) -> Recipe:
    """The recipe of one trial."""
    train = recipe.train
    changes: dict[str, Any] = {"seed": seed}
    if factor != 1 or share != 1:  # a rate may follow from the warm-up, which a short search cuts
        rates = {"lr": train.peak(recipe.model.width) * factor}
        if isinstance(train.optimizer, Muon):  # the matrices of the blocks have a rate of their own
            rates["matrix_lr"] = train.optimizer.matrix_lr * factor
        changes["optimizer"] = train.optimizer.model_copy(update=rates)
    if share != 1:
        for name in ("tokens", "steps"):
            if (count := getattr(train, name)) is not None:
                changes[name] = max(1, round(count * share))
        cut = sizes(train.model_copy(update=changes), recipe.data.length, 1)
        # The warm-up decides which rates a model survives, so it is that of the whole training. Losses on the way are
        # not asked for, and cost as much as a tenth of the steps each.
        changes["schedule"] = train.schedule.model_copy(update={"warmup": min(train.schedule.warmup, cut.steps // 2)})
        changes["evaluate"] = train.evaluate.model_copy(update={"every": cut.steps})
    return recipe.model_copy(update={"train": train.model_copy(update=changes)})


def _order(recipe: Recipe) -> dict[str, Any]:
    """What decides which tokens an update has. Their positions are the model's affair."""
    cut = sizes(recipe.train, recipe.data.length, 1)
    data = recipe.data.model_dump(mode="json", exclude={"positions"})
    return {"data": data, "train": {"batch": cut.batch, "steps": cut.steps}}


def changed(was: Any, now: Any, above: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(was, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*was, *now]):
            yield from changed(was.get(key), now.get(key), f"{above}.{key}".lstrip("."))
    elif was != now:
        yield above, was, now


def _about(recipe: Recipe) -> dict[str, Any]:
    assert isinstance(recipe.data, TextData)
    return describe(Path(recipe.data.path))


def _fingerprint(recipe: Recipe) -> str | None:
    return None if isinstance(recipe.data, TaskData | TaskSetData) else str(_about(recipe)["fingerprint"])


def outside(config: TransformerConfig) -> list[str]:
    """Kinds of encoding from other packages."""
    layers = [layer.encoding for side in config.sides for layer in config.layer_kinds(side)]
    parts = [part for one in layers for part in (one, *getattr(one, "parts", ()))]
    return sorted({part.kind for part in parts if "." in part.kind})


def _sources(config: TransformerConfig) -> dict[str, str]:
    """Encodings outside the package change without its version."""
    return {kind: _source(kind) for kind in outside(config)}


@lru_cache
def _start(path: str) -> str:
    return open_source(path).fingerprint()


@lru_cache
def _source(kind: str) -> str:
    return digest(code_of(find(kind)))
