"""Models out of a run's checkpoints: one of them or their mean, against torch's own reader and a mean by numpy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.load.model import load
from ropewalk.train.checkpoint import manifest, saved_model
from ropewalk.train.checkpoint.manifest import Manifest
from ropewalk.train.checkpoint.restricted_reader import RestrictedReader
from ropewalk.train.checkpoint.saved_model import export_run, read_model
from ropewalk.train.checkpoint.store import STATE, Checkpoints
from ropewalk.train.config import Recipe
from ropewalk.train.run import train
from tests.distributed.steps import ALONE
from tests.train import small_recipe


def recipe(steps: int = 4, **train: Any) -> Recipe:
    made = small_recipe.recipe(steps, save={"every": 1, "keep": 4}, **train)
    # Under names of ours, which are those of the checkpoints.
    return made.model_copy(update={"model": made.model.model_copy(update={"soft_cap": 20.0})})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped at step 3 of 4."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    train(recipe(), run, until=3)
    return run


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def stored(run: Path, step: int, tmp_path: Path) -> dict[str, np.ndarray]:
    """The weights of a checkpoint, by no code of ours."""
    file = tmp_path / f"{step}.pt"
    dcp_to_torch_save(run / "checkpoints" / f"step-{step:08d}", file)
    held = torch.load(file, weights_only=True)
    return {key.removeprefix("model."): value.numpy() for key, value in held.items() if key.startswith("model.")}


def state(run: Path, step: int, change: Any) -> None:
    """Changes what a checkpoint says, as somebody would who can also write the manifest."""
    folder = run / "checkpoints" / f"step-{step:08d}"
    said = json.loads((folder / STATE).read_text())
    change(said)
    (folder / STATE).write_text(json.dumps(said))
    held = manifest.read(folder)
    files = held.files | {STATE: manifest.digest(folder / STATE)}
    (folder / manifest.NAME).write_bytes(manifest.spelled(Manifest(held.step, held.world, files)))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("step", [None, 1, 3])
def test_the_weights_of_a_step(run: Path, tmp_path: Path, step: int | None) -> None:
    before = files(run)
    written = export_run(run, tmp_path / "out", step=step)
    want = stored(run, step or 3, tmp_path)
    got = load_file(tmp_path / "out" / "model.safetensors")
    assert written.steps == (step or 3,)
    assert written.tensors == len(want) == len(got)
    assert all(np.array_equal(want[name], got[name].numpy()) for name in want)
    load(tmp_path / "out")
    assert files(run) == before


@pytest.mark.parametrize(("step", "steps"), [(None, (1, 2, 3)), (2, (1, 2))])
def test_the_mean_is_taken_in_float64_and_rounded_once(
    run: Path, tmp_path: Path, step: int | None, steps: tuple[int, ...]
) -> None:
    written = export_run(run, tmp_path / "out", step=step, average=len(steps))
    assert written.steps == steps
    every = [stored(run, each, tmp_path) for each in steps]
    got = load_file(tmp_path / "out" / "model.safetensors")
    differs = 0
    for name in every[0]:
        wide = np.stack([each[name].astype(np.float64) for each in every])
        assert np.array_equal((wide.sum(0) / len(steps)).astype(np.float32), got[name].numpy())
        single = sum(each[name] for each in every) / np.float32(len(steps))
        differs += int((single != got[name].numpy()).sum())
    # Half of a sum of two is rounded once in float32 too.
    assert differs or len(steps) == 2, "the test would not see a mean in float32"


def test_a_finished_run_gives_what_it_gave_at_its_end(run: Path, tmp_path: Path) -> None:
    train(recipe(), run, resume=True)
    export_run(run, tmp_path / "out")
    assert files(tmp_path / "out") == files(run / "export")


def test_another_format_is_only_for_llamas(run: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"run: model: it is not a Llama \(soft_cap is 20\.0\).* leave --format out"):
        export_run(run, tmp_path / "out", format="hf")


def test_integers_must_be_equal(tmp_path: Path) -> None:
    class Counted(torch.nn.Module):
        def __init__(self, count: int) -> None:
            super().__init__()
            self.register_buffer("count", torch.tensor([count]))

    checkpoints = Checkpoints(tmp_path, ALONE, keep=3)
    for step, count in enumerate((7, 7, 8), 1):
        checkpoints.save(step, Counted(count), [], {})
    readers = [RestrictedReader(found.folder, found.manifest.files) for found in reversed(list(checkpoints.verified()))]
    assert saved_model._mean(readers[:2], "model.count").tolist() == [7]
    with pytest.raises(ValueError, match=r"model\.count holds torch\.int64 that differ"):
        saved_model._mean(readers, "model.count")


def test_too_few_is_said(run: Path) -> None:
    says = r"run has 3 whole checkpoints, of steps 1, 2, 3; --average 5 needs 5: .* train\.save\.keep=5"
    with pytest.raises(ValueError, match=says):
        read_model(run, average=5)
    with pytest.raises(ValueError, match="2 whole checkpoints up to step 2, of steps 1, 2; --average 3"):
        read_model(run, step=2, average=3)
    with pytest.raises(ValueError, match="no checkpoint of step 15; it has steps 1, 2, 3"):
        read_model(run, step=15)
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    with pytest.raises(BadInput, match="has no checkpoint yet; wait for its first, or continue it: ropewalk train"):
        read_model(run)


def test_a_damaged_one_is_skipped_or_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = run / "checkpoints" / "step-00000003" / "__0_0.distcp"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    assert read_model(run).steps == (2,)
    assert "step-00000003 is damaged and skipped" in capsys.readouterr().err
    with pytest.raises(ValueError, match="the checkpoint of step 3 is damaged"):
        read_model(run, step=3)
    with pytest.raises(ValueError, match="has 2 whole checkpoints"):
        read_model(run, average=3)


def test_of_one_step_the_one_that_was_replaced_is_the_last_resort(run: Path) -> None:
    whole = run / "checkpoints" / "step-00000003"
    whole.rename(whole.with_name("step-00000003.replaced"))
    assert read_model(run, average=3).steps == (1, 2, 3)
    shutil.copytree(whole.with_name("step-00000003.replaced"), whole)
    assert read_model(run, average=3).steps == (1, 2, 3)
    with pytest.raises(ValueError, match="has 3 whole checkpoints"):
        read_model(run, average=4)


def test_steps_of_different_models_have_no_mean(run: Path) -> None:
    state(run, 2, lambda said: said["recipe"]["model"]["encoding"].update(base="5e5"))
    with pytest.raises(ValueError, match=r"steps 2 and 3 are of different models: model\.encoding\.base was"):
        read_model(run, average=2)
    assert read_model(run).steps == (3,)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda said: said.pop("export"), "saved without its lengths and tokens"),
        (lambda said: said["export"].update(length=None), "saved without its lengths and tokens"),
        (lambda said: said["export"].update(end="<end>"), r"export\.end: '<end>' is not a number"),
        (lambda said: said["export"].update(length=-1), r"export\.length: -1 is not a number"),
        (lambda said: said["recipe"]["model"].update(layers=900), "900 layers and "),
        (lambda said: said["recipe"]["model"].update(hidden=48), "the checkpoint is of another model"),
        (lambda said: said["recipe"]["model"].update(encoding={"kind": "os.path"}), "code of another package"),
        (lambda said: said.update(recipe=3), "state.json: model"),
        (lambda said: said["export"].update({"tokenizer.json": "0" * 64}), "is not the tokenizer"),
    ],
)
def test_what_a_checkpoint_says_is_not_trusted(run: Path, change: Any, says: str) -> None:
    state(run, 3, change)
    with pytest.raises(ValueError, match=says):
        read_model(run)


def test_one_that_is_pruned_while_it_is_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = saved_model._trained

    def slow(*given: Any) -> Any:
        shutil.rmtree(run / "checkpoints" / "step-00000001")
        return trained(*given)

    monkeypatch.setattr(saved_model, "_trained", slow)
    with pytest.raises(ValueError, match="step-00000001 was removed while it was read: the run goes on"):
        read_model(run, average=3)


def test_what_was_written_is_read_back(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = saved_model.write_model

    def wrong(model: Any, *given: Any, **more: Any) -> Any:
        changed = {name: tensor + 1 for name, tensor in model.state_dict().items()}
        other = type(model)(model.config)
        other.load_state_dict(changed)
        return write(other, *given, **more)

    monkeypatch.setattr(saved_model, "write_model", wrong)
    with pytest.raises(saved_model.NotProven, match="read back is not the checkpoint's"):
        export_run(run, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_the_model_of_a_run_that_goes_on_is_set_aside(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(recipe(2), run)
    first = files(run / "export")
    train(recipe(4), run, resume=True, allow_drift=True, until=3)
    assert not (run / "export").exists()
    assert files(run / "export-1") == first
    with pytest.raises(BadInput, match=r"has not finished; its newest checkpoint is of step 3; .*ropewalk export"):
        load(run)
    train(recipe(4), run, resume=True)
    assert files(run / "export") != first
    assert files(run / "export-1") == first
