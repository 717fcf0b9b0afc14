"""A number that is not finite, put in at twenty places of a step, on either of two ranks: no update is made with it.

    OMP_NUM_THREADS=1 python -m campaigns.nan_sites

After the step every weight and everything the optimizer keeps is bit for bit what it was, on both ranks, both know the
verdict and the samples that may have done it; the run skips the batch and goes on to its end. Once on each rank with
FSDP, then with bfloat16 and two passes, with tensor and with context parallelism, ranks in turn.
"""

from __future__ import annotations

import contextlib
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from benchmarks import bars
from campaigns import pieces
from ropewalk.train import loop as loops
from ropewalk.train.checkpoint import tensors
from ropewalk.train.loop import Loop
from tests.train import forked, small_recipe

RANKS, AT, STEPS = 2, 3, 6
SOURCES = (
    "src/ropewalk/train/guard/faults.py",
    "src/ropewalk/train/loop.py",
    "campaigns/nan_sites.py",
    "tests/train/small_recipe.py",
)
Site = Callable[[Loop], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def output(loop: Loop, name: str, value: float) -> Iterator[None]:
    """One number of what a module answers."""

    def spoil(module: nn.Module, given: Any, answer: Any) -> Any:
        first = answer[0] if isinstance(answer, tuple) else answer
        spoiled = first.clone()
        spoiled.view(-1)[0] = value
        return (spoiled, *answer[1:]) if isinstance(answer, tuple) else spoiled

    hook = loop.learner.get_submodule(name).register_forward_hook(spoil)
    yield
    hook.remove()


def local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@contextlib.contextmanager
def gradient(loop: Loop, name: str, value: float) -> Iterator[None]:
    """Some numbers of a gradient, after the ranks have summed it."""
    whole = loops.finish

    def finish(model: Any, world: Any) -> None:
        whole(model, world)
        found = local(dict(model.named_parameters())[name].grad)
        # A shard can be empty: then this rank has nothing of the parameter to spoil, and the next has.
        target = found if found.numel() else local(next(p.grad for p in model.parameters() if local(p.grad).numel()))
        # So many that 3e38 is past float32 in the norm also where it is the mean of two ranks of tp.
        target.view(-1)[:8] = value

    with mock.patch.object(loops, "finish", finish):
        yield


@contextlib.contextmanager
def weight(loop: Loop, name: str, value: float) -> Iterator[None]:
    """One weight, as a fault of memory would: it is put back after the step."""
    found = local(dict(loop.learner.named_parameters())[name].detach())
    before = found.clone()
    found.view(-1)[0] = value
    yield
    found.copy_(before)


@contextlib.contextmanager
def loss(loop: Loop, name: str, value: float) -> Iterator[None]:
    """The loss of this rank's rows."""
    whole = loop.loss
    with mock.patch.object(loop, "loss", lambda batch, **settings: whole(batch, **settings) * value):
        yield


NAN, INF = math.nan, math.inf
SITES: tuple[tuple[Callable[..., Any], str, float], ...] = (
    (output, "tokens", NAN),
    (output, "decoder.blocks.0.attention", NAN),
    (output, "decoder.blocks.0.mlp", INF),
    (output, "decoder.blocks.0", NAN),
    (output, "decoder.blocks.1.attention.out", -INF),
    (output, "decoder.blocks.1.mlp", NAN),
    (output, "decoder.blocks.1", INF),
    (output, "decoder.final_norm", NAN),
    (gradient, "tokens.weight", NAN),
    (gradient, "decoder.blocks.0.attention.q.weight", NAN),
    (gradient, "decoder.blocks.0.attention.k.weight", -INF),
    (gradient, "decoder.blocks.0.attention.v.weight", NAN),
    (gradient, "decoder.blocks.1.attention.out.weight", INF),
    (gradient, "decoder.blocks.1.mlp.up.weight", NAN),
    (gradient, "decoder.blocks.1.mlp.down.weight", NAN),
    (gradient, "decoder.final_norm.weight", 3e38),
    (weight, "decoder.blocks.0.attention.q.weight", NAN),
    (weight, "decoder.blocks.1.mlp.down.weight", INF),
    (loss, "", NAN),
    (loss, "", INF),
)


TURNS = ("FSDP 2", *small_recipe.VARIANTS)


def piece(start: int, count: int) -> dict[str, Any]:
    forked.warm()
    failures = []
    with tempfile.TemporaryDirectory(prefix="ropewalk-nan-") as made:
        for trial in range(start, start + count):
            (kind, name, value), turn = SITES[trial % len(SITES)], trial // len(SITES)
            variant, where = TURNS[turn], turn if turn < RANKS else trial % RANKS
            if variant == "TP 2" and name == "decoder.final_norm":
                where = 0  # the second rank scores the second half of the tokens, and does not read the first
            site = partial(kind, name=name, value=value)
            codes = trial_of(Path(made) / str(trial), site, where, variant, one=kind is output)
            if any(codes):
                error = (Path(made) / f"{trial}.err").read_text(encoding="utf-8").strip()[-400:]
                what = {"site": f"{kind.__name__} {name}", "value": str(value), "rank": where, "variant": variant}
                failures.append({"trial": trial, **what, "fault": error})
    return {"trials": count, "failures": failures}


def trial_of(out: Path, site: Site, where: int, variant: str, *, one: bool) -> list[int]:
    """one: only the first sample of a pass of that rank is spoiled, and named. Ranks of tp and cp have the same."""
    from ropewalk.train.run import train

    recipe = small_recipe.variant(variant, STEPS, STEPS, faults={"policy": "skip"})
    whole = Loop.update

    def update(self: Loop, batch: Any, began: float) -> str:
        if self.step != AT:
            verdict = whole(self, batch, began)
            assert verdict == "good", verdict
            return verdict
        before = {name: local(t).clone() for name, t in tensors.collect(self.learner, self.optimizers).items()}
        with site(self) if self.world.rank == where else contextlib.nullcontext():
            verdict = whole(self, batch, began)
        after = {name: local(t) for name, t in tensors.collect(self.learner, self.optimizers).items()}
        assert verdict == "not finite", verdict
        changed = [name for name in before if not torch.equal(before[name], after[name])]
        assert not changed, f"changed: {changed}"
        named, own = self.watch.last["samples"], batch.sample.tolist()
        # The last layer's first vector may predict nothing: then the loss is finite and the gradients are not.
        if one and not math.isfinite(self.watch.last["loss"]):
            firsts = own[:: self.sizes.micro]
            if self.world.rank == where:
                assert named == sorted(firsts), (named, own)
            elif self.world.dp_size > 1:
                assert named, own
                assert not {*named} & {*own}, (named, own)
        elif self.world.rank == where:
            assert set(own) <= set(named), (named, own)
        return verdict

    def work(rank: int) -> None:
        sys.stderr = out.with_suffix(".err").open("a", encoding="utf-8")
        with mock.patch.object(Loop, "update", update):
            result = train(recipe, out)
        assert result.step == STEPS, result

    return forked.run(work, RANKS)


def whole(done: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    return (
        {"sites that were updated with, or not agreed on": bars.bar(pieces.failures(done), 0, at_least=False)},
        {"sites": len(SITES), "trials": pieces.summed(done, "trials")},
    )


if __name__ == "__main__":
    sys.exit(pieces.main(__doc__, "nan_sites", piece, whole, trials=len(TURNS) * len(SITES), piece=10, sources=SOURCES))
