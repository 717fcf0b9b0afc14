"""The steps of a run: read, compute, look, update, and now and then measure and save.

A step is a function of (weights, optimizer, step number): the batch is the one of that number, the learning rate and
dropout masks are computed from it. So a run that was killed goes on as if it had not been.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer

from ropewalk.data.batch import Batch
from ropewalk.data.open import Data
from ropewalk.distributed.apply import autocast, clip, finish, last
from ropewalk.distributed.world import World
from ropewalk.evaluate.by_position import by_position
from ropewalk.positions import PAD
from ropewalk.system import peak_memory, tell
from ropewalk.train.checkpoint.store import Checkpoints, DiskFull, Found
from ropewalk.train.config import TrainConfig
from ropewalk.train.guard.faults import Fault, Watch
from ropewalk.train.guard.signals import Signals
from ropewalk.train.guard.watchdog import FIRST, STEP, Watchdog
from ropewalk.train.metrics import Metrics
from ropewalk.train.objective import Learner, dropout_key_of
from ropewalk.train.optim import set_rates
from ropewalk.train.plan.sizes import Sizes
from ropewalk.train.progress import Progress
from ropewalk.train.samples import Sampler

WAIT_FOR_ROOM, TRY_AGAIN = 600.0, 10.0
"""Seconds in which a finished run waits for room on the disk, and between two tries."""


class Restored(NamedTuple):
    """Where a run stands."""

    step: int
    bad: frozenset[int]
    valid: dict[str, Any]


def restore(
    found: Found, checkpoints: Checkpoints, learner: Learner, optimizers: list[Optimizer], watch: Watch
) -> Restored:
    """From a checkpoint that was found whole, into what will go on from there."""
    state = checkpoints.load(found, learner, optimizers)
    watch.load(state["watch"])
    return Restored(state["step"], frozenset(state["bad"]), state["valid"])


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
    flops: float
    """Of a step, for each token of the decoder or of the only side."""
    peak: float | None
    """FLOP/s of this rank's matrix products, measured."""
    step: int
    """Updates behind us."""
    bad: frozenset[int]
    """Batches that are skipped."""
    valid: dict[str, Any]
    """The last measurement."""
    sampler: Sampler | None = None
    """What the model is asked now and then."""
    again: int | None = None
    """When a save is tried again for which there was no room."""

    def run(self) -> bool:
        """To the end, or to a signal. True where the end was reached."""
        try:
            self._steps()
        except BaseException:
            # The checkpoint that is being written may be the only one.
            self.watchdog.beat(self.step, "saving")
            self.checkpoints.finish()
            raise
        self.watchdog.beat(self.step, "saving")
        self._settle()
        return self.step == self.sizes.steps

    def _steps(self) -> None:
        steps = self.sizes.steps
        evaluate_every = self.config.evaluate.every or max(1, steps // 10)
        save_every = self.config.save.every or max(1, steps // 10)
        asked_for = self.config.samples
        sample_every = asked_for.every if asked_for is not None and asked_for.every else evaluate_every
        batches = self.batches(self.step)
        # How long a step takes is known after the first that does not compile.
        phases = iter(("compiling", FIRST) if self.config.compile else (FIRST,))

        def look() -> None:
            """Measures and asks what is due at this step."""
            if self.step % evaluate_every == 0 or self.step == steps:
                self.watchdog.beat(self.step, "measuring")
                self.evaluate()
            if self.sampler is not None and (self.step % sample_every == 0 or self.step == steps):
                self.watchdog.beat(self.step, "measuring")
                self.sample(self.sampler)

        if self.step:
            look()  # it was saved, and may have ended before it was measured
        self.watchdog.beat(self.step, next(phases))
        while self.step < steps:
            began = time.perf_counter()
            batch = next(batches)
            if self.step in self.bad or self.update(batch, began) == "good":
                self.step += 1
            elif self.config.faults.policy == "skip":
                self.bad |= {self.step}
                self.step += 1
            else:
                self.roll_back()
                batches = self.batches(self.step)
                continue
            asked = self.signals.asked(self.world, self.step)
            # Saved before it is measured: what goes wrong in a measurement costs no work.
            due = self.step % save_every == 0 or self.step in (steps, self.again)
            if due or asked or self._milestone():
                self.watchdog.beat(self.step, "saving")
                self.again = None if self.save() else self.step + max(1, save_every // 10)
            look()
            self.watchdog.beat(self.step, next(phases, STEP))
            if asked:
                break

    def batches(self, start: int) -> Iterator[Batch]:
        shard = {"shard": self.world.dp_rank, "shards": self.world.dp_size}
        return self.data.batches("train", rows=self.sizes.rows, start=start, workers=1, **shard)

    def update(self, batch: Batch, began: float) -> str:
        """One update, unless something is wrong with it: then weights and optimizer are as they were."""
        parts = [self.world.cut(part) for part in split(batch.to(self.world.device), self.sizes.micro)]
        count, tokens = self.world.sum(
            torch.stack([torch.stack([part.targets, (part.at.segment != PAD).sum()]) for part in parts]).sum(0)
        )
        total = torch.zeros((), device=self.world.device)
        for number, part in enumerate(parts):
            last(self.learner, number == len(parts) - 1)
            with autocast(self.world, self.config.precision):
                dropout_key = dropout_key_of(part, self.config.seed, self.step)
                loss = self.loss(part, dropout_key=dropout_key, smoothing=self.config.label_smoothing)
            (loss / count).backward()
            total += loss.detach()
        finish(self.learner, self.world)
        length, mean = clip(self.learner, self.config.clip or math.inf, self.world), self.world.sum(total) / count
        with self.watchdog.reading():
            norm, loss, asked = float(length), float(mean), int(count)
        if not asked:  # such as masked text without a masked token: there is no loss and nothing to learn
            said = f"step {self.step + 1}: nothing is asked in these sequences; nothing was updated"
            self.event("no targets", said, step=self.step + 1)
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            return "good"
        samples = partial(self._samples, parts, loss)
        try:
            verdict = self.watch.verdict(self.step, loss, norm, samples, self.learner)
        except Fault:
            self.record_fault(self.watch.last)
            raise
        share = self.config.schedule.share(self.step + 1, self.sizes.steps)
        if verdict == "good":
            set_rates(self.optimizers, share)
            for optimizer in self.optimizers:
                optimizer.step()
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        if verdict == "good":
            self.record(loss, norm, share, asked, int(tokens), time.perf_counter() - began)
        else:
            self.record_fault(self.watch.last)
        return verdict

    def _samples(self, parts: list[Batch], loss: float) -> list[int]:
        """Which samples of this rank have a loss that is not finite; all of them where no rank has any."""
        every = [number for part in parts for number in part.sample.tolist()]
        if math.isfinite(loss):
            return every
        found: list[int] = []
        with torch.no_grad():
            for part in parts:
                with autocast(self.world, self.config.precision):
                    dropout_key = dropout_key_of(part, self.config.seed, self.step)
                    wrong = ~self.loss(part, dropout_key=dropout_key, each=True).isfinite().all(-1)
                found += part.sample[wrong].tolist()
        self._reshard()
        return found if self.world.agree(bool(found)) else every

    def record_fault(self, fault: dict[str, Any]) -> None:
        if self.metrics is not None:
            parameters = sorted({name for names in fault["parameters"].values() for name in names})
            self.metrics.write({"kind": "event", **fault, "step": fault["step"] + 1, "parameters": parameters})

    def loss(self, batch: Batch, **settings: Any) -> Tensor:
        return self.learner(
            batch.tokens, batch.at, batch.target, source=batch.source, source_at=batch.source_at, **settings
        )

    def record(self, loss: float, norm: float, share: float, count: int, tokens: int, seconds: float) -> None:
        if self.metrics is None:
            return
        record: dict[str, Any] = {"step": self.step + 1, "loss": loss, "norm": norm}
        record |= {"lr": self.optimizers[-1].param_groups[0]["peak"] * share, "targets": count}
        speed = tokens / seconds  # without padding
        record |= {"seconds": round(seconds, 4), "tokens_per_second": round(speed, 1), "memory": memory(self.world)}
        if self.peak is not None:
            record["mfu"] = round(self.flops * speed / (self.peak * self.world.size), 4)
        self.metrics.write(record)
        self.progress.step(record)

    @torch.no_grad()
    def evaluate(self) -> None:
        """On the validation text, where there is any: the same sequences in every world."""
        if not self.data.rows("valid"):
            return
        each = self.sizes.micro * self.world.dp_size
        wanted = max(1, min(self.data.rows("valid"), self.config.evaluate.tokens // self.sizes.length))

        def batches() -> Iterator[Batch]:
            for number in range(-(-wanted // each)):
                batch = self.data.batch("valid", number, rows=each, shard=self.world.dp_rank, shards=self.world.dp_size)
                row = number * each + self.world.dp_rank + torch.arange(self.sizes.micro) * self.world.dp_size
                # Sequences past the last keep the shape, and have no targets.
                yield self.world.cut(batch.silent(row >= wanted).to(self.world.device))

        def losses(batch: Batch) -> Tensor:
            with autocast(self.world, self.config.precision):
                return self.loss(batch, each=True)

        self.learner.eval()
        reach, sizes = self.data.valid_limit, self.data.token_bytes
        found = by_position(losses, batches(), length=reach, token_bytes=sizes, total=self.world.sum)
        self.valid = {"step": self.step, **found}
        self.learner.train()
        self._reshard()
        if self.metrics is not None:
            self.metrics.write({"kind": "valid", **self.valid})
            bits = self.valid.get("bits_per_byte")
            said = f"{self.valid['loss']:.4f} nats per token" + (f", {bits:.4f} bits per byte" if bits else "")
            self.progress.say(f"step {self.step:,}: validation {said}")

    def sample(self, sampler: Sampler) -> None:
        self.learner.eval()
        with autocast(self.world, self.config.precision):
            texts = sampler(self.learner)
        self.learner.train()
        self._reshard()
        if self.metrics is None:
            return
        said = [{"prompt": prompt, "text": text} for prompt, text in zip(sampler.prompts, texts, strict=True)]
        self.metrics.write({"kind": "sample", "step": self.step, "samples": said})
        for each in said:
            self.progress.say(f"step {self.step:,}: {one_line(each['prompt'])} | {one_line(each['text'])}")

    def _reshard(self) -> None:
        """Without a backward pass, the last weights stay gathered."""
        if isinstance(self.learner, FSDPModule):
            self.learner.reshard()

    def save(self) -> bool:
        """A full disk is no reason to stop: the checkpoints before this one are whole, and there may be room later."""
        for act in (self.checkpoints.wait, self._save):  # for the one that is being written, and for this one
            try:
                act()
            except DiskFull as error:
                self.event("not saved", str(error.strerror), error=error.strerror)
                if act == self._save:
                    return False
        return True

    def _save(self) -> None:
        state = {"step": self.step, "bad": sorted(self.bad), "valid": self.valid, "watch": self.watch.state()}
        state |= self.facts
        self.checkpoints.save(self.step, self.learner, self.optimizers, state, milestone=self._milestone())

    def _milestone(self) -> bool:
        return self.config.save.keep_every is not None and self.step % self.config.save.keep_every == 0

    def _settle(self) -> None:
        """The last checkpoint is on the disk, or there was no room for it for as long as a person may need."""
        end = time.monotonic() + WAIT_FOR_ROOM
        while True:
            try:
                self.checkpoints.wait()
                if self.again is None:
                    return
                self._save()
                self.again = None
            except DiskFull as error:
                self.again = self.step
                if self.world.agree(self.signals.received is not None or time.monotonic() > end):
                    raise
                self.event("not saved", str(error.strerror), error=error.strerror)
                self.watchdog.beat(self.step, "saving")
                time.sleep(TRY_AGAIN)

    def event(self, what: str, said: str, **more: Any) -> None:
        """Something a person should know, on the screen and in the record."""
        if self.metrics is not None:
            self.metrics.write({"kind": "event", "what": what, "step": self.step, **more})
            tell(said)

    def roll_back(self) -> None:
        """To the last checkpoint; the batch that did harm is skipped when its turn comes again."""
        culprit = self.step
        found = self.checkpoints.newest()
        if found is None:
            raise FloatingPointError(
                f"step {culprit + 1} went wrong before the first checkpoint: nothing to go back to"
            )
        self.step, bad, self.valid = restore(found, self.checkpoints, self.learner, self.optimizers, self.watch)
        self.bad |= bad | {culprit}
        self.progress.say(f"went back to step {self.step:,}; batch {culprit:,} will be skipped")


def split(batch: Batch, rows: int) -> list[Batch]:
    """Passes of so many sequences each."""
    return [batch.take(slice(start, start + rows)) for start in range(0, len(batch.tokens), rows)]


def one_line(text: str) -> str:
    """A model can say anything, a terminal's control sequences too; those are shown, not obeyed."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def memory(world: World) -> int | None:
    """Bytes this rank held at its peak: of the device, or of the process."""
    if world.device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    return peak_memory()
