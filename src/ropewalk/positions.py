"""Where each token sits, as integers. Nothing in ropewalk reads a position off a length, an offset or a tensor's index.

Three integers for each token, because three questions are asked of it: encodings read `index`, causality and windows
read `order`, visibility reads `segment`. Image tokens may share an index and still have an order; packed documents may
share both and are kept apart by their segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ropewalk.torch_private import assert_in_graph, can_assert, watched, writes

PAD = -1
"""The segment of a place without a token."""

FARTHEST = 2**40
"""No index reaches it: the bound of the exactness promise, and the `limit` of positions that declare none."""


class Positions(NamedTuple):
    """The tokens of a batch and where they are. `limit` is a host integer that no index reaches: fixed for a run or a
    generation, never per step, so that what depends on it (dynamic scalings, learned tables) never changes mid-way.

    Indices are compared with it by `of`, and so by `encoding.at`, once a pass, where they can be read without waiting:
    on a CPU, and not while a graph is traced. On other devices and in graphs the limit is the caller's word.
    """

    index: Tensor  # (B, L) int64, or (B, L, A) on A axes: what encodings read
    order: Tensor  # (B, L) int64: reading order, what causality and windows read
    segment: Tensor  # (B, L) int64: document number, PAD where there is no token
    limit: int
    known: Known | None = None

    def __repr__(self) -> str:
        known = known_range(self.index)
        index = "" if known is None else f", index {known[0]:,} to {known[1]:,}"
        limit = "no limit" if self.limit == FARTHEST else f"limit {self.limit:,}"
        return f"Positions({' x '.join(map(str, self.index.shape))}{index}, {limit})"

    @property
    def shape(self) -> torch.Size:
        return self.order.shape

    @property
    def axes(self) -> int | None:
        return self.index.shape[2] if self.index.ndim == 3 else None

    def take(self, where: Tensor | slice) -> Positions:
        """The tokens at these places of the sequence, for every row: a shard, a chunk, a shuffle."""
        return Positions(self.index[:, where], self.order[:, where], self.segment[:, where], self.limit)

    def rows(self, where: Tensor | slice) -> Positions:
        some = Positions(self.index[where], self.order[where], self.segment[where], self.limit)
        return some.know(plain=True) if self.is_plain else some

    def join(self, other: Positions) -> Positions:
        """Both, one after the other: cached keys and new ones."""
        if self.limit != other.limit:
            raise ValueError(
                f"positions with limits {self.limit} and {other.limit} cannot be joined: one generation, one limit"
            )
        pairs = zip(self[:3], other[:3], strict=True)
        index, order, segment = (torch.cat(pair, dim=1) for pair in pairs)
        return Positions(index, order, segment, self.limit)

    def expanded(self, batch: int) -> Positions:
        """The same for every row, where one row's positions stand for all."""
        index, order, segment = (part.expand(batch, *part.shape[1:]) for part in self[:3])
        return Positions(index, order, segment, self.limit)

    def to(self, device: torch.device | str) -> Positions:
        with _counting_writes():
            moved = Positions(self.index.to(device), self.order.to(device), self.segment.to(device), self.limit)
        return moved.know(plain=True) if self.is_plain else moved

    def know(self, *, plain: bool = False, whole: Positions | None = None) -> Positions:
        """The same positions, with what the host knows of them and no kernel has to find out. Whatever is taken out of
        them, joined to them or edited is other tensors, of which nothing is known."""
        versions = None if torch.compiler.is_compiling() else writes(*self[:3])
        countable = versions is not None or torch.compiler.is_compiling()
        return Positions(*self[:4], Known(self, versions, plain, whole) if countable else None)

    @property
    def is_plain(self) -> bool:
        """Known to be one unpadded document in each sequence, in order: attention needs no mask for them."""
        return self.known is not None and self.known.plain and self.known.speaks_of(self)

    @property
    def whole(self) -> Positions | None:
        """The positions of all ranks, in the order their keys are gathered in, where these are known to be a part."""
        return self.known.whole if self.known is not None and self.known.speaks_of(self) else None


class Known:
    """A fact about three tensors, which holds while they are the same tensors with nothing written to them.

    A plain class: were it a tuple, whatever maps a function over positions would look into it.
    """

    __slots__ = ("index", "order", "plain", "segment", "versions", "whole")

    def __init__(self, at: Positions, versions: list[int] | None, plain: bool, whole: Positions | None) -> None:
        self.index, self.order, self.segment = at.index, at.order, at.segment
        self.versions, self.plain, self.whole = versions, plain, whole

    def speaks_of(self, at: Positions) -> bool:
        if self.index is not at.index or self.order is not at.order or self.segment is not at.segment:
            return False
        # A compiler cannot see earlier writes; there `assert_known` looks at the numbers.
        return can_assert() if torch.compiler.is_compiling() else self.versions == writes(*at[:3])


