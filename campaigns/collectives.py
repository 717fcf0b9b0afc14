"""The messages of a step as `ropewalk estimate` counts them, against those that real ranks sent.

    OMP_NUM_THREADS=1 python -m campaigns.collectives [CASE ...]

Each case is trained for three steps by ranks that talk over gloo, and the second step is counted: gloo's own flight
recorder has every message with its group and its size. Gloo makes a reduce-scatter of an all-reduce, so which of the
two it was is counted where torch calls operators. `campaigns.estimates` keeps the result.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast
from unittest import mock

# Read when torch makes its first process group.
os.environ["TORCH_FR_BUFFER_SIZE"] = "20000"

import torch
import torch.distributed as dist

from ropewalk.distributed.torch_private import follow
from ropewalk.models.config import TransformerConfig
from ropewalk.train.config import Recipe
from ropewalk.train.loop import Loop
from ropewalk.train.plan.estimate import Estimate, estimate, mesh_of
from ropewalk.train.run import train
from tests.train import forked, small_recipe

THREE_PASSES: dict[str, Any] = {"micro": 32, "batch": 192}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "FSDP 2": ("dp=2", {}, {}),
    "FSDP 2, three passes, bfloat16": ("dp=2", {"micro": 32, "batch": 192, "precision": "bfloat16"}, {}),
    "FSDP 2, recomputed": ("dp=2", {"recompute": True}, {}),
    "FSDP 2, Muon": ("dp=2", {"optimizer": {"kind": "muon"}}, {}),
    "TP 2": ("tp=2", {}, {}),
    "TP 2, three passes": ("tp=2", {"micro": 64, "batch": 192}, {}),
    "TP 2, qk_norm, sink": ("tp=2", {}, {"qk_norm": "head", "sink": True}),
    "CP 2": ("cp=2", {}, {}),
    "CP 2, three passes": ("cp=2", {"micro": 64, "batch": 192}, {}),
    "CP 2, T5": ("cp=2", {}, {"encoding": "t5"}),
    "FSDP 2 x CP 2, three passes": ("dp=2,cp=2", THREE_PASSES, {}),
    "FSDP 2 x TP 2, recomputed": ("dp=2,tp=2", {"recompute": True}, {}),
    "HSDP 2 x 2, three passes": ("dp_replicate=2,dp=2", {"micro": 16, "batch": 192}, {}),
}
KINDS = {
    "allgather_base": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "allreduce": "all_reduce",
    "all_reduce": "all_reduce",
}
BYTES = {"Double": 8, "Long": 8, "Float": 4, "Int": 4, "BFloat16": 2, "Bool": 1, "Byte": 1}
QUIET = ("wait_tensor", "wrap_tensor_autograd")
SENT = ("input_sizes", "input_dtypes")
BY_GLOO = {"reduce_scatter": "all_reduce"}
"""What gloo calls it."""


def main() -> int:
    found = counted(sys.argv[1:] or list(CASES))
    print(json.dumps(found))
    return int(any(case["estimated"] != case["counted"] for case in found.values()))


def counted(names: list[str]) -> dict[str, Any]:
    forked.warm()
    return {name: case(*CASES[name]) for name in names}


def case(mesh: str, changes: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    sides, ranks = mesh_of(mesh)
    whole = small_recipe.recipe(3, 3, **{"save": {"every": 3, "asynchronous": False}, **changes})
    shape = {**whole.model.model_dump(exclude_unset=True), "vocabulary": 32, **model}
    recipe = whole.model_copy(update={"mesh": sides, "model": TransformerConfig.model_validate(shape)})
    with tempfile.TemporaryDirectory(prefix="ropewalk-counted-") as made:
        folder = Path(made)
        run(lambda rank: write(folder / f"real-{rank}", real(recipe, folder / "run")), ranks)
        # In a process of its own: what torch remembers of a group that exchanges nothing would confuse real ones.
        run(lambda rank: write(folder / "said", said(estimate(recipe, sides, ranks))), 1)
        each = [json.loads((folder / f"real-{rank}").read_text()) for rank in range(ranks)]
        if any(other["operators"] != each[0]["operators"] for other in each):
            raise RuntimeError(f"ranks count differently: {each}")
        return {"mesh": mesh, "estimated": json.loads((folder / "said").read_text()), "counted": each[0]}


def run(work: Callable[[int], object], ranks: int) -> None:
    if any(codes := forked.run(work, ranks)):
        raise RuntimeError(f"ranks ended with {codes}")


def write(file: Path, what: Any) -> None:
    file.write_text(json.dumps(what, sort_keys=True), encoding="utf-8")


def real(recipe: Recipe, out: Path) -> dict[str, Any]:
    """What one rank sent from the start of its second step to the start of its third."""
    groups: dict[str, list[int]] = {}
    operators, marks, mode = Counter[str](), [], ExitStack()
    update = Loop.update

    def see(operator: Any, arguments: Any, result: Any) -> None:
        name = operator.overloadpacket.__name__.strip("_")
        if operator.namespace in ("c10d", "_c10d_functional") and name not in QUIET:
            operators[KINDS[name]] += 1

    def marked(loop: Loop, batch: Any, began: float) -> str:
        for name in ("dp_replicate", "fsdp", "cp", "tp"):
            group = loop.world.axis(name).get_group()
            groups[group.group_name] = dist.get_process_group_ranks(group)
        default = cast(Any, dist.group.WORLD)
        groups[default.group_name] = dist.get_process_group_ranks(default)
        marks.append(len(recorded()))
        if loop.step == 1:
            mode.enter_context(follow(see))
        elif loop.step == 2:
            mode.close()
        return update(loop, batch, began)

    with mock.patch.object(Loop, "update", marked):
        train(recipe, out)
    messages = Counter[str]()
    for record in recorded()[marks[1] : marks[2]]:
        kind = record["profiling_name"].removeprefix("gloo:")
        ranks = groups[record["process_group"][0]]
        sent = sum(math.prod(size) * BYTES[dtype] for size, dtype in zip(*map(record.get, SENT), strict=True))
        # By what goes in: of what comes out, the recorder writes down one part where an operator takes many tensors.
        add(messages, kind, ranks, 1, sent * (len(ranks) if kind == "all_gather" else 1))
    return {"operators": dict(operators), "messages": dict(messages)}


def recorded() -> list[dict[str, Any]]:
    from torch._C._distributed_c10d import _dump_fr_trace_json

    return json.loads(_dump_fr_trace_json(True, False)).get("entries", [])


def add(messages: Counter[str], kind: str, ranks: list[int], calls: int, size: int) -> None:
    where = f"{kind} of ranks {', '.join(map(str, ranks))}"
    messages[f"{where}: calls"] += calls
    messages[f"{where}: bytes"] += size


def said(found: Estimate) -> dict[str, Any]:
    """The same by the estimate; the groups of rank 0 by how ranks are laid out, tp innermost and copies outermost."""
    copies, shards, cp, tp = found.recipe.mesh.sizes(found.ranks)
    one = shards * cp * tp
    groups = {
        "tp": range(tp),
        "cp": range(0, cp * tp, tp),
        "fsdp": range(0, one, tp),
        "dp_replicate": range(0, copies * one, one),
        "world": range(found.ranks),
    }
    operators, messages = Counter[str](), Counter[str]()
    for each in found.measured.traffic:
        kind = KINDS[each.operation]
        operators[kind] += each.calls
        add(messages, BY_GLOO.get(kind, kind), list(groups[each.axis]), each.calls, each.bytes)
    return {"operators": dict(operators), "messages": dict(messages)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
