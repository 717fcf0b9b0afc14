"""Estimates: counted by the code that trains, and said in words that can be typed."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ropewalk import positions
from ropewalk.data.open import open_data
from ropewalk.distributed.fake import Measured, Traffic, measure
from ropewalk.distributed.world import MeshConfig
from ropewalk.encodings.rope import RoPE
from ropewalk.models import Transformer
from ropewalk.overrides import load
from ropewalk.scaling import Dynamic, Linear, LongRoPE, Scaling
from ropewalk.train.config import Recipe
from ropewalk.train.plan import devices
from ropewalk.train.plan.cost import step_flops
from ropewalk.train.plan.devices import Device
from ropewalk.train.plan.estimate import Estimate, dry_run, estimate, mesh_of, seconds, smaller, with_vocabulary
from ropewalk.train.plan.sizes import sizes

pytestmark = pytest.mark.no_poison
SMALL = [
    *("model.width=64", "model.heads=4", "model.layers=2", "model.hidden=128", "model.vocabulary=512"),
    *(
        "model.fused=false",
        "data.kind=text",
        "data.length=128",
        "train.steps=10",
        "train.batch=2048",
        "data.path=nowhere",
    ),
]


def recipe(*changes: str) -> Recipe:
    return load(Recipe, None, [*SMALL, *changes])


@pytest.mark.parametrize("mesh", ["dp=1", "dp=4", "dp=2,cp=2", "dp=2,tp=2", "dp_replicate=2,dp=2"])
def test_the_ranks_together_do_the_work_of_one(mesh: str) -> None:
    sides, ranks = mesh_of(mesh)
    found = estimate(recipe(), sides, ranks)
    whole = step_flops(recipe().model, found.cut.rows, found.cut.length)
    together = ranks * found.measured.flops
    # Attention's way back computes its scores once more. A part of the queries takes a mask, under which the scores are
    # computed too that a triangle leaves out.
    assert whole <= together <= (1.2 if "cp" in mesh else 1.05) * whole
    assert found.measured.peak >= found.measured.parameters + found.measured.optimizer


@pytest.mark.parametrize("mesh", ["dp=1", "dp=2,tp=2"])
def test_a_window_is_computed_and_no_more(mesh: str) -> None:
    sides, ranks = mesh_of(mesh)
    model = ["data.length=2048", "train.batch=8192", "model.window=256"]
    found = estimate(recipe(*model), sides, ranks)
    whole = step_flops(recipe(*model).model, found.cut.rows, 2048)
    assert whole <= ranks * found.measured.flops <= 1.1 * whole
    assert ranks * estimate(recipe(*model[:2]), sides, ranks).measured.flops > 1.4 * whole


def test_an_answer_is_shorter_than_its_question() -> None:
    """In an encoder-decoder the two are sequences of their own."""
    asked = ["model.stack=encoder-decoder", "data.kind=task", "data.task=passkey", "data.length=1024"]
    small = [change for change in SMALL if not change.startswith("data.")]
    task = load(Recipe, None, [*small, *asked])
    found = estimate(task, *mesh_of("dp=1"))
    rows = open_data(task.data, stack="encoder-decoder", seed=0).batch("train", 0, rows=1)
    assert rows.source is not None
    widths = rows.tokens.shape[1], rows.source.shape[1]
    assert widths == (6, 1024)
    whole = step_flops(task.model, found.cut.rows, *widths)
    assert whole <= found.measured.flops <= 1.2 * whole
    assert dry_run(task)["flops"]["step"] == whole


def test_the_memory_of_a_process() -> None:
    """On a CPU: a copy for the save beside the steps, what malloc keeps, the process; on a GPU tensors alone."""
    whole = recipe("train.save.asynchronous=true")
    inline = recipe("train.save.asynchronous=false")
    parts = {"parameters": 10, "gradients": 10, "optimizer": 20, "activations": 60, "peak": 100}
    made = Measured(ranks=2, **parts, traffic=(), flops=1, attention=0.0, seconds=0.0)
    small = Estimate(whole, 2, sizes(whole.train, 128, 2), 5, made, None, None, None, {})
    assert {part: small.memory[part] for part in ("save", "heap", "process")} == {
        "save": 30, "heap": 100, "process": devices.PROCESS,
    }  # fmt: skip
    assert small.memory["peak"] == 100 + 30 + 100 + devices.PROCESS
    large = small._replace(recipe=inline, measured=replace(made, peak=1 << 30))
    assert large.memory["save"] == 0
    assert large.memory["heap"] == devices.BUFFERS + (1 << 30) * devices.HOLES
    assert large._replace(device="h100").memory["peak"] == 1 << 30


def test_what_is_no_mesh() -> None:
    with pytest.raises(ValueError, match=r"'pp=2' is no side of a mesh; write for example dp=128,tp=8,cp=4"):
        mesh_of("dp=2,pp=2")


@pytest.fixture
def measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is counted a second time: a device's memory changes the answer, not the counts."""
    known: dict[str, Measured] = {}

    def once(build: Any, mesh: MeshConfig, ranks: int, **how: Any) -> Measured:
        key = f"{build().config} {mesh} {ranks} { {name: each for name, each in how.items() if not callable(each)} }"
        if key not in known:
            known[key] = measure(build, mesh, ranks, **how)
        return known[key]

    monkeypatch.setattr(sys.modules[estimate.__module__], "measure", once)