def _counting_writes() -> AbstractContextManager[object]:
    return nullcontext() if torch.compiler.is_compiling() else torch.inference_mode(False)


def assert_known(at: Positions) -> None:
    """In a compiled graph: stops the run where positions that were called plain have been written to since."""
    if torch.compiler.is_compiling() and at.is_plain and not torch.compiler.is_exporting():
        one_document = (at.segment == at.segment[:, :1]) & (at.segment != PAD)
        plain = one_document.all() & (at.order.diff(dim=1) > 0).all()
        assert_in_graph(plain, "plain positions were edited in place; make new ones: at._replace(segment=...)")


Places: TypeAlias = Positions | Tensor | Sequence[int] | Sequence[Sequence[int]]
"""What is taken wherever positions are: themselves, or bare integers as `explicit` reads them."""


def explicit(index: Places, limit: int | None = None) -> Positions:
    """Positions from bare integers of shape (L), (B, L) or (B, L, A), read in that order as one document."""
    if isinstance(index, Positions):
        if limit is not None and limit != index.limit:
            raise ValueError(f"these positions already have limit {index.limit}; {limit} was given beside them")
        _check_range(index.index, index.limit)
        stale = index.known is not None and not torch.compiler.is_compiling() and not index.known.speaks_of(index)
        # Written to since: a block compiled later could not see that.
        return index._replace(known=None) if stale else index
    if not isinstance(index, Tensor):
        index = _tensor(index)
    if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
        raise ValueError(f"positions are integers, got {index.dtype}; a float cannot hold every position past 2**24")
    if index.ndim not in (1, 2, 3):
        raise ValueError(f"positions have shape (L), (B, L) or (B, L, axes), got {tuple(index.shape)}")
    index = index.long()
    if index.ndim == 1:
        index = index[None]
    # On several axes the numbers are places in space; the reading order is the order they are given in.
    order = index if index.ndim == 2 else torch.arange(index.shape[1], device=index.device).expand(index.shape[:2])
    limit = check_limit(FARTHEST if limit is None else limit)
    _check_range(index, limit)
    return Positions(index, order, torch.zeros_like(order), limit)


def _tensor(index: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
    try:
        found = torch.as_tensor(index)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"positions are integers, in a tensor or in lists of equal length ({error}); for texts of unequal lengths "
            "there is positions.padded([5, 3])"
        ) from None
    return found if found.numel() else found.long()


def plain(
    length: int, *, batch: int = 1, start: int = 0, limit: int | None = None, device: torch.device | str | None = None
) -> Positions:
    """`length` tokens from position `start`, the same in every row."""
    limit = _limit(limit, start + length)
    with _counting_writes():
        index = torch.arange(start, start + length, device=device).expand(batch, length)
        return Positions(index, index, torch.zeros_like(index), limit).know(plain=True)


def padded(
    lengths: Sequence[int],
    *,
    side: Literal["left", "right"] = "right",
    width: int | None = None,
    limit: int | None = None,
    device: torch.device | str | None = None,
) -> Positions:
    """One text a row, of these lengths, filled up to `width` on one side. Every text starts at position 0."""
    if side not in ("left", "right"):
        raise ValueError(f"side is 'left' or 'right', got {side!r}")
    longest = max(lengths, default=0)
    width = longest if width is None else width
    if width < longest:
        raise ValueError(f"a text of {longest} tokens does not fit a row of {width}; raise width or cut the text")
    count = torch.tensor(lengths, device=device)[:, None]  # (B, 1)
    index = torch.arange(width, device=device)[None] - (width - count if side == "left" else 0)
    segment = torch.where((index >= 0) & (index < count), 0, PAD)
    index = torch.where(segment == PAD, 0, index)
    return Positions(index, index, segment, _limit(limit, longest))


def masked(attention_mask: Tensor, *, limit: int | None = None) -> Positions:
    """One text a row from a (B, L) mask that is true, or 1, where there is a token, as tokenizers write it; padding may
    stand anywhere. Every text starts at position 0."""
    if attention_mask.ndim != 2 or attention_mask.is_floating_point():
        raise ValueError(
            f"an attention mask is (B, L) of 0 and 1, got {tuple(attention_mask.shape)} {attention_mask.dtype}. Which "
            "tokens see which follows from positions: packed([[5, 7]]) for documents, Rule(window=...) for windows"
        )
    token = attention_mask.bool()
    index = torch.where(token, token.cumsum(dim=1) - 1, 0)
    segment = torch.where(token, 0, PAD)
    longest = attention_mask.shape[1]
    return Positions(index, index, segment, _limit(limit, longest))


