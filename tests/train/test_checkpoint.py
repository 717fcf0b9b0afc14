"""Checkpoints on one process: what is saved comes back, what is damaged does not, what fails does no harm."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from ropewalk.models import Transformer, TransformerConfig
from ropewalk.train.checkpoint import recorded_writer, store, tensors
from ropewalk.train.checkpoint.store import Checkpoints, DiskFull, NotFinite, SaveFailed
from ropewalk.train.guard.lease import Lease, LeaseLost
from ropewalk.train.optim import AdamW, optimizers
from tests.closeness import assert_close
from tests.distributed.steps import ALONE
from tests.train import tiny_run


def trained(steps: int = 2) -> tuple[Any, Any]:
    model, optimizer = tiny_run.build()
    for number in range(steps):
        tiny_run.step(model, optimizer, number)
    return model, optimizer


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_resumed_run_is_the_same_run(tmp_path: Path, asynchronous: bool) -> None:
    checkpoints = Checkpoints(tmp_path, ALONE, asynchronous=asynchronous)
    model, optimizer = trained()
    checkpoints.save(2, model, [optimizer], {"step": 2, "bad": [1]})
    # What is saved is the state of that moment, though the training went on meanwhile.
    wanted = [tiny_run.step(model, optimizer, number) for number in range(2, 6)]
    found = checkpoints.newest()
    assert found is not None
    assert (found.step, found.state) == (2, {"step": 2, "bad": [1]})
    other, its = tiny_run.build(seed=1)
    tiny_run.step(other, its, 9)
    assert checkpoints.load(found, other, [its]) == {"step": 2, "bad": [1]}
    assert [tiny_run.step(other, its, number) for number in range(2, 6)] == wanted
    assert tiny_run.weights(other) == tiny_run.weights(model)


def test_an_asynchronous_save_copies_before_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    write = Checkpoints._write
    monkeypatch.setattr(Checkpoints, "_write", lambda *given: go.wait() and write(*given))
    checkpoints = Checkpoints(tmp_path, ALONE, asynchronous=True)
    model, optimizer = trained()
    wanted = tiny_run.weights(model)
    checkpoints.save(2, model, [optimizer], {})
    tiny_run.step(model, optimizer, 2)
    assert names(tmp_path)[0].startswith("tmp-")
    go.set()
    checkpoints.wait()
    assert names(tmp_path) == ["step-00000002"]
    other, its = tiny_run.build(seed=1)
    found = checkpoints.newest()
    assert found is not None
    checkpoints.load(found, other, [its])
    assert tiny_run.weights(other) == wanted


def test_an_asynchronous_failure_is_told_by_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path, ALONE, asynchronous=True)
    model, optimizer = trained()

    def full(path: Path) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(recorded_writer, "opened", full)
    checkpoints.save(2, model, [optimizer], {})
    with pytest.raises(DiskFull, match="step 2 is not saved"):
        checkpoints.wait()
    monkeypatch.undo()
    checkpoints.save(3, model, [optimizer], {})
    checkpoints.wait()
    assert names(tmp_path) == ["step-00000003"]


def test_optimizer_that_has_not_stepped(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, ALONE)
    model, optimizer = tiny_run.build()
    checkpoints.save(0, model, [optimizer], {"step": 0})
    assert not optimizer.state
    other, its = tiny_run.build(seed=1)
    tiny_run.step(other, its, 5)
    found = checkpoints.newest()
    assert found is not None
    checkpoints.load(found, other, [its])
    assert not its.state
    assert tiny_run.step(other, its, 0) == tiny_run.step(model, optimizer, 0)
    assert tiny_run.weights(other) == tiny_run.weights(model)


def test_several_optimizers_and_their_own_rates(tmp_path: Path) -> None:
    def build(lr: float) -> tuple[Any, list[Any]]:
        model, _ = tiny_run.build()
        matrices = [p for name, p in model.named_parameters() if ".blocks." in name and p.ndim == 2]
        rest = [p for p in model.parameters() if not any(p is q for q in matrices)]
        return model, [torch.optim.Muon(matrices, lr=lr), torch.optim.SGD(rest, lr=lr)]

    model, made = build(0.02)
    tiny_run.loss_of(model, 0).backward()
    for optimizer in made:
        optimizer.step()
    checkpoints = Checkpoints(tmp_path, ALONE)
    checkpoints.save(1, model, made, {})
    other, its = build(0.5)
    found = checkpoints.newest()
    assert found is not None
    checkpoints.load(found, other, its)
    for name, tensor in tensors.collect(model, made).items():
        assert torch.equal(tensors.collect(other, its)[name], tensor)
    assert its[0].param_groups[0]["lr"] == 0.5


def test_keeps_the_newest(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, ALONE, keep=3)
    model, optimizer = trained()
    for step in (1, 2, 30, 100_000_000):
        checkpoints.save(step, model, [optimizer], {})
    assert names(tmp_path) == ["step-00000002", "step-00000030", "step-100000000"]
    found = checkpoints.newest()
    assert found is not None
    assert found.step == 100_000_000


@pytest.mark.parametrize("asynchronous", [False, True])
def test_milestones_stay(tmp_path: Path, asynchronous: bool) -> None:
    checkpoints = Checkpoints(tmp_path, ALONE, asynchronous=asynchronous)
    model, optimizer = trained()
    for step in range(1, 8):
        checkpoints.save(step, model, [optimizer], {}, milestone=step in (2, 5, 6))
    checkpoints.wait()
    assert names(tmp_path) == [f"step-{step:08d}" for step in (2, 5, 6, 7)]
    # A run that is resumed without the setting keeps them, and what a person has marked too.
    (tmp_path / "step-00000007" / store.KEEP).touch()
    resumed = Checkpoints(tmp_path, ALONE)
    for step in (8, 9, 10):
        resumed.save(step, model, [optimizer], {})
    assert [found.step for found in resumed.verified()] == [10, 9, 7, 6, 5, 2]
    (tmp_path / "step-00000002" / store.KEEP).unlink()
    resumed.save(11, model, [optimizer], {})
    assert names(tmp_path) == [f"step-{step:08d}" for step in (5, 6, 7, 10, 11)]


def test_a_milestone_saved_again_is_there_once(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, ALONE)
    model, optimizer = trained()
    for number in range(2):
        checkpoints.save(2, model, [optimizer], {"number": number}, milestone=True)
    assert names(tmp_path) == ["step-00000002"]
    (found,) = checkpoints.verified()
    assert found.state == {"number": 1}
    kept = tmp_path / "step-00000002" / store.KEEP
    assert kept.read_bytes() == b""
    kept.unlink()
    assert [found.step for found in checkpoints.verified()] == [2]
    assert (again := checkpoints.newest()) is not None
    assert again.step == 2


def test_damaged_ones_are_passed_over_and_not_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoints = Checkpoints(tmp_path, ALONE)
    model, optimizer = trained()
    for step in (1, 2):
        checkpoints.save(step, model, [optimizer], {"step": step})
    (tmp_path / "step-00000002" / "state.json").write_text('{"step": 3}')
    found = checkpoints.newest()
    assert found is not None
    assert found.step == 1
    assert "step-00000002 is damaged and skipped" in capsys.readouterr().err
    checkpoints.save(3, model, [optimizer], {})
    assert names(tmp_path) == ["step-00000001", "step-00000003"]


def test_a_step_saved_again_replaces_the_first(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, ALONE)
    model, optimizer = trained()
    for number in range(3):
        checkpoints.save(2, model, [optimizer], {"number": number})
    found = checkpoints.newest()
    assert found is not None
    assert found.state == {"number": 2}
    assert names(tmp_path) == ["step-00000002"]


def test_what_was_replaced_is_found_while_its_successor_is_not_there(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, ALONE)
    model, optimizer = trained()
    checkpoints.save(2, model, [optimizer], {})
    (tmp_path / "step-00000002").rename(tmp_path / "step-00000002.replaced")
    found = checkpoints.newest()
    assert found is not None
    assert found.step == 2


def test_nothing_there(tmp_path: Path) -> None:
    (tmp_path / "step-00000001").mkdir()
    (tmp_path / "step-x").mkdir()
    assert Checkpoints(tmp_path, ALONE).newest() is None


def test_a_full_disk_is_refused_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path, ALONE)
    model, optimizer = trained()
    checkpoints.save(1, model, [optimizer], {})
    monkeypatch.setattr(store, "free_bytes", lambda folder: 100_000)
    with pytest.raises(DiskFull, match=r"takes [\d,]+ bytes and 100,000 are free") as found:
        checkpoints.save(2, model, [optimizer], {})
    assert found.value.errno == errno.ENOSPC
    assert names(tmp_path) == ["step-00000001"]


def test_the_estimate_is_enough_and_not_far_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(store, "free_bytes", lambda folder: asked.append(0) or 1 << 40)
    checkpoints = Checkpoints(tmp_path, ALONE)
    model, optimizer = trained()
    checkpoints.save(1, model, [optimizer], {})
    size = sum(file.stat().st_size for file in (tmp_path / "step-00000001").iterdir())
    held = tensors.collect(model, [optimizer])
    needed = tensors.weight(held) + store.PER_TENSOR * len(held) + store.BESIDE
    assert asked
    assert size <= needed <= size + store.BESIDE + 1024 * len(held)


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, ALONE)
    model, optimizer = trained()
    checkpoints.save(1, model, [optimizer], {})
    with torch.no_grad():
        model.tokens.weight[3, 4] = float("nan")
    with pytest.raises(NotFinite, match=r"model\.tokens\.weight"):
        checkpoints.save(2, model, [optimizer], {})
    assert names(tmp_path) == ["step-00000001"]


def test_large_weights_are_finite() -> None:
    assert tensors.not_finite({"a": torch.full((4,), 3e38), "b": torch.tensor([1, 2])}) == []
    assert tensors.not_finite({"a": torch.tensor([float("inf"), float("-inf")])}) == ["a"]


def test_another_model_is_told_in_words(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, ALONE)
    model, optimizer = trained()
    checkpoints.save(1, model, [optimizer], {})
    found = checkpoints.newest()
    assert found is not None
    other = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"another model: model\.weight is not in the checkpoint"):
        checkpoints.load(found, other, [])
    with pytest.raises(ValueError, match=r"optimizer tensors of parameters that no optimizer has"):
        checkpoints.load(found, model, [])


def test_a_lost_lease_commits_nothing(tmp_path: Path) -> None:
    model, optimizer = trained()
    with Lease(tmp_path, ALONE) as lease:
        checkpoints = Checkpoints(tmp_path / "checkpoints", ALONE, lease=lease)
        checkpoints.save(1, model, [optimizer], {})
        other = json.loads((tmp_path / "lease.json").read_text())
        (tmp_path / "lease.json").write_text(json.dumps(other | {"epoch": 2, "token": "another"}))
        with pytest.raises(LeaseLost, match="was epoch 1 here and is now epoch 2"):
            checkpoints.save(2, model, [optimizer], {})
    assert names(tmp_path / "checkpoints") == ["step-00000001"]


def test_a_lease_lost_during_a_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was ours when the save began, and another run has swept what we were writing."""
    model, optimizer = trained()
    with Lease(tmp_path, ALONE) as lease:
        checkpoints = Checkpoints(tmp_path / "checkpoints", ALONE, lease=lease)
        checks: list[int] = []
        monkeypatch.setattr(lease, "check", lambda: checks.append(0))
        sync = store.sync
        monkeypatch.setattr(store, "sync", lambda folder: (sync(folder), Checkpoints._sweep(checkpoints)))
        with pytest.raises(SaveFailed, match="step 1 is not saved"):
            checkpoints.save(1, model, [optimizer], {})
    assert names(tmp_path / "checkpoints") == []


