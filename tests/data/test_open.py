"""The order of samples: a function of the seed and the batch's number, whoever reads it and however."""

from __future__ import annotations

import ast
from itertools import islice
from pathlib import Path

import pytest
import torch

from ropewalk.data.batch import Batch
from ropewalk.data.config import AnyData, PairsData, TaskData, TextData
from ropewalk.data.open import Data, Stack, open_data

KINDS = ("decoder", "encoder", "document", "encoder-decoder", "task")


@pytest.fixture(params=KINDS)
def case(request: pytest.FixtureRequest, text: Path, pairs: Path) -> tuple[AnyData, Stack]:
    stream = TextData(path=str(text), length=96)
    return {
        "decoder": (stream, "decoder"),
        "encoder": (stream, "encoder"),
        "document": (stream.model_copy(update={"packing": "document"}), "decoder"),
        "encoder-decoder": (PairsData(path=str(pairs), length=40, source_length=48), "encoder-decoder"),
        "task": (TaskData(task="addition", length=24, shortest=1, samples=50), "decoder"),
    }[request.param]


def flat(batch: Batch) -> list[torch.Tensor]:
    parts = [batch.tokens, batch.target, batch.sample, *batch.at[:3]]
    if batch.source is not None and batch.source_at is not None:
        parts += [batch.source, *batch.source_at[:3]]
    return parts


def same(a: Batch, b: Batch) -> bool:
    return all(torch.equal(x, y) for x, y in zip(flat(a), flat(b), strict=True)) and type(a.at) is type(b.at)


def opened(case: tuple[AnyData, Stack], seed: int = 3) -> Data:
    return open_data(case[0], stack=case[1], seed=seed)


@pytest.mark.parametrize("split", ["train", "valid"])
def test_shards_are_parts_of_one_batch(case: tuple[AnyData, Stack], split: str) -> None:
    data = opened(case)
    for number in (0, 3, 1000):
        whole = flat(data.batch(split, number, rows=12))
        for shards in (2, 3, 4, 12):
            for shard in range(shards):
                part = data.batch(split, number, rows=12, shard=shard, shards=shards)
                assert all(torch.equal(x, y[shard::shards]) for x, y in zip(flat(part), whole, strict=True))


@pytest.mark.parametrize("rows", [4, 2])
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_iteration_is_the_batches_in_order(case: tuple[AnyData, Stack], workers: int, rows: int) -> None:
    """Also of one sequence for each shard."""
    data = opened(case)
    found = data.batches("train", rows=rows, shard=1, shards=2, start=5, workers=workers)
    for number, batch in enumerate(islice(found, 12), 5):
        assert same(batch, data.batch("train", number, rows=rows, shard=1, shards=2))


def test_workers_do_not_parse_python(case: tuple[AnyData, Stack], monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that call ast.parse at once fail at random before CPython 3.11.8: gh-106905."""
    data = opened(case)

    def refused(*_: object, **__: object) -> None:
        raise SystemError("AST constructor recursion depth mismatch")

    with monkeypatch.context() as patch:  # undone before pytest itself parses a failing line
        patch.setattr(ast, "parse", refused)
        found = list(islice(data.batches("train", rows=4, start=5, workers=3), 3))
    assert len(found) == 3


def test_every_row_once_an_epoch_in_another_order(case: tuple[AnyData, Stack]) -> None:
    data = opened(case)
    count = data.rows("train")
    epochs = [[int(data.batch("train", e * count + n, rows=1).sample) for n in range(count)] for e in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(count))
    assert epochs[0] != epochs[1]
    assert epochs[0] != list(range(count))
    other = opened(case, seed=4)
    assert epochs[0] != [int(other.batch("train", n, rows=1).sample) for n in range(count)]


def test_evaluation_is_the_same_each_time_round(case: tuple[AnyData, Stack]) -> None:
    data = opened(case)
    count = data.rows("valid")
    numbers = data.batch("valid", 0, rows=count).sample.tolist()
    assert sorted(numbers) == list(range(count))
    assert count == 2 or numbers != list(range(count))  # a part of it is of all documents
    assert numbers == opened(case, seed=4).batch("valid", 0, rows=count).sample.tolist()
    assert same(data.batch("valid", 0, rows=count), data.batch("valid", 1, rows=count))


def test_a_second_opening_is_the_same(case: tuple[AnyData, Stack]) -> None:
    first, second = opened(case), opened(case)
    assert first.fingerprint == second.fingerprint
    assert same(first.batch("train", 77, rows=4), second.batch("train", 77, rows=4))


def test_sizes_and_limits(case: tuple[AnyData, Stack]) -> None:
    data = opened(case)
    batch = data.batch("train", 0, rows=2)
    assert batch.tokens.shape == batch.target.shape == batch.at.shape == (2, data.length)
    assert batch.at.limit == data.length
    assert batch.tokens.dtype == batch.sample.dtype == torch.int64
    assert int(batch.tokens.max()) < data.vocabulary
    assert int(batch.targets) == int((batch.target >= 0).sum()) > 0


def test_rows_as_one_text_are_plain(text: Path) -> None:
    data = open_data(TextData(path=str(text), length=64, isolate=False), stack="decoder", seed=0)
    batch = data.batch("train", 0, rows=2)
    assert batch.at.is_plain
    assert batch.at.index[1].tolist() == list(range(64))


@pytest.mark.parametrize(("rows", "shard", "shards"), [(4, 2, 2), (4, 0, 3), (0, 0, 1)])
def test_uneven_shards_are_refused(text: Path, rows: int, shard: int, shards: int) -> None:
    data = open_data(TextData(path=str(text)), stack="decoder", seed=0)
    with pytest.raises(ValueError, match="must divide it evenly"):
        data.batch("train", 0, rows=rows, shard=shard, shards=shards)


def test_stack_and_kind_must_fit(text: Path, pairs: Path) -> None:
    with pytest.raises(ValueError, match=r"text is for stack decoder or encoder, the model's is encoder-decoder"):
        open_data(TextData(path=str(text)), stack="encoder-decoder", seed=0)
    with pytest.raises(ValueError, match=r"pairs is for stack encoder-decoder"):
        open_data(PairsData(path=str(pairs)), stack="decoder", seed=0)
    with pytest.raises(ValueError, match=r"holds pairs, data.kind is text; write data.kind=pairs"):
        open_data(TextData(path=str(pairs)), stack="decoder", seed=0)
    with pytest.raises(ValueError, match=r"no data.json there; prepare it first: ropewalk data prepare"):
        open_data(TextData(path="nowhere"), stack="decoder", seed=0)
    with pytest.raises(ValueError, match=r"ropewalk data prepare long-english --out data/long-english$"):
        open_data(TextData(path="data/long-english"), stack="decoder", seed=0)
