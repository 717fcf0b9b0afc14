"""Large data: what was counted once is not counted again, and how many sequences there can be."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch

from ropewalk.data import index, pairs, texts
from ropewalk.data.batch import Row, Side
from ropewalk.data.config import PairsData, TextData
from ropewalk.data.drawn.masking import Masking
from ropewalk.data.open import MOST_ROWS, Data, Stack, open_data
from ropewalk.data.options import Options
from ropewalk.data.prepare.dataset import prepare
from ropewalk.data.stored import Documents
from tests.data.test_prepare import lines


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Several shards and blocks of documents and pairs, which count as many."""
    monkeypatch.setattr(index, "LEAST", 1)
    monkeypatch.setattr(texts, "BLOCK", 7)
    monkeypatch.setattr(pairs, "BLOCK", 16)
    both = zip(lines(1, 150).splitlines(), lines(2, 150).splitlines(), strict=True)
    (tmp_path / "a.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in both), encoding="utf-8")
    (tmp_path / "a.txt").write_text(lines(1, 150), encoding="utf-8")
    settings = {"document": "line", "vocabulary": 300, "valid": 0.1, "shard_tokens": 1500}
    prepare([tmp_path / "a.tsv"], tmp_path / "pairs", Options.model_validate({**settings, "kind": "pairs"}))
    prepare([tmp_path / "a.txt"], tmp_path / "text", Options.model_validate(settings))
    return tmp_path


def opened(folder: Path, kind: str) -> Data:
    if kind == "text":
        config = TextData(path=str(folder / kind), length=24, packing="document")
        return open_data(config, stack="decoder", seed=0)
    return open_data(PairsData(path=str(folder / kind), length=40, source_length=32), stack="encoder-decoder", seed=0)


def sizes(folder: Path, stream: str) -> list[int]:
    found = sorted((folder / "train").glob(f"{stream}*.npy"))
    return [size for file in found for size in np.diff(np.load(file)).tolist()]


def spans(folder: Path) -> tuple[list[tuple[int, int]], int]:
    """The rows of pairs by the rule of one pair after another."""
    found, left_out, first, used = [], 0, 0, (0, 0)
    both = list(zip(sizes(folder, "source-offsets"), sizes(folder, "target-offsets"), strict=True))
    for number, (source, target) in enumerate(both):
        now = (used[0] + source - 1, used[1] + target - 1)
        if now[0] > 32 or now[1] > 40:
            if number > first:
                found.append((first, number))
            first, now = number, (source - 1, target - 1)
            if now[0] > 32 or now[1] > 40:
                left_out, first, now = left_out + 1, number + 1, (0, 0)
        used = now
    if first < len(both):
        found.append((first, len(both)))
    return found, left_out


def test_rows_are_where_they_should_be(large: Path) -> None:
    rows = opened(large, "pairs").splits["train"]
    wanted, left_out = spans(large / "pairs")
    assert isinstance(rows, pairs.PairRows)
    assert [(int(a), int(b)) for a, b in rows.spans[:-1]] == wanted
    assert rows.left_out == left_out > 0
    documents = opened(large, "text").splits["train"]
    assert len(documents) == sum(-(-size // 24) for size in sizes(large / "text", "offsets"))


@pytest.mark.parametrize("kind", ["text", "pairs"])
def test_what_was_counted_is_not_counted_again(large: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    first = opened(large, kind)
    (file,) = (large / kind / "train").glob("rows-*")
    batch = first.batch("train", 0, rows=first.rows("train"))
    with monkeypatch.context() as patch:
        patch.setattr(Documents, "bounds", None)
        again = opened(large, kind)
    for one, other in zip(batch[:3], again.batch("train", 0, rows=first.rows("train"))[:3], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(flat(one), flat(other), strict=True))
    whole, count = file.read_bytes(), first.rows("train")
    for damaged in (whole[:-9], b"", *(npy(np.zeros((n, 2), np.int64)) for n in (0, 3))):
        file.unlink()  # it is mapped: it must not change, only go
        file.write_bytes(damaged)
        assert opened(large, kind).rows("train") == count
        assert file.read_bytes() == whole


def npy(found: np.ndarray) -> bytes:
    held = io.BytesIO()
    np.save(held, found)
    return held.getvalue()


def flat(value: object) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [part for part in value if isinstance(part, torch.Tensor)]


def test_where_nothing_can_be_written_it_is_counted(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(index.os, "fsync", full)
    assert opened(large, "text").rows("train") == opened(large, "text").rows("train") > 0
    assert list((large / "text" / "train").glob("rows-*")) == []


class Many:
    """So many sequences of two tokens, all made up."""

    width, plain = 2, True

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Row:
        assert 0 <= number < self.count
        return Row(number, Side(np.array([5, 6]), np.arange(2), np.zeros(2, np.int64)), np.array([6, 5]))


def numbers(data: Data, places: list[int]) -> list[int]:
    return [int(data.batch("train", place, rows=1).sample) for place in places]


@pytest.mark.parametrize("stack", ["decoder", "encoder"])
def test_the_most_sequences_there_can_be(stack: Stack) -> None:
    """The order is still one of all numbers, to the last, in the second epoch too."""
    assert MOST_ROWS == 4_294_967_295
    masking = Masking(8, 2, frozenset({0, 1})) if stack == "encoder" else None
    about = {"length": 2, "seed": 2**32 - 1, "vocabulary": 8, "fingerprint": "", "special": {}, "masking": masking}
    data = Data({"train": Many(MOST_ROWS), "valid": Many(MOST_ROWS)}, **about)
    places = [*range(200), *range(2**31, 2**31 + 100), *range(MOST_ROWS - 200, MOST_ROWS)]
    first, second = numbers(data, places), numbers(data, [MOST_ROWS + place for place in places])
    for found in (first, second):
        assert len(set(found)) == len(places)
        assert max(found) > 0.99 * MOST_ROWS
        assert min(found) < 0.01 * MOST_ROWS
    assert first != second
    last = [int(data.batch("valid", place, rows=1).sample) for place in places]
    assert len(set(last)) == len(places)
    assert max(last) > 0.99 * MOST_ROWS
    says = (
        r"^data.length 2 gives 4,294,967,296 train sequences, 4,294,967,295 is the most .* write data.length=3 or more$"
    )
    with pytest.raises(ValueError, match=says):
        Data({"train": Many(MOST_ROWS + 1), "valid": Many(1)}, **about)