def test_what_a_dead_run_left_is_swept(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "tmp-00000004-abc").mkdir(parents=True)
    with Lease(tmp_path, ALONE) as lease:
        Checkpoints(tmp_path / "checkpoints", ALONE, lease=lease)
    assert names(tmp_path / "checkpoints") == []


def test_one_is_too_few(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two checkpoints at least"):
        Checkpoints(tmp_path, ALONE, keep=1)


def test_names_are_on_the_disk_before_they_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    sync = store.sync
    monkeypatch.setattr(store, "sync", lambda path: (synced.append(path.name), sync(path)))
    checkpoints = Checkpoints(tmp_path / "all", ALONE)
    model, optimizer = trained()
    checkpoints.save(1, model, [optimizer], {})
    assert [name.partition("-")[0] for name in synced] == ["tmp", "all"]


def test_a_lease_lost_after_a_save_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that has the folder now may be reading what would be pruned."""
    model, optimizer = trained()
    with Lease(tmp_path, ALONE) as lease:
        checkpoints = Checkpoints(tmp_path / "checkpoints", ALONE, lease=lease)
        for step in (1, 2):
            checkpoints.save(step, model, [optimizer], {})
        answers = [None, None, LeaseLost("another's")]

        def check() -> None:
            if (answer := answers.pop(0)) is not None:
                raise answer

        monkeypatch.setattr(lease, "check", check)
        with pytest.raises(LeaseLost, match="another's"):
            checkpoints.save(3, model, [optimizer], {})
    assert names(tmp_path / "checkpoints") == ["step-00000001", "step-00000002", "step-00000003"]


GATED: dict[str, Any] = {"vocabulary": 20, "width": 16, "heads": 4, "key_heads": 2, "layers": 2, "hidden": 24}
GATED |= {"activation": "swiglu", "qkv_bias": True, "mlp_bias": True}


@pytest.mark.parametrize("stack", ["decoder", "encoder-decoder"])
@pytest.mark.parametrize("fused", [True, False])
def test_matrices_in_one_are_read_apart_and_the_other_way(tmp_path: Path, stack: str, fused: bool) -> None:
    """What the two compute of a batch, with weights and with every update after, is the same."""
    settings = {**GATED, "stack": stack}

    def made(one: bool) -> tuple[Transformer, list[torch.optim.Optimizer]]:
        model = Transformer(TransformerConfig.model_validate({**settings, "fused": one}))
        return model, optimizers(AdamW(), model, 1e-2)

    def update(model: Transformer, steps: list[torch.optim.Optimizer], seed: int) -> None:
        drawn = torch.Generator().manual_seed(seed)
        tokens, source = (torch.randint(0, 20, (2, 6), generator=drawn) for _ in range(2))
        logits = model(tokens, **({} if stack == "decoder" else {"source": source}))
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        for optimizer in steps:
            optimizer.step()
            optimizer.zero_grad()

    def answer(model: Transformer) -> torch.Tensor:
        tokens = torch.arange(12).view(2, 6)
        return model(tokens, **({} if stack == "decoder" else {"source": tokens}))

    torch.manual_seed(1)
    before, theirs = made(fused)
    for seed in range(3):
        update(before, theirs, seed)
    Checkpoints(tmp_path, ALONE).save(3, before, theirs, {})
    torch.manual_seed(2)
    after, ours = made(not fused)
    found = Checkpoints(tmp_path, ALONE).newest()
    assert found is not None
    Checkpoints(tmp_path, ALONE).load(found, after, ours)
    assert_close("logits as saved", answer(before), answer(after), 1e-5)
    for seed in range(3, 6):
        update(before, theirs, seed)
        update(after, ours, seed)
    # A momentum at the wrong rows, or a count of steps that begins again, would move weights by 1e-2 each step.
    assert_close("logits three steps later", answer(before), answer(after), 1e-4)
