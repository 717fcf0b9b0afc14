"""Prepared data, opened for a run: batches whose sequences depend on the seed and the batch's number alone.

    data = open_data(config, stack="decoder", seed=1)
    data.batch("train", 12, rows=64)                         the whole of batch 12
    data.batch("train", 12, rows=64, shard=1, shards=4)      sequences 1, 5, 9, ... of it

Training sequences are shuffled, in another order each epoch; evaluation goes through them as they lie, and round again.
The order is Grain's index shuffle, a function and not a list, so a run can start at any batch at once and in no memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from ropewalk.data.batch import Batch, Row, collate
from ropewalk.data.config import AnyData, MixtureData, PairsData, TaskData, TaskSetData, TextData
from ropewalk.data.drawn.masking import Masking
from ropewalk.data.drawn.skips import AnySkips, measured_at, skipped
from ropewalk.data.index import indexed
from ropewalk.data.layout import STREAMS, describe
from ropewalk.data.mixture import ENDLESS, LongDocuments, Mixed, MixedRows, Repeated
from ropewalk.data.pairs import PairRows
from ropewalk.data.stored import Documents
from ropewalk.data.task_set import TaskSetRows
from ropewalk.data.tasks import END, MASK, START, TaskRows
from ropewalk.data.texts import DocumentRows, StreamRows
from ropewalk.data.urls import Remote, located

if TYPE_CHECKING:
    import grain

Stack = Literal["decoder", "encoder", "encoder-decoder"]
Split = Literal["train", "valid"]
MOST_ROWS = 2**32 - 1
"""Grain shuffles 32-bit numbers."""
STRIDE = 0x9E3779B9
"""Between the seeds of the parts of a mixture."""
BLOCK = 1 << 20
"""Tokens looked at together."""
AHEAD = 4
"""Batches that are made before they are asked for."""


class Rows(Protocol):
    """The distinct sequences of one split, each a pure function of its number."""

    width: int
    plain: bool
    """Known beforehand: every sequence is one piece without padding."""

    def __len__(self) -> int: ...
    def __getitem__(self, number: int) -> Row: ...


class Data:
    """length: tokens of a sequence, of the longer side of a task. limit: what no position reaches, and valid_limit:
    none of validation. folder, others: of the data, and of what is mixed with it."""

    def __init__(
        self,
        splits: dict[str, Rows],
        *,
        length: int,
        seed: int,
        vocabulary: int,
        fingerprint: str,
        special: dict[str, int | None],
        masking: Masking | None = None,
        folder: Path | None = None,
        others: Sequence[Path] = (),
        positions: AnySkips | None = None,
    ) -> None:
        self.splits, self.seed, self.vocabulary, self.fingerprint = splits, seed, vocabulary, fingerprint
        self.length, self.positions = length, positions
        self.limit = length if positions is None else positions.reach
        self.valid_limit = length if measured_at(positions) is None else self.limit
        self.source_length: int | None = getattr(splits["train"], "source_width", None)
        self.start, self.end, self.mask = (special.get(name) for name in ("start", "end", "mask"))
        self.tokenizer = folder / "tokenizer.json" if folder else None
        self.folders = [] if folder is None else [folder, *others]
        change = _Change(masking, positions)
        self._ordered: dict[str, Any] = {split: _ordered(rows, split, seed, change) for split, rows in splits.items()}

    @cached_property
    def token_bytes(self) -> np.ndarray[Any, Any] | None:
        """Bytes of text that each id stands for; None where ids are no text. What a tokenizer drops of a text or puts
        into it has no id of its own: all ids are scaled, so that the validation text has the bytes it has."""
        if not self.folders:
            return None
        sizes = np.load(self.folders[0] / "token_bytes.npy", allow_pickle=False)
        counted, there = np.sum([_counted(folder, sizes) for folder in self.folders], axis=0).tolist()
        return sizes if counted in (0, there) else sizes * (there / counted)

    def rows(self, split: Split) -> int:
        """How many distinct sequences there are."""
        return len(self.splits[split])

    def batch(self, split: Split, number: int, *, rows: int, shard: int = 0, shards: int = 1) -> Batch:
        """Batch `number` of `rows` sequences, of which a shard has every `shards`-th."""
        self.need(split, rows, shard, shards)
        ordered = self._ordered[split]
        return self._collate(split, [ordered[number * rows + row] for row in range(shard, rows, shards)])

    def batches(
        self, split: Split, *, rows: int, shard: int = 0, shards: int = 1, start: int = 0, workers: int = 0
    ) -> Iterator[Batch]:
        """Batches from number `start` on, without end; `workers` threads make them before they are asked for."""
        self.need(split, rows, shard, shards)
        part = self._ordered[split][start * rows + shard : ENDLESS : shards]
        batched = part.batch(rows // shards, batch_fn=partial(self._collate, split))
        options = _grain().ReadOptions(num_threads=workers, prefetch_buffer_size=max(AHEAD, workers) if workers else 0)
        return iter(batched.to_iter_dataset(options))

    def _collate(self, split: str, rows: Sequence[Row]) -> Batch:
        made = self.splits[split]
        far = None if self.positions is None else self.limit
        return collate(rows, plain=made.plain, limit=far or made.width, source_limit=far or self.source_length)

    def need(self, split: str, rows: int, shard: int, shards: int, name: str = "the data") -> None:
        """An error where there are no such batches."""
        if not 0 <= shard < shards or rows % shards or rows < 1:
            raise ValueError(
                f"a batch of {rows} sequences in {shards} shards, of which {shard}: they must divide it evenly"
            )
        if not len(self.splits[split]):
            raise ValueError(
                f"{name} has no {split} sequences of {self.length} tokens; prepare more, or shorten data.length"
            )


def widths(config: AnyData, stack: Stack) -> tuple[int, int | None]:
    """Tokens of a sequence of the batches, and of an encoder-decoder's source, known without the data."""
    if isinstance(config, TaskData):
        rows = TaskRows(config, stack, 0, valid=False)
        return rows.width, rows.source_width
    return config.length, config.source_length if isinstance(config, PairsData) else None


