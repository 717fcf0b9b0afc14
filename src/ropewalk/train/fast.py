"""`--fast`: a recipe in seconds, to see that every part of it works before it is given hours.

The same code on a small model, short sequences and two steps: train one, save, resume from that, train the other,
measure, export. Where the recipe's data is not there yet, the text that comes with ropewalk stands in for it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from ropewalk.data.config import MixtureData, PairsData, TaskData, TaskSetData
from ropewalk.data.prepare.sample import sample
from ropewalk.distributed.world import World
from ropewalk.models.config import LayerPattern, Stacks, TransformerConfig
from ropewalk.overrides import read
from ropewalk.train.checkpoint.saved_model import TOKENIZER
from ropewalk.train.config import Recipe, TrainConfig
from ropewalk.train.run import LAUNCH, Result, train
from ropewalk.train.start.recipe import FOLDER

WIDTH, HEADS, HEAD_WIDTH, HIDDEN, LENGTH, LAYERS, STEPS = 64, 4, 16, 128, 64, 2, 2


def fast(
    recipe: Recipe, out: str | Path, *, device: str = "cpu", shown: bool = False, kinds: Collection[str] = ()
) -> Result:
    world = World.start(recipe.mesh, device=device)
    try:
        with tempfile.TemporaryDirectory() as folder:
            small = smaller(recipe, Path(folder), world.dp_size * max(1, world.cp_size))
            train(small, out, world=world, until=1, kinds=kinds)
            return train(small, out, world=world, resume=True, shown=shown, kinds=kinds)
    finally:
        world.stop()


def clear(out: Path) -> None:
    """Removes the fast run that was here before; anything else stays, and is an error."""
    if not out.exists():
        return
    known = {"recipe.yaml", "metrics.jsonl", "checkpoints", "export", "stacks", "lease.json", "lease.json.lock"}
    known |= {TOKENIZER, LAUNCH, FOLDER}
    strange = sorted(path.name for path in out.iterdir() if path.name not in known) if out.is_dir() else [out.name]
    recipe = out / "recipe.yaml"
    if strange or (any(out.iterdir()) and (not recipe.is_file() or _steps(recipe) != STEPS)):
        raise ValueError(f"{out} holds something else than a run of --fast, which would be lost; give another --out")
    shutil.rmtree(out)


def _steps(recipe: Path) -> Any:
    """Off the file as it stands: a recipe found in a folder has nothing imported that it names."""
    train = read(recipe).get("train")
    return train.get("steps") if isinstance(train, dict) else None


def smaller(recipe: Recipe, folder: Path, ranks: int) -> Recipe:
    data: Any = recipe.data
    length = min(LENGTH, data.length)
    # The samples of several tasks have the length they have.
    changes: dict[str, Any] = {} if isinstance(data, TaskSetData) else {"length": length}
    length = data.length if isinstance(data, TaskSetData) else length
    if isinstance(data, PairsData):
        changes["source_length"] = min(LENGTH, data.source_length)
    started = recipe.train.start is not None
    if isinstance(data, MixtureData):
        changes["of"] = tuple(_there(part, "text", folder) for part in data.of) if not started else data.of
    elif not isinstance(data, TaskData | TaskSetData) and not started:
        data = _there(data, data.kind, folder)
    parts = zip(changes.get("of", ()), recipe.data.of if isinstance(recipe.data, MixtureData) else (), strict=True)
    stands_in = data is not recipe.data or any(part is not own for part, own in parts)
    data = data.model_copy(update=changes)
    train = recipe.train.model_dump()
    # Compiling takes minutes, and is the one part that is left out.
    train |= {"compile": False, "tokens": None, "steps": STEPS, "batch": 2 * ranks * length, "micro": ranks * length}
    train |= {"evaluate": {"tokens": 4 * ranks * length}, "save": {**train["save"], "every": 1}}
    # Prompts may hold the mask token of a tokenizer that is not there.
    if stands_in:
        train["samples"] = None
    # Weights that are read have the size they have, and a sample's tokens are not theirs.
    model = recipe.model if started else smaller_model(recipe.model, length)
    return Recipe(model=model, data=data, train=TrainConfig.model_validate(train), mesh=recipe.mesh)


def _there(data: Any, kind: Literal["text", "pairs"], folder: Path) -> Any:
    """The data set, or a sample in place of one that is not there, whose documents are all short."""
    if Path(data.path).exists():
        return data
    long = getattr(data, "long", None)
    shorter = {} if long is None else {"long": long.model_copy(update={"at_least": 2})}
    return data.model_copy(update={"path": str(sample(kind, folder)), **shorter})


def smaller_model(model: TransformerConfig, length: int) -> TransformerConfig:
    """Of the same kind: every option stays, sizes shrink, layers are one round of the pattern or two."""
    given = model.model_dump(exclude_unset=True)
    heads = min(HEADS, model.heads)
    sizes = {"width": min(WIDTH, model.width), "heads": heads, "head_width": min(HEAD_WIDTH, model.head_width)}
    sizes |= {"key_heads": max(1, heads * model.key_heads // model.heads), "hidden": min(HIDDEN, model.hidden)}
    for derived in ("value_width", "vocabulary"):
        given.pop(derived, None)
    layers = model.layers
    if isinstance(layers, Stacks):
        fewer: Any = {"encoder": _fewer(layers.encoder), "decoder": _fewer(layers.decoder)}
    else:
        fewer = _fewer(layers)
    encoding = dict(given["encoding"]) if "encoding" in given else {}
    if encoding.get("rotary_width"):
        encoding["rotary_width"] = min(encoding["rotary_width"], sizes["head_width"])
    return TransformerConfig.model_validate(
        {**given, **sizes, "layers": fewer, **({"encoding": encoding} if encoding else {})}
    )


def _fewer(layers: int | LayerPattern) -> Any:
    if isinstance(layers, int):
        return min(LAYERS, layers)
    return {**layers.model_dump(), "count": min(layers.count, max(LAYERS, len(set(layers.pattern))))}
