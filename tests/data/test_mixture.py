"""Mixtures and long documents, against counts made from the documents themselves."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from ropewalk.data import index, texts
from ropewalk.data import mixture as mixture_rows
from ropewalk.data.batch import IGNORE
from ropewalk.data.config import MixtureData, TextData
from ropewalk.data.mixture import LongDocuments, counts
from ropewalk.data.open import Data, open_data
from ropewalk.data.options import Options
from ropewalk.data.prepare.dataset import prepare
from ropewalk.data.stored import Documents
from ropewalk.positions import PAD
from tests.data.test_open import same
from tests.data.test_rows import documents

LENGTH = 24


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory, text: Path) -> dict[str, Path]:
    """Three sets of very different sizes, each of a word of its own that no other has."""
    folder, found = tmp_path_factory.mktemp("sets"), {}
    for name, lines in (("large", 300), ("small", 40), ("tiny", 12)):
        file = folder / f"{name}.txt"
        file.write_text("\n".join(f"{name} {n} {n * 7}" for n in range(lines)), encoding="utf-8")
        options = Options(document="line", valid=0.3, tokenizer=str(text / "tokenizer.json"))
        prepare([file], folder / name, options)
        found[name] = folder / name
    return found


def mixture(sets: dict[str, Path], **weights: float) -> Data:
    of = [{"path": str(sets[name]), "weight": weight} for name, weight in weights.items()]
    return open_data(MixtureData(length=LENGTH, of=of), stack="decoder", seed=5)


def origin(sets: dict[str, Path]) -> dict[tuple[int, ...], str]:
    """Which set each sequence is from, by its tokens: made from the documents, not from the order."""
    found = {}
    for name, folder in sets.items():
        for split in ("train", "valid"):
            flat = [token for document in documents(folder, split) for token in document]
            for start in range(0, len(flat), LENGTH):
                found[tuple(flat[start : start + LENGTH])] = name
    return found


def named(data: Data, sets: dict[str, Path], split: str, number: int) -> list[str]:
    """The sets that the first sequences are from."""
    known, batch = origin(sets), data.batch(split, 0, rows=number)
    rows = zip(batch.tokens.tolist(), (batch.at.segment != PAD).sum(1).tolist(), strict=True)
    return [known[tuple(tokens[:count])] for tokens, count in rows]


@pytest.mark.parametrize("weights", [{"large": 1, "small": 3}, {"large": 0.7, "small": 0.2, "tiny": 0.1}])
def test_shares_are_those_of_the_weights_at_every_moment(sets: dict[str, Path], weights: dict[str, float]) -> None:
    """Whatever the sizes of the sets: the tiny one comes round many times."""
    order = named(mixture(sets, **weights), sets, "train", 400)
    total = sum(weights.values())
    for seen in (1, 7, 60, 333, 400):
        have = Counter(order[:seen])
        for name, weight in weights.items():
            assert abs(have[name] - seen * weight / total) < len(weights), (seen, name)
    assert {name: Counter(order)[name] for name in weights} == {n: round(400 * w / total) for n, w in weights.items()}


def test_a_set_of_a_mixture_is_read_through_before_any_of_it_comes_again(sets: dict[str, Path]) -> None:
    data = mixture(sets, large=1, small=1)
    rows = [open_data(TextData(path=str(sets[n]), length=LENGTH), stack="decoder", seed=0) for n in ("large", "small")]
    large, small = (each.rows("train") for each in rows)
    found = Counter(data.batch("train", 0, rows=2 * large).sample.tolist())
    assert sorted(n for n in found if n < large) == list(range(large))
    assert {found[n] for n in range(large)} == {1}
    times = [found[large + n] for n in range(small)]
    assert min(times) >= large // small
    assert max(times) <= large // small + 1
    # Another order each time round.
    batch = data.batch("train", 0, rows=2 * large)
    order = [n - large for n in batch.sample.tolist() if n >= large]
    assert order[:small] != order[small : 2 * small]
    assert sorted(order[:small]) == list(range(small))


def test_sets_of_one_size_have_orders_of_their_own(sets: dict[str, Path]) -> None:
    of = [{"path": str(sets["small"]), "weight": 1}] * 2
    data = open_data(MixtureData(length=LENGTH, of=of), stack="decoder", seed=5)
    count = data.rows("train") // 2
    numbers = data.batch("train", 0, rows=2 * count).sample.tolist()
    first, second = ([n % count for n in numbers if n // count == part] for part in (0, 1))
    assert sorted(first) == sorted(second)
    assert first != second


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_mixture_is_the_same_on_every_world_and_from_any_step(sets: dict[str, Path], split: str) -> None:
    data, again = (mixture(sets, large=2, small=1, tiny=0.5) for _ in range(2))
    for number in (0, 5, 400):
        whole = data.batch(split, number, rows=6)
        assert same(whole, again.batch(split, number, rows=6))
        for shards in (2, 3, 6):
            for shard in range(shards):
                part = again.batch(split, number, rows=6, shard=shard, shards=shards)
                assert torch.equal(part.tokens, whole.tokens[shard::shards])
                assert torch.equal(part.sample, whole.sample[shard::shards])
    read = again.batches(split, rows=6, start=7, shard=1, shards=2, workers=1)
    for number, batch in enumerate(islice(read, 8), 7):
        assert same(batch, data.batch(split, number, rows=6, shard=1, shards=2))


def test_evaluation_mixes_by_the_weights_and_repeats_nothing(sets: dict[str, Path]) -> None:
    data = mixture(sets, large=1, small=1)
    have = {n: open_data(TextData(path=str(sets[n]), length=LENGTH), stack="decoder", seed=0) for n in sets}
    count = data.rows("valid")
    assert count == 2 * have["small"].rows("valid")
    assert Counter(named(data, sets, "valid", count)) == {"large": count // 2, "small": count // 2}
    assert len(set(data.batch("valid", 0, rows=count).sample.tolist())) == count


def test_counts_add_up_to_each_place() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        weights = rng.integers(1, 50, size=int(rng.integers(1, 6))).tolist()
        before = [0] * len(weights)
        for n in range(1, 200):
            after = counts(n, weights)
            assert sum(after) == n
            assert sum(b - a for a, b in zip(before, after, strict=True)) == 1
            assert all(b >= a for a, b in zip(before, after, strict=True))
            before = after


def test_sets_of_other_tokens_are_refused(sets: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "other.txt"
    file.write_text("quite another text\n" * 40, encoding="utf-8")
    prepare([file], tmp_path / "other", Options(document="line", vocabulary=262, valid=0))
    with pytest.raises(ValueError, match=r"cannot be mixed: token \d+ is .*--tokenizer .*large/tokenizer.json"):
        mixture({**sets, "other": tmp_path / "other"}, large=1, other=1)


def test_sets_that_hold_out_other_shares_are_refused(sets: dict[str, Path], tmp_path: Path) -> None:
    """A text in both would be trained on and measured with."""
    file, words = tmp_path / "a.txt", str(sets["large"] / "tokenizer.json")
    file.write_text("\n".join(f"large {n} {n * 7}" for n in range(300)), encoding="utf-8")
    prepare([file], tmp_path / "other", Options(document="line", valid=0.05, tokenizer=words))
    both = {"large": sets["large"], "other": tmp_path / "other"}
    for _ in range(2):
        with pytest.raises(ValueError, match=r"holds out 0\.3 of .* and the second 0\.05") as found:
            mixture(both, large=1, other=1)
        assert f"--valid-fraction 0.3 --tokenizer {words} --out {tmp_path / 'other'}-again" in str(found.value)
        # Data of before says only what was asked.
        about = json.loads((tmp_path / "other" / "data.json").read_text())
        about.pop("threshold", None)
        (tmp_path / "other" / "data.json").write_text(json.dumps(about))
    prepare([file], tmp_path / "again", Options(document="line", valid=0.3, tokenizer=words))
    assert mixture({**both, "other": tmp_path / "again"}, large=1, other=1).rows("valid")


def test_few_documents_hold_out_another_share(sets: dict[str, Path], tmp_path: Path) -> None:
    file, words = tmp_path / "a.txt", str(sets["large"] / "tokenizer.json")
    file.write_text("one\ntwo\nthree", encoding="utf-8")
    about = prepare([file], tmp_path / "few", Options(document="line", valid=0.001, tokenizer=words))
    prepare([file, *[sets["large"].with_suffix(".txt")]], tmp_path / "many",
            Options(document="line", valid=0.001, tokenizer=words))  # fmt: skip
    assert about["threshold"] > 0.001
    both = {"few": tmp_path / "few", "many": tmp_path / "many"}
    with pytest.raises(ValueError, match=f"--valid-fraction {about['threshold']} "):
        mixture(both, few=1, many=1)


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    """Documents of 3 to 200 tokens."""
    folder = tmp_path_factory.mktemp("uneven")
    rng = np.random.default_rng(1)
    lines = [" ".join(map(str, rng.integers(10, size=int(size)))) for size in rng.integers(1, 80, size=400)]
    (folder / "a.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in lines), encoding="utf-8")
    options = Options(valid=0, tokenizer=str(text / "tokenizer.json"), shard_tokens=50_000)
    prepare([folder / "a.jsonl"], folder / "out", options)
    return folder / "out"


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few documents are many blocks."""
    monkeypatch.setattr(mixture_rows, "BLOCK", 16)
    monkeypatch.setattr(texts, "BLOCK", 16)


