"""Positions that leave some out: where each token lies, and that nothing else changes."""

from __future__ import annotations

from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ropewalk.data.config import AnyData, MixtureData, TaskData, TextData
from ropewalk.data.drawn.skips import PoSE, Randomised
from ropewalk.data.open import Stack, open_data
from ropewalk.overrides import BadConfig
from ropewalk.positions import PAD
from tests.data.test_open import same

REACH = 5000


@pytest.fixture(params=["stream", "one text", "document", "encoder", "mixture", "task", "task of two sides"])
def case(request: pytest.FixtureRequest, text: Path) -> tuple[AnyData, Stack]:
    stream = TextData(path=str(text), length=96)
    task = TaskData(task="copy", length=24, shortest=3)
    return {
        "stream": (stream, "decoder"),
        "one text": (stream.model_copy(update={"isolate": False}), "decoder"),
        "document": (stream.model_copy(update={"packing": "document"}), "decoder"),
        "encoder": (stream, "encoder"),
        "mixture": (MixtureData(length=96, of=[{"path": str(text), "weight": 1}] * 2), "decoder"),
        "task": (task, "decoder"),
        "task of two sides": (task, "encoder-decoder"),
    }[request.param]


@pytest.mark.parametrize("positions", [PoSE(reach=REACH), PoSE(reach=REACH, chunks=4), Randomised(reach=REACH)])
def test_only_positions_change_and_they_grow_within_the_reach(case: tuple[AnyData, Stack], positions: Any) -> None:
    config, stack = case
    plain = open_data(config, stack=stack, seed=3)
    data = open_data(config.model_copy(update={"positions": positions}), stack=stack, seed=3)
    found, jumped, farthest = data.batch("train", 2, rows=32), 0, 0
    before = plain.batch("train", 2, rows=32)
    if stack != "encoder":
        assert torch.equal(found.tokens, before.tokens)
        assert torch.equal(found.target, before.target)
    assert found.at.limit == data.limit == REACH
    for at, was in ((found.at, before.at), (found.source_at, before.source_at)):
        if at is None or was is None:
            continue
        assert torch.equal(at.segment, was.segment)
        assert torch.equal(at.index, at.order)
        for row, segments in zip(at.index.tolist(), at.segment.tolist(), strict=True):
            for segment in set(segments) - {PAD}:
                places = [place for place, own in zip(row, segments, strict=True) if own == segment]
                assert all(a < b for a, b in pairwise(places))
                assert 0 <= places[0]
                assert places[-1] < REACH
                breaks = sum(b - a > 1 for a, b in pairwise(places))
                if isinstance(positions, PoSE):
                    assert places[0] == 0
                    assert breaks < positions.chunks
                jumped, farthest = jumped + breaks, max(farthest, places[-1])
    assert jumped > 20
    assert farthest > 0.9 * REACH
    # Evaluation is at positions that were trained: drawn ones again, and after PoSE those of an ordinary text.
    valid, before = (each.batch("valid", 0, rows=4) for each in (data, plain))
    assert valid.at.limit == REACH
    if isinstance(positions, PoSE):
        assert torch.equal(valid.at.index, before.at.index)
        assert data.valid_limit == plain.valid_limit == config.length
    else:
        assert int(valid.at.index.max()) > REACH / 2
        assert data.valid_limit == REACH
        assert same(valid, data.batch("valid", 0, rows=4))
        if stack != "encoder":
            assert torch.equal(valid.tokens, before.tokens)


@pytest.mark.parametrize("positions", [PoSE(reach=REACH), Randomised(reach=REACH)])
def test_drawn_by_the_seed_and_the_place_in_the_order(text: Path, positions: Any) -> None:
    config = TextData(path=str(text), length=64, positions=positions)
    data, again, other = (open_data(config, stack="decoder", seed=seed) for seed in (7, 7, 8))
    whole = data.batch("train", 11, rows=6)
    for shards in (2, 3):
        for shard in range(shards):
            part = again.batch("train", 11, rows=6, shard=shard, shards=shards)
            assert torch.equal(part.at.index, whole.at.index[shard::shards])
    for number, batch in enumerate(islice(again.batches("train", rows=6, start=9, workers=1), 4), 9):
        assert same(batch, data.batch("train", number, rows=6))
    assert not torch.equal(other.batch("train", 11, rows=6).at.index, whole.at.index)
    # The next time round a sequence lies elsewhere.
    count = data.rows("train")
    epochs = [{}, {}]
    for epoch, seen in enumerate(epochs):
        for n in range(count):
            row = data.batch("train", epoch * count + n, rows=1)
            seen[int(row.sample)] = row.at.index.tolist()
    assert sum(epochs[0][number] != epochs[1][number] for number in range(count)) > 0.9 * count


def test_pose_draws_every_skip_and_every_cut() -> None:
    """The second chunk starts anywhere up to reach - length, and as often here as there (arXiv:2309.10400, 3.2)."""
    rng, pose = np.random.default_rng(0), PoSE(reach=20)
    found = [pose.draw(10, rng) for _ in range(6000)]
    skips = np.bincount([int(places[-1]) - 9 for places in found], minlength=11)
    assert len(skips) == 11
    assert skips.min() > 0.8 * 6000 / 11
    assert skips.max() < 1.2 * 6000 / 11
    moved = [places for places in found if places[-1] > 9]
    cuts = np.bincount([int(np.argmax(np.diff(places))) for places in moved], minlength=9)
    assert cuts.min() > 0.8 * len(moved) / 9
    assert pose.draw(1, rng).tolist() == [0]


def test_random_positions_are_drawn_without_favour() -> None:
    rng, drawn = np.random.default_rng(0), Randomised(reach=12)
    found = np.bincount(np.concatenate([drawn.draw(5, rng) for _ in range(4000)]), minlength=12)
    assert found.min() > 0.9 * 4000 * 5 / 12
    assert found.max() < 1.1 * 4000 * 5 / 12


def test_a_reach_that_leaves_nothing_out_is_refused() -> None:
    with pytest.raises(BadConfig, match="reach 64 leaves nothing out of 64 tokens"):
        TextData(path="x", length=64, positions={"kind": "pose", "reach": 64})
