"""Rows against the documents they are made of, one token at a time."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from ropewalk.data.batch import IGNORE, Batch
from ropewalk.data.config import PairsData, TaskData, TextData
from ropewalk.data.drawn.masking import Masking
from ropewalk.data.open import Data, open_data
from ropewalk.data.options import Options
from ropewalk.data.prepare.dataset import prepare
from ropewalk.data.stored import Documents
from ropewalk.positions import PAD


def documents(folder: Path, split: str, stream: str = "tokens") -> list[list[int]]:
    about = json.loads((folder / "data.json").read_text())
    found = Documents(folder, split, stream, about)
    bounds = found.bounds(0, found.documents)
    return [found.span(int(a), int(b)).tolist() for a, b in pairwise(bounds)]


def in_order(data: Data, split: str) -> Batch:
    """All rows, as they are numbered."""
    batch = data.batch(split, 0, rows=data.rows(split))
    order = batch.sample.argsort()
    cut = [None if part is None else part[order] for part in (batch.tokens, batch.target, batch.source)]
    source_at = None if batch.source_at is None else batch.source_at.rows(order)
    assert cut[0] is not None
    assert cut[1] is not None
    return Batch(cut[0], batch.at.rows(order), cut[1], batch.sample[order], cut[2], source_at)


@pytest.mark.parametrize("length", [7, 64, 1000])
def test_stream_is_the_documents_end_to_end(text: Path, length: int) -> None:
    texts = documents(text, "train")
    batch = in_order(open_data(TextData(path=str(text), length=length), stack="decoder", seed=0), "train")
    there = batch.at.segment.flatten() != PAD
    assert batch.tokens.flatten()[there].tolist() == [token for document in texts for token in document]
    # Every token but a document's first is asked for exactly once, the last of a row too.
    asked = batch.target.flatten()[there]
    assert asked[asked != IGNORE].tolist() == [token for document in texts for token in document[1:]]
    assert (batch.target.flatten()[~there] == IGNORE).all()
    place = 0
    for document in texts:
        for number in range(len(document)):
            row, column = divmod(place, length)
            # A piece that goes on from the row before starts anew.
            assert batch.at.index[row, column] == min(number, column)
            place += 1
    assert torch.equal(batch.at.index, batch.at.order)


def test_segments_change_where_documents_do(text: Path) -> None:
    batch = in_order(open_data(TextData(path=str(text), length=200), stack="decoder", seed=0), "train")
    start = batch.tokens == 0
    grows = batch.at.segment[:, 1:] > batch.at.segment[:, :-1]
    assert torch.equal(grows, start[:, 1:] & (batch.at.segment[:, 1:] != PAD))
    assert (batch.at.segment[:, 0] == 0).all()


def test_a_document_a_row(text: Path) -> None:
    texts = documents(text, "train")
    config = TextData(path=str(text), length=100, packing="document")
    batch = in_order(open_data(config, stack="decoder", seed=0), "train")
    wanted = [document[n : n + 100] for document in texts for n in range(0, len(document), 100)]
    assert len(batch.tokens) == len(wanted)
    asked = 0
    for row, piece in enumerate(wanted):
        assert batch.tokens[row, : len(piece)].tolist() == piece
        assert batch.at.index[row, : len(piece)].tolist() == list(range(len(piece)))
        assert (batch.at.segment[row] == PAD).tolist() == [False] * len(piece) + [True] * (100 - len(piece))
        asked += int((batch.target[row] != IGNORE).sum())
    assert asked == sum(len(document) - 1 for document in texts)


def test_files_do_not_change_rows(tmp_path: Path, text: Path) -> None:
    source = tmp_path / "lines.txt"
    source.write_text("\n".join(f"line {n} of some {n * n} lines" for n in range(300)), encoding="utf-8")
    found = []
    for number, shard in enumerate((60, 1000, 2**30)):
        options = Options(document="line", valid=0.1, tokenizer=str(text / "tokenizer.json"), shard_tokens=shard)
        prepare([source], tmp_path / str(number), options)
        for packing in ("stream", "document"):
            config = TextData(path=str(tmp_path / str(number)), length=50, packing=packing)
            found.append(in_order(open_data(config, stack="decoder", seed=1), "train"))
    assert len(list((tmp_path / "0" / "train").iterdir())) > 20
    for other in (2, 4):
        for packing in (0, 1):
            a, b = found[packing], found[other + packing]
            assert torch.equal(a.tokens, b.tokens)
            assert torch.equal(a.target, b.target)
            assert torch.equal(a.at.segment, b.at.segment)


def test_pairs_share_a_segment_on_both_sides(pairs: Path) -> None:
    sources, targets = documents(pairs, "train", "source"), documents(pairs, "train", "target")
    data = open_data(PairsData(path=str(pairs), length=40, source_length=40), stack="encoder-decoder", seed=0)
    batch = in_order(data, "train")
    assert batch.source is not None
    assert batch.source_at is not None
    number = 0
    for row in range(len(batch.tokens)):
        last = int(batch.at.segment[row].max())
        assert int(batch.source_at.segment[row].max()) == last
        for segment in range(last + 1):
            ours, theirs = batch.at.segment[row] == segment, batch.source_at.segment[row] == segment
            assert batch.source[row][theirs].tolist() == sources[number][1:]
            assert batch.tokens[row][ours].tolist() == targets[number][:-1]
            assert batch.target[row][ours].tolist() == targets[number][1:]
            assert batch.at.index[row][ours].tolist() == list(range(len(targets[number]) - 1))
            number += 1
    assert number == len(sources) > 2 * len(batch.tokens)


def test_long_pairs_are_left_out(pairs: Path) -> None:
    targets = documents(pairs, "train", "target")
    data = open_data(PairsData(path=str(pairs), length=8, source_length=60), stack="encoder-decoder", seed=0)
    rows = data.splits["train"]
    assert rows.left_out == sum(len(target) - 1 > 8 for target in targets) > 0  # pyrefly: ignore[missing-attribute]
    batch = in_order(data, "train")
    starts = int(((batch.tokens == 0) & (batch.at.segment != PAD)).sum())
    assert starts == len(targets) - rows.left_out  # pyrefly: ignore[missing-attribute]


def test_masking_is_15_80_10_10(text: Path) -> None:
    config = TextData(path=str(text), length=128)
    plain = in_order(open_data(config, stack="decoder", seed=0), "train")
    data = open_data(config, stack="encoder", seed=0)
    rounds = [data.batch("train", n, rows=data.rows("train")) for n in range(20)]
    original = plain.tokens
    count = asked = masked = random = 0
    for batch in rounds:
        before = original[batch.sample]
        chosen = batch.target != IGNORE
        assert torch.equal(batch.target[chosen], before[chosen])
        assert torch.equal(batch.tokens[~chosen], before[~chosen])
        assert not (chosen & ((before <= 2) | (batch.at.segment == PAD))).any()
        count += int(((before > 2) & (batch.at.segment != PAD)).sum())
        asked += int(chosen.sum())
        masked += int((batch.tokens[chosen] == data.mask).sum())
        random += int(((batch.tokens != before) & (batch.tokens != data.mask) & chosen).sum())
    assert asked / count == pytest.approx(0.15, abs=0.005)
    assert masked / asked == pytest.approx(0.8, abs=0.01)
    assert random / asked == pytest.approx(0.1, abs=0.01)
    first, again = rounds[0], data.batch("train", 0, rows=data.rows("train"))
    assert torch.equal(first.tokens, again.tokens)
    order = [batch.sample.argsort() for batch in rounds[:2]]
    assert not torch.equal(rounds[0].target[order[0]], rounds[1].target[order[1]])


def test_random_tokens_are_no_marks() -> None:
    masking = Masking(8, 2, frozenset({0, 1}))
    assert masking.ordinary.tolist() == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("stack", ["decoder", "encoder", "encoder-decoder"])
@pytest.mark.parametrize("task", ["copy", "reverse", "addition", "passkey"])
def test_tasks_ask_for_the_right_answer(task: str, stack: str) -> None:
    config = TaskData.model_validate({"task": task, "length": 40, "shortest": 2})
    data = open_data(config, stack=stack, seed=5)
    batch = data.batch("train", 0, rows=20)
    for row in range(20):
        answer = [token for token in batch.target[row].tolist() if token not in (IGNORE, 1)]
        if batch.source is not None and batch.source_at is not None:
            question = batch.source[row][batch.source_at.segment[row] != PAD].tolist()[:-1]
        else:
            tokens = batch.tokens[row].tolist()
            question = tokens[1 : tokens.index(3)]
        assert answer == solve(task, question)


def solve(task: str, question: list[int]) -> list[int]:
    if task in ("copy", "reverse"):
        return question if task == "copy" else question[::-1]
    if task == "passkey":
        return question[question.index(14) + 1 :][:5]
    a, b = (
        "".join(str(t - 4) for t in part)
        for part in (question[: question.index(14)], question[question.index(14) + 1 :])
    )
    return [int(digit) + 4 for digit in f"{int(a) + int(b):0{len(a) + 1}}"]


def test_no_question_is_in_both_splits() -> None:
    data = open_data(TaskData(task="addition", length=9, samples=300, valid_samples=60), stack="decoder", seed=0)
    asked = [
        {tuple(row.side.tokens[:7]) for row in map(data.splits[split].__getitem__, range(n))}
        for split, n in (("train", 300), ("valid", 60))
    ]
    assert not asked[0] & asked[1]
    assert all(asked)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"task": "addition", "vocabulary": 9}, "needs 15 ids"),
        ({"task": "passkey", "length": 10}, "room for 0 symbols"),
        ({"task": "copy", "length": 10, "shortest": 5}, "room for 4 symbols"),
    ],
)
def test_tasks_that_do_not_fit_are_refused(settings: dict[str, int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        open_data(TaskData.model_validate(settings), stack="decoder", seed=0)


def test_a_token_past_the_vocabulary_is_refused(tmp_path: Path) -> None:
    from ropewalk.data.prepare.sample import sample

    folder = sample("text", tmp_path / "text")
    tokens = np.memmap(folder / "train" / "tokens-00000.bin", dtype=np.uint16, mode="r+")
    tokens[130] = 600
    tokens.flush()
    data = open_data(TextData(path=str(folder), length=64), stack="decoder", seed=0)
    with pytest.raises(ValueError, match=r"tokens-00000.bin: token 600 at place 130, the vocabulary has 512"):
        data.batch("train", 0, rows=data.rows("train"))


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    from ropewalk.data.prepare.sample import sample

    folder = sample("text", tmp_path / "text")
    file = folder / "valid" / "offsets-00000.npy"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(ValueError, match=r"offsets-00000.npy has .* bytes, .* were written"):
        open_data(TextData(path=str(folder)), stack="decoder", seed=0)
