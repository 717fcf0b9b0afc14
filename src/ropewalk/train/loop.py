"""The steps of a run: read, compute, look, update, and now and then measure and save.

A step is a function of (weights, optimizer, step number): the batch is the one of that number, the learning rate and
dropout's coins are computed from it. So a run that was killed goes on as if it had not been.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer

from ropewalk.data.batch import Batch
from ropewalk.data.open import Data
from ropewalk.distributed.apply import autocast, clip, finish, last
from ropewalk.distributed.world import World
from ropewalk.evaluate.by_position import by_position
from ropewalk.system import peak_memory
from ropewalk.train.checkpoint import Checkpoints, Found
from ropewalk.train.config import TrainConfig
from ropewalk.train.faults import Signals, Watch, Watchdog
from ropewalk.train.metrics import Metrics
from ropewalk.train.objective import Learner, draw_of
from ropewalk.train.optim import set_rates
from ropewalk.train.progress import Progress
from ropewalk.train.sizes import Sizes
from ropewalk.train.watchdog import FIRST


@dataclass
class Loop:
    config: TrainConfig
    sizes: Sizes
    data: Data
    world: World
    learner: Learner
    optimizers: list[Optimizer]
    checkpoints: Checkpoints
    watch: Watch
    signals: Signals
    watchdog: Watchdog
    progress: Progress
    metrics: Metrics | None
    """Only where this is the first rank."""
    facts: dict[str, Any]
    """What a checkpoint must be resumed with: recipe, data, versions."""
    flops: float = 0.0
    """Of a step."""
    peak: float | None = None
    """FLOP/s of this rank's matrix products, measured."""
    step: int = 0
    """Updates behind us."""
    bad: set[int] = field(default_factory=set)
    """Batches that are passed over."""
    valid: dict[str, Any] = field(default_factory=dict)
    """The last measurement."""

    def run(self) -> bool:
        """To the end, or to a signal. True where the end was reached."""
        steps = self.sizes.steps
        evaluate_every = self.config.evaluate.every or max(1, steps // 10)
        save_every = self.config.save.every or max(1, steps // 10)
        batches = self.batches(self.step)
        # How long a step takes is known after the first, unless that was spent on compiling.
        self.watchdog.beat(self.step, "compiling" if self.config.compile else FIRST)
        while self.step < steps:
            batch, began = next(batches), time.perf_counter()
            if self.step in self.bad or self.update(batch, began) == "good":
                self.step += 1
            elif self.config.faults.policy == "skip":
                self.bad.add(self.step)
                self.step += 1
            else:
                self.roll_back()
                batches = self.batches(self.step)
                continue
            if self.step % evaluate_every == 0 or self.step == steps:
                self.watchdog.beat(self.step, "measuring")
                self.evaluate()
            asked = self.signals.asked(self.world, self.step)
            if self.step % save_every == 0 or self.step == steps or asked:
                self.watchdog.beat(self.step, "saving")
                self.save()
            self.watchdog.beat(self.step)
            if asked:
                break
        self.watchdog.beat(self.step, "saving")
        self.checkpoints.wait()
        return self.step == steps

    def batches(self, start: int) -> Iterator[Batch]:
        shard = {"shard": self.world.dp_rank, "shards": self.world.dp_size}
        return self.data.batches("train", rows=self.sizes.rows, start=start, **shard)

    def update(self, batch: Batch, began: float) -> str:
        """One update, unless something is wrong with it: then weights and optimizer are as they were."""
        parts = [self.world.cut(part) for part in split(batch.to(self.world.device), self.sizes.micro)]
        count = self.world.sum(torch.stack([part.targets for part in parts]).sum())
        total = torch.zeros((), device=self.world.device)
        for number, part in enumerate(parts):
            last(self.learner, number == len(parts) - 1)
            with autocast(self.world, self.config.precision):
                draw = draw_of(part, self.config.seed, self.step)
                loss = self.loss(part, draw=draw, smoothing=self.config.label_smoothing)
            (loss / count).backward()
            total += loss.detach()
        finish(self.learner, self.world)
        norm = float(clip(self.learner, self.config.clip or math.inf, self.world))
        loss = float(self.world.sum(total) / count)
        verdict = self.watch.verdict(self.step, loss, norm, batch.sample, self.learner)
        share = self.config.schedule.share(self.step + 1, self.sizes.steps)
        if verdict == "good":
            set_rates(self.optimizers, share)
            for optimizer in self.optimizers:
                optimizer.step()
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self.record(loss, norm, share, int(count), time.perf_counter() - began, verdict)
        return verdict

    def loss(self, batch: Batch, **settings: Any) -> Tensor:
        return self.learner(
            batch.tokens, batch.at, batch.target, source=batch.source, source_at=batch.source_at, **settings
        )

    def record(self, loss: float, norm: float, share: float, count: int, seconds: float, verdict: str) -> None:
        if self.metrics is None:
            return
        record: dict[str, Any] = {"step": self.step + 1, "loss": loss, "norm": norm}
        record |= {"lr": self.optimizers[-1].param_groups[0]["peak"] * share, "targets": count}
        speed = self.sizes.batch / seconds
        record |= {"seconds": round(seconds, 4), "tokens_per_second": round(speed, 1), "memory": memory(self.world)}
        if self.peak is not None:
            record["mfu"] = round(self.flops / seconds / (self.peak * self.world.size), 4)
        if verdict != "good":
            record = {"kind": "event", "what": verdict, **record}
        self.metrics.write(record)
        self.progress.step(record)

    @torch.no_grad()
    def evaluate(self) -> None:
        """On the validation text: the same rows in every world."""
        each = self.sizes.micro * self.world.dp_size
        wanted = max(1, min(self.data.rows("valid"), self.config.evaluate.tokens // self.sizes.length))

        def batches() -> Iterator[Batch]:
            for number in range(-(-wanted // each)):
                batch = self.data.batch("valid", number, rows=each, shard=self.world.dp_rank, shards=self.world.dp_size)
                row = number * each + self.world.dp_rank + torch.arange(self.sizes.micro) * self.world.dp_size
                # Rows past the last are there to keep the shape, and ask nothing.
                yield self.world.cut(batch.silent(row >= wanted).to(self.world.device))

        def losses(batch: Batch) -> Tensor:
            with autocast(self.world, self.config.precision):
                return self.loss(batch, each=True)

        self.learner.eval()
        length, sizes = self.sizes.length, self.data.token_bytes
        self.valid = by_position(losses, batches(), length=length, token_bytes=sizes, total=self.world.sum)
        self.learner.train()
        if isinstance(self.learner, FSDPModule):
            self.learner.reshard()  # without a way back, the last weights stay gathered
        if self.metrics is not None:
            self.metrics.write({"kind": "valid", "step": self.step, **self.valid})
            bits = self.valid.get("bits_per_byte")
            said = f"{self.valid['loss']:.4f} nats per token" + (f", {bits:.4f} bits per byte" if bits else "")
            self.progress.say(f"step {self.step:,}: validation {said}")

    def save(self) -> None:
        state = {"step": self.step, "bad": sorted(self.bad), "valid": self.valid, "watch": self.watch.state()}
        self.checkpoints.save(self.step, self.learner, self.optimizers, state | self.facts)

    def restore(self, found: Found) -> None:
        """From a checkpoint that was found whole."""
        state = self.checkpoints.load(found, self.learner, self.optimizers)
        self.step, self.valid = state["step"], state["valid"]
        self.bad |= set(state["bad"])
        self.watch.load(state["watch"])

    def roll_back(self) -> None:
        """To the last checkpoint; the batch that did harm is passed over when its turn comes again."""
        culprit = self.step
        found = self.checkpoints.newest()
        if found is None:
            raise FloatingPointError(
                f"step {culprit + 1} went wrong before the first checkpoint: nothing to go back to"
            )
        self.restore(found)
        self.bad.add(culprit)
        self.progress.say(f"went back to step {self.step:,}; batch {culprit:,} will be passed over")


def split(batch: Batch, rows: int) -> list[Batch]:
    """Passes of so many rows each."""
    return [batch.take(slice(start, start + rows)) for start in range(0, len(batch.tokens), rows)]


def memory(world: World) -> int | None:
    """Bytes this rank held at its peak: of the device, or of the process."""
    if world.device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    return peak_memory()