@pytest.mark.usefixtures("measured_once")
def test_what_does_not_fit_comes_with_the_smallest_change(monkeypatch: pytest.MonkeyPatch) -> None:
    sides, ranks = mesh_of("dp=2")
    whole = estimate(recipe(), sides, ranks).measured.peak
    spare = estimate(recipe("train.recompute=true"), sides, ranks).measured.peak
    assert spare < whole

    def tiny(memory: float) -> None:
        monkeypatch.setitem(devices.DEVICES, "tiny", Device(memory / devices.HELD_BACK, 1e12, 1e12, 1e9, 1e9, 8, 1.0))

    tiny((whole + spare) / 2)
    assert estimate(recipe(), sides, ranks, "tiny").fits is False
    found = smaller(recipe(), sides, ranks, "tiny")
    assert found is not None
    assert found[0] == "train.recompute=true"
    tiny(0.9 * spare)
    found = smaller(recipe(), sides, ranks, "tiny")
    assert found is not None
    assert found[0] == "train.recompute=true train.micro=128"
    tiny(1000)
    assert smaller(recipe("model.layers=1"), sides, ranks, "tiny") is None


def test_a_dry_run_says_what_is_trained() -> None:
    found = dry_run(recipe())
    assert found["steps"] == 10
    assert found["parameters"] == 512 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64
    assert found["memory"]["optimizer"] >= 8 * found["parameters"]
    assert found["hours"] > 0


def test_the_vocabulary_is_that_of_the_data(tmp_path: Path) -> None:
    about = {"format": 1, "kind": "text", "dtype": "uint16", "vocabulary": 300}
    (tmp_path / "data.json").write_text(json.dumps(about))
    left_open = [change for change in SMALL if not change.startswith("model.vocabulary")]

    def vocabulary(*changes: str, data: dict[str, Any] | None = None) -> tuple[int, str | None]:
        given = load(Recipe, None, [*left_open, *changes])
        other = given if data is None else Recipe.model_validate({**given.model_dump(exclude_unset=True), "data": data})
        found, assumed = with_vocabulary(other)
        return found.model.vocabulary, assumed

    here = f"data.path={tmp_path}"
    assert vocabulary(here) == (300, None)
    assert vocabulary(here, "model.vocabulary=8192") == (8192, None)
    assert vocabulary(data={"kind": "task", "task": "copy", "length": 128, "vocabulary": 40}) == (40, None)
    assert vocabulary(data={"kind": "mixture", "of": [{"path": str(tmp_path), "weight": 1}] * 2}) == (300, None)
    said = "a vocabulary of 8,192 is assumed: the data is not here (nowhere)"
    assert vocabulary() == (8192, said)
    found = dry_run(load(Recipe, None, [*left_open, here]))
    assert found["parameters"] == 300 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64
    assert (found["recipe"]["model"]["vocabulary"], found["assumed"]) == (300, None)
    assert estimate(load(Recipe, None, left_open), MeshConfig(dp_shard=1), 1).assumed == said


def counted(*traffic: Traffic, ranks: int = 64) -> Measured:
    empty = dict.fromkeys(("parameters", "gradients", "optimizer", "activations", "peak"), 0)
    return Measured(ranks=ranks, **empty, traffic=traffic, flops=10**15, attention=0.0, seconds=0.0)


@pytest.mark.parametrize(
    ("axis", "operation", "mesh", "wanted"),
    [
        # A ring of n sends (n - 1) / n of the whole, and for a sum twice that: near at 450 GB/s, far at 50.
        ("tp", "all_reduce", {"tp": 8}, 2 * 7 / 8 * 9e9 / 450e9),
        ("tp", "all_reduce", {"tp": 16}, 2 * 15 / 16 * 9e9 / 50e9),
        ("cp", "all_gather_into_tensor", {"tp": 2, "cp": 4}, 3 / 4 * 9e9 / 450e9),
        ("cp", "all_gather_into_tensor", {"tp": 8, "cp": 2}, 1 / 2 * 9e9 / 50e9),
        ("fsdp", "allgather_base", {"dp_replicate": 8}, 7 / 8 * 9e9 / 450e9),
        ("fsdp", "reduce_scatter_base", {}, 63 / 64 * 9e9 / 50e9),
        ("dp_replicate", "allreduce", {"dp_replicate": 8}, 2 * 7 / 8 * 9e9 / 50e9),
    ],
)
def test_messages_take_what_a_ring_takes(axis: str, operation: str, mesh: dict[str, int], wanted: float) -> None:
    found = counted(Traffic(axis, operation, 3, 9_000_000_000))
    compute, messages = seconds(found, devices.DEVICES["h100"], "bfloat16", MeshConfig(**mesh))
    assert messages == {axis: pytest.approx(wanted)}
    assert compute == pytest.approx(1e15 / (devices.REACHED * 989e12))


