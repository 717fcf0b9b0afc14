"""Steps of the real loop beside the same steps in plain torch, and what each key of a recipe does to them.

Runs that are compared with themselves cannot tell a key that does nothing: the loss, the schedule, the clipping and the
update are written out here, by torch's own functions and by formula.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from ropewalk.data.open import open_data
from ropewalk.data.prepare.sample import sample
from ropewalk.distributed import apply
from ropewalk.models import Transformer
from ropewalk.train import objective
from ropewalk.train.checkpoint.store import Checkpoints
from ropewalk.train.config import Recipe
from ropewalk.train.loop import Loop
from ropewalk.train.metrics import read
from ropewalk.train.run import fitted, train
from tests.distributed.steps import ALONE
from tests.train import small_recipe

STEPS, WARMUP, FLOOR, PEAK, CLIP, SMOOTHING, DECAY, EPS = 5, 2, 0.25, 0.05, 0.2, 0.15, 0.4, 0.05


def recipe(**train: Any) -> Recipe:
    found = small_recipe.recipe(
        STEPS,
        STEPS,
        **{
            "batch": 128,
            "micro": 32,
            "clip": CLIP,
            "label_smoothing": SMOOTHING,
            # A large eps, so that an update is no longer the same for gradients of any length.
            "optimizer": {"kind": "adamw", "lr": PEAK, "decay": DECAY, "eps": EPS, "betas": (0.8, 0.9)},
            "schedule": {"kind": "cosine", "warmup": WARMUP, "floor": FLOOR},
            **train,
        },
    )
    # Questions of 1 to 6 symbols: passes have 4 to 28 targets.
    return found.model_copy(update={"data": found.data.model_copy(update={"shortest": 1})})


def plainly(recipe: Recipe, precision: str = "float32") -> tuple[list[float], list[float], list[float]]:
    """Losses, gradient norms and rates of the steps, all sequences in one pass."""
    data = open_data(recipe.data, stack="decoder", seed=recipe.train.seed)
    model = apply.parallelise(lambda: Transformer(fitted(recipe.model, data)), ALONE, seed=recipe.train.seed)
    matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    rest = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(0.8, 0.9), eps=EPS)
    losses, norms, rates = [], [], []
    for step in range(1, STEPS + 1):
        batch = data.batch("train", step - 1, rows=8)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            logits = model(batch.tokens, batch.at).float()
        loss = F.cross_entropy(logits.flatten(0, 1), batch.target.flatten(), label_smoothing=SMOOTHING)
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
        gone = (step - WARMUP) / (STEPS - WARMUP)
        falling = FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * gone)) / 2
        rates.append(PEAK * (step / WARMUP if step <= WARMUP else falling))
        for group in optimizer.param_groups:
            group["lr"] = rates[-1]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses, norms, rates


def recorded(out: Path) -> tuple[list[float], list[float], list[float]]:
    records = read(out / "metrics.jsonl")["train"]
    return tuple([record[key] for record in records] for key in ("loss", "norm", "lr"))  # pyrefly: ignore[bad-return]


def test_a_step_is_what_the_recipe_says(tmp_path: Path) -> None:
    train(recipe(), tmp_path)
    losses, norms, rates = plainly(recipe())
    got = recorded(tmp_path)
    assert got[0] == pytest.approx(losses, rel=1e-5)
    assert got[1] == pytest.approx(norms, rel=1e-4)
    assert got[2] == pytest.approx(rates, rel=1e-9)
    assert min(norms) > 1.5 * CLIP, "clipping must matter"


def test_bfloat16_is_bfloat16(tmp_path: Path) -> None:
    train(recipe(precision="bfloat16", label_smoothing=SMOOTHING), tmp_path)
    exact, rounded = plainly(recipe())[0], plainly(recipe(), "bfloat16")[0]
    (got, _, _) = recorded(tmp_path)
    assert got == pytest.approx(rounded, rel=1e-4)
    assert abs(got[0] - rounded[0]) < 0.1 * abs(exact[0] - rounded[0])


def test_recomputation_and_compilation_are_done_where_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    plain = apply.checkpoint

    def again(*given: Any, **settings: Any) -> Any:
        done.append("recompute")
        return plain(*given, **settings)

    monkeypatch.setattr(apply, "checkpoint", again)
    monkeypatch.setattr(torch, "compile", lambda function: (done.append("compile"), function)[1])
    train(recipe(), tmp_path / "neither")
    assert done == []
    train(recipe(recompute=True), tmp_path / "recompute")
    assert set(done) == {"recompute"}
    done.clear()
    train(recipe(compile=True), tmp_path / "compile")
    assert done == ["compile"] * 3  # two blocks and the loss


@pytest.mark.parametrize("wanted", [True, False])
def test_deterministic_algorithms_for_as_long_as_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    seen: set[Any] = set()
    plain = Loop.loss

    def loss(self: Loop, *given: Any, **settings: Any) -> Any:
        cudnn = torch.backends.cudnn
        seen.add((torch.get_deterministic_debug_mode(), cudnn.deterministic, os.environ.get("CUBLAS_WORKSPACE_CONFIG")))
        if self.step == 3:
            raise RuntimeError("ended")
        return plain(self, *given, **settings)

    monkeypatch.setattr(Loop, "loss", loss)
    torch.set_deterministic_debug_mode("warn")  # what it was is what it becomes again, also after an error
    try:
        with pytest.raises(RuntimeError, match="ended"):
            train(recipe(deterministic=wanted), tmp_path)
        assert torch.get_deterministic_debug_mode() == 1
    finally:
        torch.set_deterministic_debug_mode("default")
    assert seen == {(2, True, ":4096:8") if wanted else (1, False, None)}
    assert not torch.backends.cudnn.deterministic
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ


def test_an_export_has_the_tokenizer_of_the_data(tmp_path: Path) -> None:
    data = sample("text", tmp_path / "data")
    update = {"data": Recipe.model_validate({"data": {"kind": "text", "path": str(data), "length": 16}}).data}
    train(small_recipe.recipe(1, 1).model_copy(update=update), tmp_path / "run")
    theirs, ours = (json.loads((at / "tokenizer.json").read_text()) for at in (data, tmp_path / "run" / "export"))
    assert ours["model"]["vocab"] == theirs["model"]["vocab"]


def test_faults_are_remembered_over_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Loop.loss
    monkeypatch.setattr(
        Loop, "loss", lambda self, *given, **how: plain(self, *given, **how) * (math.nan if self.step == 2 else 1.0)
    )
    plan = small_recipe.recipe(8, 4, faults={"policy": "skip"})
    train(plan, tmp_path, until=4)
    train(plan, tmp_path, resume=True)
    found = Checkpoints(tmp_path / "checkpoints", ALONE).newest()
    assert found is not None
    assert (found.step, found.state["bad"], found.state["watch"]["faulty"]) == (8, [2], [2])
    losses = small_recipe.losses(tmp_path)
    assert found.state["watch"]["losses"] == [losses[step][0] for step in (1, 2, 4, 5, 6, 7, 8)]


def test_sequences_that_fill_up_a_batch_are_not_measured(tmp_path: Path) -> None:
    plan = recipe(evaluate={"every": STEPS, "tokens": 5 * 16}, micro=None)
    result = train(plan, tmp_path)
    data = open_data(plan.data, stack="decoder", seed=0)
    assert result.valid["tokens"] == int(data.batch("valid", 0, rows=8).take(slice(0, 5)).targets)


def test_the_loss_is_computed_in_pieces_where_logits_are_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(objective, "LOGITS", 32 * 7)  # seven tokens at a time
    train(recipe(), tmp_path)
    assert recorded(tmp_path)[0] == pytest.approx(plainly(recipe())[0], rel=1e-5)