def open_data(config: AnyData, *, stack: Stack, seed: int) -> Data:
    """The data of a recipe. Which targets there are follows from the model's stack."""
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed {seed}: a number from 0 to {2**32 - 1}")
    if isinstance(config, TaskData | TaskSetData):
        words: dict[str, Rows] = {
            split: TaskSetRows(config, stack, seed, valid=split == "valid")
            if isinstance(config, TaskSetData)
            else TaskRows(config, stack, seed, valid=split == "valid")
            for split in ("train", "valid")
        }
        fingerprint = hashlib.sha256(f"{config.model_dump_json()} {stack}".encode()).hexdigest()
        special: dict[str, int | None] = {"start": START, "end": END, "mask": MASK}
        return Data(
            words,
            length=config.length,
            seed=seed,
            vocabulary=config.vocabulary,
            fingerprint=fingerprint,
            special=special,
            positions=config.positions,
        )
    if isinstance(config, MixtureData):
        return _mixture(config, stack, seed)
    folder = located(config.path)
    if isinstance(folder, Remote):
        raise ValueError(f"data.path {folder}: training reads from a disk of this machine; copy the directory there")
    about = describe(folder)
    if about["kind"] != config.kind:
        raise ValueError(f"{folder} holds {about['kind']}, data.kind is {config.kind}; write data.kind={about['kind']}")
    wanted = {"text": ("decoder", "encoder"), "pairs": ("encoder-decoder",)}[config.kind]
    if stack not in wanted:
        raise ValueError(f"data.kind {config.kind} is for stack {' or '.join(wanted)}, the model's is {stack}")
    special = about["special"]
    splits = {split: _rows(config, folder, split, about) for split in ("train", "valid")}
    masking = _masking(folder, about) if stack == "encoder" else None
    return Data(
        splits,
        length=config.length,
        seed=seed,
        vocabulary=int(about["vocabulary"]),
        fingerprint=str(about["fingerprint"]),
        special=special,
        masking=masking,
        folder=folder,
        positions=None if isinstance(config, PairsData) else config.positions,
    )


