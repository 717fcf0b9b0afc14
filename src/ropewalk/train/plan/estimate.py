"""What a recipe would cost on a mesh of any size, before a machine is rented.

Memory, messages and operations of one rank are counted by running the code that trains on meta tensors, in a
process group that exchanges nothing. Time is made from these by a device's stated speeds: messages that FSDP can hide
behind computation count where they are longer than it, those of tensor and context parallelism in full.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropewalk.data.batch import Batch
from ropewalk.data.config import MixtureData, TaskData, TaskSetData
from ropewalk.data.layout import describe
from ropewalk.data.open import widths
from ropewalk.distributed.fake import Measured, measure
from ropewalk.distributed.world import MeshConfig, World
from ropewalk.models.config import TransformerConfig
from ropewalk.nn import DropoutKey
from ropewalk.overrides import either
from ropewalk.train.config import Recipe
from ropewalk.train.objective import Learner
from ropewalk.train.optim import optimizers
from ropewalk.train.plan.cost import forward_flops, gemm_peak, step_flops
from ropewalk.train.plan.devices import BUFFERS, DEVICES, HELD_BACK, HOLES, PROCESS, REACHED, Device
from ropewalk.train.plan.sizes import Sizes, sizes

ALONE = 0.3
"""Share of this machine's measured matrix speed that a step is taken to reach."""