@pytest.mark.usefixtures("small_blocks")
def test_long_documents_are_one_stream(uneven: Path) -> None:
    every = documents(uneven, "train")
    held = Documents(uneven, "train", "tokens", json.loads((uneven / "data.json").read_text()))
    for at_least in (2, 100, max(map(len, every))):
        long = [each for each in every if len(each) >= at_least]
        found = LongDocuments(held, at_least)
        assert (found.documents, found.tokens) == (len(long), sum(map(len, long)))
        flat = np.concatenate(long)
        starts = np.cumsum([0, *map(len, long)])
        assert np.array_equal(found.bounds(0, found.documents), starts)
        rng = np.random.default_rng(at_least)
        for a, b in np.sort(rng.integers(found.tokens + 1, size=(20, 2)), axis=1):
            assert np.array_equal(found.span(int(a), int(b)), flat[a:b])
            inside = starts[:-1][(starts[:-1] >= a) & (starts[:-1] < b)]
            assert np.array_equal(found.starts(int(a), int(b)), inside)
        for a, b in np.sort(rng.integers(found.documents + 1, size=(20, 2)), axis=1):
            if a < b:
                assert np.array_equal(found.bounds(int(a), int(b)), starts[a : b + 1])


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("packing", ["stream", "document"])
def test_an_epoch_has_long_documents_as_often_as_is_said(uneven: Path, packing: str) -> None:
    config = TextData(path=str(uneven), length=64, packing=packing, long={"at_least": 100, "times": 3})
    data = open_data(config, stack="decoder", seed=2)
    batch = data.batch("train", 0, rows=data.rows("train"))
    there = batch.at.segment != PAD
    have = Counter(batch.tokens[there].tolist())
    wanted: Counter[int] = Counter()
    for each in documents(uneven, "train"):
        for token in each:
            wanted[token] += 3 if len(each) >= 100 else 1
    assert have == wanted
    asked = sum((len(each) - 1) * (3 if len(each) >= 100 else 1) for each in documents(uneven, "train"))
    assert int((batch.target != IGNORE).sum()) == asked
    assert len(set(batch.sample.tolist())) == len(batch.sample)
    plain = open_data(config.model_copy(update={"long": None}), stack="decoder", seed=2)
    assert data.rows("valid") == plain.rows("valid")