def _mixture(config: MixtureData, stack: Stack, seed: int) -> Data:
    texts, weights = config.texts(), [part.weight for part in config.of]
    parts = [open_data(text, stack=stack, seed=seed) for text in texts]
    for text in texts[1:]:
        _check_same_tokens(Path(texts[0].path), Path(text.path))
        _check_same_split(Path(texts[0].path), Path(text.path))
    for text, part in zip(texts, parts, strict=True):
        part.need("train", 1, 0, 1, text.path)
    splits: dict[str, Rows] = {}
    for split in ("train", "valid"):
        there = [(part.splits[split], weight) for part, weight in zip(parts, weights, strict=True) if part.rows(split)]
        rows, shares = [each for each, _ in there], [weight for _, weight in there]
        splits[split] = MixedRows(rows, shares, once=split == "valid") if there else parts[0].splits[split]
    about = describe(texts[0].path)
    return Data(
        splits,
        length=config.length,
        seed=seed,
        vocabulary=parts[0].vocabulary,
        fingerprint=hashlib.sha256(" ".join(part.fingerprint for part in parts).encode()).hexdigest(),
        special=about["special"],
        masking=_masking(Path(texts[0].path), about) if stack == "encoder" else None,
        folder=Path(texts[0].path),
        others=[Path(text.path) for text in texts[1:]],
        positions=config.positions,
    )


def _check_same_tokens(first: Path, other: Path) -> None:
    """Ids of two data sets mean the same, or they cannot be mixed."""
    one, two = describe(first), describe(other)
    if all(one[key] == two[key] for key in ("tokenizer", "special")):
        return
    from tokenizers import Tokenizer

    words = [Tokenizer.from_file(str(folder / "tokenizer.json")) for folder in (first, other)]
    names = ([each.id_to_token(n) for each in words] for n in range(max(one["vocabulary"], two["vocabulary"])))
    differ = next((f"token {n} is {a!r} and {b!r}" for n, (a, b) in enumerate(names) if a != b), None)
    if differ is None and one["special"] != two["special"]:
        differ = f"the tokens around a text are {one['special']} and {two['special']}"
    if differ is not None:
        command = f"ropewalk data prepare INPUT... --tokenizer {first / 'tokenizer.json'} --out {other}-again"
        raise ValueError(f"{first} and {other} cannot be mixed: {differ}. Prepare the second with: {command}")


def _check_same_split(first: Path, other: Path) -> None:
    """A text that both have is for evaluation in both, or the mixture trains on what it is measured with."""
    # The share that was asked for is another where a set has few documents; data of before says only that.
    one, two = (float(about.get("threshold", about["asked"]["valid"])) for about in map(describe, (first, other)))
    if one == two:
        return
    less, more = (first, other) if one < two else (other, first)
    command = f"--valid-fraction {max(one, two)} --tokenizer {more / 'tokenizer.json'} --out {less}-again"
    raise ValueError(
        f"{first} and {other} cannot be mixed: the first holds out {one} of its texts for evaluation and the second "
        f"{two}, and a text in both would be trained on and measured with. Prepare {less} with: "
        f"ropewalk data prepare INPUT... {command}"
    )


