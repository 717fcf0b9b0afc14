"""The model of a run that starts from a checkpoint: the checkpoint's config, and what continued training may change.

That is base and scaling of rotary positions, dropout, and `fused: false` for tensor parallelism. Whatever else the
recipe says of the model must be what the checkpoint says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ropewalk.checkpoints.files.strict_json import read_json
from ropewalk.checkpoints.resolve.native import config_of
from ropewalk.models import TransformerConfig
from ropewalk.overrides import BadConfig, Problem, layered, load
from ropewalk.train.config import Recipe
from ropewalk.train.start.source import open_source
from ropewalk.yaml_text import short

FOLDER, RECORD = "start", "start.json"
"""In a run's folder: what is kept of the checkpoint, so that nothing but the run is needed to resume it."""
FREE = re.compile(r"(.*\.)?(cross_)?encoding\.(.*\.)?(base|scaling|frequencies|precision)(\..*)?|dropout(\..*)?")


def load_recipe(
    path: str | Path | None,
    assignments: Sequence[str] = (),
    *,
    start: str | None = None,
    run: Path | None = None,
    kinds: Collection[str] = (),
) -> Recipe:
    """A recipe, its model that of the checkpoint where it names one. start: as train.start=... would; run: the folder
    of a run that may be under way, which is asked before the checkpoint; kinds: as in `open_source`."""
    given = list(assignments)
    if start is not None:
        if any(each.partition("=")[0].strip() == "train.start" for each in given):
            raise ValueError(f"--from {start} and train.start=... say the same thing; give one of them")
        given.append(f"train.start={json.dumps(start)}")

    def adapt(data: dict[str, Any]) -> dict[str, Any]:
        train = data.get("train")
        named = train.get("start") if isinstance(train, dict) else None
        model = data.get("model", {})
        if not isinstance(named, str) or not isinstance(model, dict):
            return data
        return {**data, "model": changed(base(named, run, kinds), model, named)}

    return load(Recipe, path, given, adapt=adapt)


def with_start(recipe: Recipe, run: Path, kinds: Collection[str] = ()) -> Recipe:
    """The same of a recipe that was made in Python; one that `load_recipe` made is as it was."""
    start = recipe.train.start
    if start is None:
        return recipe
    # By its own dump: what is unset has a default, and says nothing of the checkpoint.
    model = changed(base(start, run, kinds), recipe.model.model_dump(exclude_unset=True), start)
    return recipe.model_copy(update={"model": TransformerConfig(**model)})


def base(start: str, run: Path | None, kinds: Collection[str] = ()) -> TransformerConfig:
    """The config of the checkpoint, from the run that has started from it if there is one."""
    record = None if run is None else run / FOLDER / RECORD
    if record is not None and record.is_file() and any(record.parents[1].glob("checkpoints/step-*")):
        return config_of(read_json(record).get("base"), record, kinds)
    return open_source(start, kinds).config


def changed(config: TransformerConfig, given: dict[str, Any], start: str) -> dict[str, Any]:
    """What the recipe says laid over the checkpoint's config."""
    under = config.model_dump()
    wrong = [
        Problem(f"model.{key}", f"{short(said)} in the recipe, {short(was)} in {start}; leave it out")
        for key, was, said in _contradictions(under, given, "")
        if not FREE.fullmatch(key) and not (key == "fused" and said is False)
    ]
    if wrong:
        raise BadConfig(f"the recipe and the checkpoint {start}", wrong)
    made = layered(TransformerConfig, under, given)
    try:
        model = TransformerConfig.model_validate(made)
    except ValidationError:
        return made  # answered where the whole recipe is read
    unheard = [side for side in config.sides if model.layer_kinds(side) != config.layer_kinds(side)]
    if model.encoding != config.encoding and not unheard:
        says = "no layer has this encoding, each kind has its own; write model.layers.kinds.NAME.encoding.scaling=..."
        raise BadConfig(f"the recipe and the checkpoint {start}", [Problem("model.encoding", says)])
    return made


def differences(config: TransformerConfig, model: TransformerConfig) -> list[str]:
    """What of the checkpoint's config the run changes, in words."""
    found = _contradictions(config.model_dump(mode="json"), model.model_dump(mode="json"), "")
    return [f"model.{key}: {short(was)} in the checkpoint, {short(said)} here" for key, was, said in found]


def _contradictions(under: Any, given: Any, above: str) -> Iterator[tuple[str, Any, Any]]:
    """Leaves of the second that are not those of the first."""
    both = isinstance(given, dict) and isinstance(under, dict)
    if both and given.get("kind", under.get("kind")) == under.get("kind"):
        # A key that does not exist is answered where the whole recipe is read.
        for key in (key for key in given if key in under):
            yield from _contradictions(under[key], given[key], f"{above}.{key}".lstrip("."))
    elif both:
        yield f"{above}.kind", under.get("kind"), given.get("kind")
    elif _plain(given) != _plain(under):
        yield above, under, given


def _plain(value: Any) -> Any:
    return list(map(_plain, value)) if isinstance(value, (list, tuple)) else value