def test_no_document_so_long_is_an_error(uneven: Path) -> None:
    with pytest.raises(ValueError, match=r"data.long.at_least=100000: no document of .* has so many tokens"):
        open_data(TextData(path=str(uneven), long={"at_least": 100_000, "times": 2}), stack="decoder", seed=0)


def test_long_documents_that_fill_no_sequence_are_an_error(uneven: Path) -> None:
    longest = max(map(len, documents(uneven, "train")))
    config = TextData(path=str(uneven), length=4096, isolate=False, long={"at_least": longest, "times": 9})
    with pytest.raises(ValueError, match=rf"data.long.at_least={longest}: .* fill no sequence of data.length=4096"):
        open_data(config, stack="decoder", seed=0)
    isolated = open_data(config.model_copy(update={"isolate": True}), stack="decoder", seed=0)
    plain = open_data(config.model_copy(update={"isolate": True, "long": None}), stack="decoder", seed=0)
    assert isolated.rows("train") == plain.rows("train") + 8


@pytest.mark.usefixtures("small_blocks")
def test_what_was_counted_is_kept_for_each_length_and_bound(uneven: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of two bounds are not taken for each other."""
    monkeypatch.setattr(index, "LEAST", 1)
    held = Documents(uneven, "train", "tokens", json.loads((uneven / "data.json").read_text()))
    every = documents(uneven, "train")
    for _ in range(2):
        for at_least in (50, 100):
            config = TextData(path=str(uneven), length=64, packing="document", long={"at_least": at_least, "times": 2})
            data = open_data(config, stack="decoder", seed=2)
            rows = sum(-(-len(each) // 64) * (2 if len(each) >= at_least else 1) for each in every)
            assert data.rows("train") == rows
            assert LongDocuments(held, at_least).documents == sum(len(each) >= at_least for each in every)
    assert len(list((uneven / "train").glob("rows-*.npy"))) == 5