def _rows(config: TextData | PairsData, folder: Path, split: str, about: dict[str, Any]) -> Rows:
    end = int(about["special"]["end"])
    if isinstance(config, PairsData):
        source, target = (Documents(folder, split, stream, about) for stream in ("source", "target"))
        return PairRows(source, target, config, end)
    made = StreamRows if config.packing == "stream" else DocumentRows
    documents = Documents(folder, split, "tokens", about)
    rows = made(documents, config, end)
    if config.long is None or split != "train":
        return rows
    long = LongDocuments(documents, config.long.at_least)
    if not long.documents:
        raise ValueError(
            f"data.long.at_least={config.long.at_least}: no document of {folder} has so many tokens; give a smaller "
            "number, or leave data.long out"
        )
    more = made(long, config, end)
    if not len(more):
        raise ValueError(
            f"data.long.at_least={config.long.at_least}: the documents of {folder} that have so many tokens have "
            f"{long.tokens} together and fill no sequence of data.length={config.length}; give a smaller number, or "
            "leave data.long out"
        )
    return Repeated(rows, more, config.long.times)


def _counted(folder: Path, sizes: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Bytes of the validation text that is asked for: by its tokens, and as they were read."""
    about = describe(folder)
    stream = STREAMS[about["kind"]][-1]
    text = Documents(folder, "valid", stream, about)

    def count() -> np.ndarray[Any, Any]:
        parts = (text.span(start, min(start + BLOCK, text.tokens)) for start in range(0, text.tokens, BLOCK))
        return np.array([sum(int(sizes[part].sum(dtype=np.int64)) for part in parts)])

    found = indexed(text, f"{stream}-bytes", lambda found: found.shape == (1,), count)
    return int(found[0]), int(about["splits"]["valid"]["streams"][stream]["bytes"])


def _masking(folder: Path, about: dict[str, Any]) -> Masking:
    special = about["special"]
    if special.get("mask") is None:
        raise ValueError(
            f"{folder}: its tokenizer has no mask token, an encoder needs one; prepare it with --mask-token TOKEN"
        )
    return Masking(int(about["vocabulary"]), special["mask"], frozenset(v for v in special.values() if v is not None))


class _Change:
    """What is drawn for each sequence: masks and positions."""

    def __init__(self, masking: Masking | None, positions: AnySkips | None) -> None:
        self.masking, self.positions = masking, positions

    def __call__(self, row: Row, rng: np.random.Generator) -> Row:
        row = row if self.masking is None else self.masking(row, rng)
        return row if self.positions is None else skipped(row, self.positions, rng)


def _ordered(rows: Rows, split: str, seed: int, change: _Change) -> grain.MapDataset[Row]:
    """Sequences in the order they are read, without end: the place in it is the whole state."""
    if isinstance(rows, MixedRows):
        # Each set has an order of its own, also where two are of one size.
        orders = [_ordered(part, split, (seed + n * STRIDE) % 2**32, change) for n, part in enumerate(rows.parts)]
        return _grain().MapDataset.source(Mixed(orders, rows))
    if len(rows) > MOST_ROWS:
        enough = -(-rows.width * len(rows) // MOST_ROWS)
        raise ValueError(
            f"data.length {rows.width} gives {len(rows):,} {split} sequences, {MOST_ROWS:,} is the most that can be "
            f"shuffled; write data.length={enough} or more"
        )
    found = _grain().MapDataset.source(rows).seed(seed)
    # Validation too, in one order for every seed: the first sequences may be all of one document.
    found = found.shuffle() if split == "train" else found.shuffle(seed=0)
    change = change if split == "train" else _Change(change.masking, measured_at(change.positions))
    found = found.random_map(change) if change.masking or change.positions else found
    # Each epoch of training has its own order and masks; an evaluation is the same every time.
    return found.repeat(reseed_each_epoch=split == "train") if len(rows) else found


def _grain() -> Any:
    """Grain says at import that jax has no profiler here, which is nothing to anybody."""
    from absl import logging

    logging.get_absl_logger().addFilter(_not_about_jax)
    import grain

    return grain


def _not_about_jax(record: Any) -> bool:
    return "jax profiler" not in record.getMessage()