def packed(
    documents: Sequence[Sequence[int]],
    *,
    width: int | None = None,
    limit: int | None = None,
    device: torch.device | str | None = None,
) -> Positions:
    """Several documents a row, by their lengths, one after the other; each starts at 0 and sees only itself."""
    if any(isinstance(row, int) for row in documents):
        count = len(documents)
        raise ValueError(
            f"packed takes a list of lengths for each row, got {documents!r}; write packed([{documents!r}]) for one "
            f"row of {count} documents, padded({documents!r}) for {count} rows of one"
        )
    used = [sum(row) for row in documents]
    width = max(used, default=0) if width is None else width
    if max(used, default=0) > width:
        raise ValueError(f"documents of {max(used)} tokens do not fit a row of {width}; raise width or move one")
    index = torch.zeros(len(documents), width, dtype=torch.int64)
    segment = torch.full_like(index, PAD)
    for b, row in enumerate(documents):
        start = 0
        for number, length in enumerate(row):
            index[b, start : start + length] = torch.arange(length)
            segment[b, start : start + length] = number
            start += length
    longest = max((length for row in documents for length in row), default=0)
    index, segment = index.to(device), segment.to(device)
    return Positions(index, index, segment, _limit(limit, longest))


def grid(*shape: int, batch: int = 1, limit: int | None = None, device: torch.device | str | None = None) -> Positions:
    """The cells of a grid (height, width, ...) in row-major order, one axis for each side."""
    index = torch.cartesian_prod(*(torch.arange(side, device=device) for side in shape)).view(-1, len(shape))
    order = torch.arange(len(index), device=device).expand(batch, -1)
    limit = _limit(limit, max(shape))
    return Positions(index.expand(batch, *index.shape), order, torch.zeros_like(order), limit)


def interleaved(
    parts: Sequence[int | tuple[int, ...]],
    *,
    axes: int = 3,
    limit: int | None = None,
    device: torch.device | str | None = None,
) -> Positions:
    """One row of text and grids (M-RoPE): an int is that many text tokens, a tuple the grid (time, height, width).

    Text advances all axes together; a grid starts where the text stopped, and the text after it continues past the
    grid's largest index (arXiv:2409.12191, section 2.1).
    """
    pieces, start = [], 0
    for part in parts:
        if isinstance(part, int):
            piece = torch.arange(part)[:, None].expand(part, axes)
        else:
            if len(part) != axes:
                raise ValueError(f"the grid {part} has {len(part)} sides, the positions have {axes} axes")
            piece = grid(*part).index[0]
        pieces.append(piece + start)
        start = int(pieces[-1].max()) + 1 if len(piece) else start
    index = torch.cat(pieces).to(device)[None]
    order = torch.arange(index.shape[1], device=device)[None]
    return Positions(index, order, torch.zeros_like(order), _limit(limit, start))


def _limit(limit: int | None, needed: int) -> int:
    """The limit that was given, or the smallest there can be: 1 where there are no tokens."""
    return check_limit(max(needed, 1) if limit is None else limit, max(needed, 1))


def check_limit(limit: int, needed: int = 0) -> int:
    if not needed <= limit <= FARTHEST:
        raise ValueError(f"limit {limit} must lie between {needed}, past the last position here, and 2**40")
    return int(limit)


def known_range(index: Tensor) -> tuple[int, int] | None:
    """The smallest and the largest index; None where reading them would wait for a device or stop a trace."""
    if not index.is_cpu or watched(index) or not index.numel():
        return None
    if index.numel() == 1:
        return (only := int(index)), only
    return int(index.min()), int(index.max())


def _check_range(index: Tensor, limit: int) -> None:
    if (known := known_range(index)) is None:
        return
    smallest, largest = known
    if max(largest, -smallest) > FARTHEST:
        far = largest if largest > FARTHEST else smallest
        raise ValueError(f"position {far:,} is farther than 2**40, up to which angles are exact; number from the text")
    if largest >= limit and limit != FARTHEST:
        raise ValueError(
            f"position {largest:,} is not below the limit {limit:,} that these positions declare; "
            f"give limit={largest + 1} or more, one for the whole run or generation"
        )
