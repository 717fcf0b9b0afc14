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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from ropewalk.data.batch import Batch, Row, collate
from ropewalk.data.config import AnyData, PairsData, TaskData, TextData
from ropewalk.data.layout import describe
from ropewalk.data.masking import Masking
from ropewalk.data.pairs import PairRows
from ropewalk.data.stored import Documents
from ropewalk.data.tasks import END, MASK, START, TaskRows
from ropewalk.data.texts import DocumentRows, StreamRows
from ropewalk.data.urls import Remote, located

if TYPE_CHECKING:
    import grain

Stack = Literal["decoder", "encoder", "encoder-decoder"]
Split = Literal["train", "valid"]
MOST_ROWS = 2**32 - 1
"""Grain shuffles 32-bit numbers."""
MOST_READ = 2**53
"""Sequences of a run: past it Grain's count of batches, a float, is not exact, and of single sequences overflows."""
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
    """length: tokens of a sequence, of the longer side of a task. token_bytes: bytes of text that each id stands for;
    None where ids are no text."""

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
    ) -> None:
        self.splits, self.seed, self.vocabulary, self.fingerprint = splits, seed, vocabulary, fingerprint
        self.length = length
        self.source_length: int | None = getattr(splits["train"], "source_width", None)
        self.start, self.end, self.mask = (special.get(name) for name in ("start", "end", "mask"))
        self.tokenizer = folder / "tokenizer.json" if folder else None
        self.token_bytes = np.load(folder / "token_bytes.npy", allow_pickle=False) if folder else None
        self._ordered: dict[str, Any] = {split: _ordered(rows, split, seed, masking) for split, rows in splits.items()}

    def rows(self, split: Split) -> int:
        """How many distinct sequences there are."""
        return len(self.splits[split])

    def batch(self, split: Split, number: int, *, rows: int, shard: int = 0, shards: int = 1) -> Batch:
        """Batch `number` of `rows` sequences, of which a shard has every `shards`-th."""
        self._ready(split, rows, shard, shards)
        ordered = self._ordered[split]
        return self._collate(split, [ordered[number * rows + row] for row in range(shard, rows, shards)])

    def batches(
        self, split: Split, *, rows: int, shard: int = 0, shards: int = 1, start: int = 0, workers: int = 0
    ) -> Iterator[Batch]:
        """Batches from number `start` on, without end; `workers` threads make them before they are asked for."""
        self._ready(split, rows, shard, shards)
        part = self._ordered[split][start * rows + shard : MOST_READ : shards]
        batched = part.batch(rows // shards, batch_fn=partial(self._collate, split))
        options = _grain().ReadOptions(num_threads=workers, prefetch_buffer_size=max(AHEAD, workers) if workers else 0)
        return iter(batched.to_iter_dataset(options))

    def _collate(self, split: str, rows: Sequence[Row]) -> Batch:
        made = self.splits[split]
        return collate(rows, plain=made.plain, limit=made.width, source_limit=self.source_length)

    def _ready(self, split: str, rows: int, shard: int, shards: int) -> None:
        if not 0 <= shard < shards or rows % shards or rows < 1:
            raise ValueError(
                f"a batch of {rows} sequences in {shards} shards, of which {shard}: they must divide it evenly"
            )
        if not len(self.splits[split]):
            raise ValueError(
                f"the data has no {split} sequences of {self.length} tokens; prepare more, or shorten data.length"
            )


def open_data(config: AnyData, *, stack: Stack, seed: int) -> Data:
    """The data of a recipe. Which targets there are follows from the model's stack."""
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed {seed}: a number from 0 to {2**32 - 1}")
    if isinstance(config, TaskData):
        words = {split: TaskRows(config, stack, seed, valid=split == "valid") for split in ("train", "valid")}
        fingerprint = hashlib.sha256(f"{config.model_dump_json()} {stack}".encode()).hexdigest()
        special: dict[str, int | None] = {"start": START, "end": END, "mask": MASK}
        return Data(
            {**words},
            length=config.length,
            seed=seed,
            vocabulary=config.vocabulary,
            fingerprint=fingerprint,
            special=special,
        )
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
    )


def _rows(config: TextData | PairsData, folder: Path, split: str, about: dict[str, Any]) -> Rows:
    end = int(about["special"]["end"])
    if isinstance(config, PairsData):
        source, target = (Documents(folder, split, stream, about) for stream in ("source", "target"))
        return PairRows(source, target, config, end)
    documents = Documents(folder, split, "tokens", about)
    return (StreamRows if config.packing == "stream" else DocumentRows)(documents, config, end)


def _masking(folder: Path, about: dict[str, Any]) -> Masking:
    special = about["special"]
    if special.get("mask") is None:
        raise ValueError(
            f"{folder}: its tokenizer has no mask token, an encoder needs one; prepare it with --mask-token TOKEN"
        )
    return Masking(int(about["vocabulary"]), special["mask"], frozenset(v for v in special.values() if v is not None))


def _ordered(rows: Rows, split: str, seed: int, masking: Masking | None) -> grain.MapDataset[Row]:
    """Sequences in the order they are read, without end: the place in it is the whole state."""
    if len(rows) > MOST_ROWS:
        enough = -(-rows.width * len(rows) // MOST_ROWS)
        raise ValueError(
            f"data.length {rows.width} gives {len(rows):,} {split} sequences, {MOST_ROWS:,} is the most that can be "
            f"shuffled; write data.length={enough} or more"
        )
    found = _grain().MapDataset.source(rows).seed(seed)
    found = found.shuffle() if split == "train" else found
    found = found.random_map(masking) if masking else found
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