def lines(found: Estimate) -> dict[str, Traffic]:
    return {line.operation: line for line in found.measured.traffic}


def test_sharding_is_hidden_behind_computing_and_every_pass_is_counted() -> None:
    """The group of FSDP is that of all ranks here, and was called by another name."""
    sides, ranks = mesh_of("dp=4")
    one = estimate(recipe("train.batch=512", "train.precision=bfloat16"), sides, ranks, "h100")
    three = estimate(recipe("train.batch=1536", "train.micro=128"), sides, ranks, "h100")
    assert (one.cut.passes, three.cut.passes) == (1, 3)
    assert "tokens" not in one.message_seconds
    rest = sum(spent for axis, spent in one.message_seconds.items() if axis != "fsdp")
    assert one.step_seconds == max(one.compute_seconds or 0, one.message_seconds["fsdp"]) + rest
    assert rest < 0.01 * one.message_seconds["fsdp"]
    assert three.measured.flops == 3 * one.measured.flops
    # Gradients are reduced in every pass, in float32 whatever the weights are gathered in; the norm is one sum a step.
    assert lines(three)["reduce_scatter_base"].calls == 3 * lines(one)["reduce_scatter_base"].calls
    assert lines(three)["reduce_scatter_base"].bytes == 3 * lines(one)["reduce_scatter_base"].bytes
    assert lines(three)["allgather_base"].bytes > 3 * lines(one)["allgather_base"].bytes
    assert lines(three)["allreduce"].calls == lines(one)["allreduce"].calls


def test_gradients_are_not_kept_whole_between_passes() -> None:
    sides, ranks = mesh_of("dp=4")
    one, two = (estimate(recipe(f"train.batch={n * 512}", "train.micro=128"), sides, ranks) for n in (1, 2))
    assert (one.cut.passes, two.cut.passes) == (1, 2)
    assert two.measured.peak - one.measured.peak <= one.measured.gradients


@pytest.mark.parametrize(
    "scaling", [Dynamic(factor=2, trained=64), LongRoPE(short=(1.0,) * 8, long=(2.0,) * 8, trained=64, factor=2.0)]
)
def test_frequencies_that_depend_on_the_length_are_numbers_here_too(scaling: Scaling) -> None:
    """In float32 arithmetic, as a checkpoint's are, torch computes them, and only sizes of its tensors are kept."""

    def peak(scaling: Scaling) -> int:
        made = recipe()
        encoding = RoPE.Config(arithmetic="float32", scaling=scaling)
        return estimate(
            made.model_copy(update={"model": made.model.model_copy(update={"encoding": encoding})}), *mesh_of("dp=1")
        ).measured.peak

    assert peak(scaling) == peak(Linear(factor=2))


def test_a_source_has_its_own_length() -> None:
    def flops(source: int) -> int:
        changes = ["model.stack=encoder-decoder", "data.kind=pairs", f"data.source_length={source}", "train.batch=128"]
        return estimate(recipe(*changes), *mesh_of("dp=1")).measured.flops

    assert flops(32) < 0.8 * flops(128)


@pytest.mark.parametrize(("kind", "length"), [("alibi", 256), ("t5", 256), ("kerple", 256), ("fire", 128)])
def test_what_a_bias_keeps_for_the_backward_pass_is_counted(kind: str, length: int) -> None:
    """Against the tensors that autograd saves in a real forward pass."""

    def saved(encoding: str) -> int:
        found: dict[int, int] = {}

        def keep(x: torch.Tensor) -> torch.Tensor:
            found[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        model = Transformer(biased(encoding).model)
        tokens = torch.zeros(1, length, dtype=torch.int64)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            out = model(tokens, positions.plain(length))
        assert out.requires_grad
        return sum(found.values())

    def biased(encoding: str) -> Recipe:
        small = ["model.layers=3", f"data.length={length}", f"train.batch={length}", "model.vocabulary=64"]
        return recipe(f"model.encoding={encoding}", *small)

    def said(encoding: str) -> int:
        return estimate(biased(encoding), MeshConfig(), 1).measured.activations

    more = saved(kind) - saved("none")
    assert more > 2**20
    assert 0.8 * more <= said(kind) - said("none") <= 1.3 * more + 2**20
