"""Training at positions that leave some out: the model reads them, and what cannot be trained so is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from ropewalk.data.batch import IGNORE
from ropewalk.data.open import open_data
from ropewalk.data.prepare.sample import sample
from ropewalk.distributed.apply import parallelise
from ropewalk.distributed.world import World
from ropewalk.models import Transformer
from ropewalk.train.config import Recipe
from ropewalk.train.metrics import read
from ropewalk.train.run import train


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample("text", tmp_path_factory.mktemp("data") / "text")


def recipe(text: Path, encoding: Any = "rope", positions: Any = None, **data: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "model": {"width": 32, "heads": 4, "layers": 2, "hidden": 48, "std": 0.3, "encoding": encoding},
            "data": {"kind": "text", "path": str(text), "length": 32, "positions": positions, **data},
            "train": {"steps": 4, "batch": 128, "micro": 64, "save": {"every": 2}, "evaluate": {"tokens": 64}},
        }
    )


POSITIONS = [{"kind": "pose", "reach": 3000}, {"kind": "random", "reach": 500}]


@pytest.mark.parametrize("positions", POSITIONS, ids=["pose", "random"])
@pytest.mark.parametrize("encoding", [{"kind": "rope"}, {"kind": "alibi"}, {"kind": "learned", "longest": 3000}])
def test_the_loss_is_that_of_a_forward_pass_at_these_positions(
    tmp_path: Path, text: Path, encoding: Any, positions: Any
) -> None:
    plan = recipe(text, encoding, positions)
    train(plan, tmp_path, until=1)
    config = Recipe.model_validate(plan.model_dump()).model.model_copy(update={"vocabulary": 512})
    model = parallelise(lambda: Transformer(config), World.start(), seed=plan.train.seed)
    batch = open_data(plan.data, stack="decoder", seed=plan.train.seed).batch("train", 0, rows=4)
    assert int(batch.at.index.max()) > 300

    def loss(at: Any) -> float:
        with torch.no_grad():
            logits = model(batch.tokens, at)
        return float(F.cross_entropy(logits.flatten(0, 1), batch.target.flatten(), ignore_index=IGNORE))

    (first,) = read(tmp_path / "metrics.jsonl")["train"]
    assert first["loss"] == pytest.approx(loss(batch.at), rel=1e-6)
    # At the positions of ordinary sequences it is another number: weights of spread 0.3 have attention that shows it.
    plain = open_data(recipe(text).data, stack="decoder", seed=plan.train.seed).batch("train", 0, rows=4)
    assert torch.equal(plain.tokens, batch.tokens)
    assert abs(first["loss"] / loss(plain.at._replace(limit=3000)) - 1) > 1e-4


def test_a_mixture_at_skipped_positions_is_resumed_bit_for_bit(tmp_path: Path, text: Path) -> None:
    parts = [{"path": str(text), "weight": 2, "long": {"at_least": 40, "times": 3}}, {"path": str(text), "weight": 1}]
    plan = Recipe.model_validate(
        {
            **recipe(text).model_dump(),
            "data": {"kind": "mixture", "of": parts, "length": 32, "positions": POSITIONS[0]},
        }
    )
    train(plan, tmp_path / "whole")
    train(plan, tmp_path / "cut", until=3)
    moved = tmp_path / "moved"
    moved.symlink_to(text)
    for part in parts:  # where the data lies may change
        part["path"] = str(moved)
    again = Recipe.model_validate({**plan.model_dump(), "data": {**plan.data.model_dump(), "of": parts}})
    assert train(again, tmp_path / "cut", resume=True).finished
    one, two = (load_file(tmp_path / name / "export" / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    losses = [[each["loss"] for each in read(tmp_path / n / "metrics.jsonl")["train"]] for n in ("whole", "cut")]
    assert losses[0] == losses[1]
    assert '"max_position_embeddings": 3000' in (tmp_path / "whole/export/config.json").read_text()


def test_what_has_no_meaning_is_refused_before_the_first_step(tmp_path: Path, text: Path) -> None:
    learned = {"kind": "learned", "longest": 100}
    with pytest.raises(ValueError, match=r"data.positions.reach=3000: the decoder's table has 100 positions"):
        train(recipe(text, learned, POSITIONS[0]), tmp_path / "a")
    with pytest.raises(ValueError, match=r"data.length=128: the decoder's table has 100 positions"):
        train(recipe(text, learned, length=128), tmp_path / "b")
    with pytest.raises(ValueError, match=r"data.positions.kind=pose chooses positions, and no layer reads any"):
        train(recipe(text, "none", POSITIONS[0]), tmp_path / "c")