class Estimate(NamedTuple):
    recipe: Recipe
    ranks: int
    cut: Sizes
    parameters: int
    measured: Measured
    device: str | None
    step_seconds: float | None
    compute_seconds: float | None
    message_seconds: dict[str, float]
    assumed: str | None = None
    """What was not known and taken to be so."""

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of one rank by part, and at the peak: of tensors on a device, on a CPU of the whole process."""
        tensors = {
            part: getattr(self.measured, part) for part in ("parameters", "gradients", "optimizer", "activations")
        }
        peak = self.measured.peak
        beside = {}
        if self.device is None:
            # A save beside the steps has a copy of what it writes; from a device it is copied to the host.
            staged = self.measured.parameters + self.measured.optimizer
            beside["save"] = staged if self.recipe.train.save.asynchronous else 0
            beside["heap"] = min(peak, BUFFERS + int(HOLES * peak))
            beside["process"] = PROCESS
        return {**tensors, **beside, "peak": peak + sum(beside.values())}

    @property
    def fits(self) -> bool | None:
        return None if self.device is None else self.measured.peak <= HELD_BACK * DEVICES[self.device].memory

    @property
    def hours(self) -> float | None:
        return None if self.step_seconds is None else self.step_seconds * self.cut.steps / 3600

    @property
    def dollars(self) -> float | None:
        if self.hours is None or self.device is None:
            return None
        return self.hours * self.ranks * DEVICES[self.device].dollars


def mesh_of(text: str) -> tuple[MeshConfig, int]:
    """`dp=128,tp=8,cp=4` as a mesh, and how many ranks it has. dp is dp_shard."""
    names = {"dp": "dp_shard", "dp_shard": "dp_shard", "dp_replicate": "dp_replicate", "tp": "tp", "cp": "cp"}
    given: dict[str, int] = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        if key.strip() not in names or not value.strip().isdigit() or int(value) < 1:
            raise ValueError(f"--mesh {text!r}: {part!r} is no side of a mesh; write for example dp=128,tp=8,cp=4")
        given[names[key.strip()]] = int(value)
    return MeshConfig(**{"dp_shard": 1, **given}), math.prod(given.values())


def estimate(recipe: Recipe, mesh: MeshConfig, ranks: int, device: str | None = None) -> Estimate:
    if device is not None and device not in DEVICES:
        raise ValueError(f"no device {device!r}; there are {either(list(DEVICES))}")
    recipe, assumed = with_vocabulary(recipe)
    train, model = recipe.train, recipe.model
    sides = mesh.sizes(ranks)
    cut = sizes(train, recipe.data.length, sides[0] * sides[1])
    width, source = widths(recipe.data, model.stack)
    found = measure(
        lambda: Learner(model),
        mesh,
        ranks,
        rows=cut.micro,
        length=width,
        source_length=source,
        micro=cut.passes,
        precision=train.precision,
        recompute=train.recompute,
        optimizer=lambda made: optimizers(train.optimizer, made, train.peak(model.width)),
        loss=_loss,
    )
    seen, every = (forward_flops(model, width, source or width, windows=windows)["scores"] for windows in (True, False))
    found = replace(found, flops=round(found.flops * (1 - found.attention * (1 - seen / every))))
    compute, messages, step = None, {}, None
    if device is not None:
        compute, messages = seconds(found, DEVICES[device], train.precision, mesh)
        hidden = sum(messages.get(axis, 0.0) for axis in ("fsdp", "dp_replicate"))
        step = max(compute, hidden) + sum(messages.values()) - hidden
    return Estimate(recipe, ranks, cut, count(model), found, device, step, compute, messages, assumed)


def with_vocabulary(recipe: Recipe) -> tuple[Recipe, str | None]:
    """The recipe with as many tokens as its data has, where it leaves that open, as a run does; or what is assumed,
    where the data is not here."""
    model, data = recipe.model, recipe.data
    if "vocabulary" in model.model_fields_set:
        return recipe, None
    if isinstance(data, TaskData | TaskSetData):
        known = data.vocabulary
    else:
        path = data.of[0].path if isinstance(data, MixtureData) else data.path
        if not (Path(path) / "data.json").is_file():
            return recipe, f"a vocabulary of {model.vocabulary:,} is assumed: the data is not here ({path})"
        known = int(describe(path)["vocabulary"])
    model = TransformerConfig.model_validate({**model.model_dump(), "vocabulary": known})
    return recipe.model_copy(update={"model": model}), None


def _loss(learner: Any, batch: Batch, dropout_key: DropoutKey, world: World) -> Tensor:
    learner.world = world
    source = {"source": batch.source, "source_at": batch.source_at}
    return learner(batch.tokens, batch.at, batch.target, **source, dropout_key=dropout_key)


def seconds(found: Measured, device: Device, precision: str, mesh: MeshConfig) -> tuple[float, dict[str, float]]:
    """Of computing, and of the messages on each side of the mesh, in one step."""
    compute = found.flops / (REACHED * (device.bfloat16 if precision == "bfloat16" else device.float32))
    copies, shards, cp, tp = mesh.sizes(found.ranks)
    # How many ranks talk, and how many neighbours they are spread over: tp lies innermost, copies outermost.
    size = {"tp": tp, "cp": cp, "fsdp": shards * cp, "dp_replicate": copies}
    span = {"tp": tp, "cp": tp * cp, "fsdp": tp * cp * shards}
    messages: dict[str, float] = {}
    for traffic in found.traffic:
        n = size.get(traffic.axis, found.ranks)
        # A ring passes on all parts but its own, and for a sum does so twice: to add them up, and to tell the sums.
        rounds = 2 if traffic.operation.startswith(("all_reduce", "allreduce")) else 1
        sent = rounds * traffic.bytes * (n - 1) / n
        near = span.get(traffic.axis, found.ranks) <= device.beside
        messages[traffic.axis] = messages.get(traffic.axis, 0.0) + sent / (device.near if near else device.far)
    return compute, messages


def count(model: TransformerConfig) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Learner(model).parameters())


def smaller(recipe: Recipe, mesh: MeshConfig, ranks: int, device: str) -> tuple[str, Estimate] | None:
    """The smallest change after which it fits, in words as they are typed, and the estimate with it."""
    for words, changed, other, more in _changes(recipe, mesh, ranks):
        try:
            found = estimate(changed, other, more, device)
        except ValueError:
            continue  # the model does not divide so
        if found.fits:
            return words, found
    return None


def _changes(recipe: Recipe, mesh: MeshConfig, ranks: int) -> Iterator[tuple[str, Recipe, MeshConfig, int]]:
    sides = mesh.sizes(ranks)
    cut = sizes(recipe.train, recipe.data.length, sides[0] * sides[1])
    spare = recipe
    words: list[str] = []
    if not recipe.train.recompute:
        spare = spare.model_copy(update={"train": spare.train.model_copy(update={"recompute": True})})
        words.append("train.recompute=true")
        yield words[-1], spare, mesh, ranks
    if cut.micro > 1:
        micro = cut.length
        spare = spare.model_copy(update={"train": spare.train.model_copy(update={"micro": micro})})
        words.append(f"train.micro={micro}")
        yield " ".join(words), spare, mesh, ranks
    for side in ("dp_shard", "cp", "tp"):
        for times in (2, 4, 8):
            grown = {"dp_shard": sides[1], side: times * (sides[1] if side == "dp_shard" else getattr(mesh, side))}
            text = ",".join(
                f"{name}={size}"
                for name, size in {
                    "dp_replicate": mesh.dp_replicate, "dp": grown["dp_shard"],
                    "cp": grown.get("cp", mesh.cp), "tp": grown.get("tp", mesh.tp),
                }.items()
                if size > 1
            )  # fmt: skip
            other = MeshConfig(**{**mesh.model_dump(), **grown})
            yield " ".join([*words, f"--mesh {text}"]), spare, other, ranks * times


def dry_run(recipe: Recipe) -> dict[str, Any]:
    """What the recipe would cost on this machine, in one process."""
    recipe, assumed = with_vocabulary(recipe)
    cut = sizes(recipe.train, recipe.data.length, 1)
    alone = recipe.model_copy(update={"mesh": MeshConfig()})
    found = estimate(alone, MeshConfig(dp_shard=1), 1)
    width, source = widths(recipe.data, recipe.model.stack)
    flops = step_flops(recipe.model, cut.rows, width, source)
    peak = gemm_peak(recipe.train.precision)
    return {
        "recipe": recipe.model_dump(mode="json"),
        "assumed": assumed,
        "parameters": found.parameters,
        "steps": cut.steps,
        "rows": cut.rows,
        "passes": cut.passes,
        "flops": {
            "step": flops,
            "forward of a sequence": forward_flops(recipe.model, width, source or width),
        },
        "memory": found.memory,
        "peak_flops_per_second": peak,
        "hours": flops * cut.steps / (ALONE * peak) / 3600,
    }
