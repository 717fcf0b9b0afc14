"""What length does to a model trained here in seconds: plain RoPE breaks, scalings break less, and cropping is best."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ropewalk.evaluate.documents import Document
from ropewalk.evaluate.engines.ours import Ours
from ropewalk.evaluate.measures import perplexity, tail
from ropewalk.evaluate.store import Stored
from ropewalk.extend.asking import Asking
from ropewalk.extend.candidates import Rope, formulas
from ropewalk.extend.sets import Sets
from ropewalk.extend.tournament import Result, run
from ropewalk.models import Transformer, preset
from ropewalk.trials.jobs import Workers

VOCABULARY, BASE, WIDTH, TRAINED, TO, TAIL = 64, 10_000.0, 32, 256, 2048, 64

Draw = Callable[[int, np.random.Generator], np.ndarray[Any, Any]]


def lagged(length: int, draws: np.random.Generator) -> np.ndarray[Any, Any]:
    """Each token is that of two places before, but for every seventh or so: to say it, a model needs positions."""
    tokens = draws.integers(0, VOCABULARY, length)
    new = draws.random(length) < 0.15
    for place in range(2, length):
        if not new[place]:
            tokens[place] = tokens[place - 2]
    return tokens


def of_two(length: int, draws: np.random.Generator) -> np.ndarray[Any, Any]:
    """A document says two tokens of sixteen and no others: its first ones tell which, and nothing else does."""
    return draws.permutation(16)[:2][draws.integers(0, 2, length)]


def trained(encoding: dict[str, Any], draw: Draw, length: int, steps: int, rate: float) -> Ours:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"width": WIDTH, "heads": 1, "key_heads": 1, "layers": 1, "hidden": 32}
    model = Transformer(preset("llama", **sizes, vocabulary=VOCABULARY, encoding=encoding))
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
    draws = np.random.default_rng(0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 10) * (0.1 + 0.45 * (1 + math.cos(math.pi * step / steps)))
        rows = torch.from_numpy(np.stack([draw(length + 1, draws) for _ in range(1024 // length)]))
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return Ours(model.eval(), model=str(encoding))


def documents(draw: Draw, length: int, count: int) -> list[Document]:
    draws = np.random.default_rng(1)
    return [Document(f"d{n}", f"{n:064x}", draw(length, draws).astype(np.int64), length) for n in range(count)]


class Here:
    """Opens nothing: the engine is in this process."""

    def __init__(self, engine: Ours) -> None:
        self.opened = engine

    def engine(self) -> Ours:
        return self.opened


@pytest.fixture(scope="module")
def eight_times() -> Result:
    """A model trained to 256 tokens, in a tournament for 2,048."""
    engine = trained({"kind": "rope", "base": BASE}, lagged, TRAINED, 300, 1e-2)
    rope = Rope(BASE, WIDTH, TRAINED, TO)
    few = [one for one in formulas(rope) if one.name in ("leave", "crop", "sinks", "ntk", "yarn")]
    drawn = documents(lagged, TO, 12)
    sets = Sets(drawn[:2], drawn[2:4], drawn[4:], "planted")
    return run(Asking(Stored(engine, None), Here(engine), Workers()), rope, sets, few, None, tail_tokens=TAIL)


def test_plain_rope_breaks_past_its_length_and_the_others_less(eight_times: Result) -> None:
    losses = {name: float(np.mean(one.tail.loss[TO])) for name, one in eight_times.judged.items()}
    crop = float(np.mean(eight_times.judged["leave"].tail.crop[TRAINED]))
    assert losses["leave"] > crop + 0.5
    assert losses["crop"] == pytest.approx(crop)
    for name in ("ntk", "yarn", "sinks"):
        assert losses[name] < losses["leave"]
    # Only what the verdict names is read token by token: it costs two passes each.
    where = {name: one.by_position for name, one in eight_times.judged.items() if one.by_position}
    assert list(where) == [eight_times.verdict.named]
    read = where[eight_times.verdict.named]
    assert np.mean(read[-4:]) > np.mean(read[1:4]) + 0.5


def test_the_verdict_is_to_crop(eight_times: Result) -> None:
    """Its text says nothing farther back than two tokens."""
    assert eight_times.verdict.kind == "crop better"
    assert eight_times.winner is None


def test_with_alibi_the_gain_of_longer_windows_vanishes_on_the_same_tokens() -> None:
    """Longer windows that do not overlap have fewer beginnings, where a model knows least. That is no use of what is
    far, and the loss of the same tokens with more text before them shows none."""
    length = 64
    engine = trained({"kind": "alibi"}, of_two, length, 200, 1e-2)
    drawn = documents(of_two, 4 * length, 12)
    short, long = (perplexity.measure(engine, drawn, n) for n in (length, 4 * length))
    assert short.mean - long.mean > 0.05
    same = tail.measure(engine, drawn, near=length, lengths=[length, 4 * length], tail=length // 2).gain()
    assert abs(same.mean) < 0.005
    assert same.low > -0.01
    assert same.high < 0.01
