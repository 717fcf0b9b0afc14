"""Three sets of documents that share none: to search on, to select on, and to judge on.

The best of many candidates looks too good on the documents that chose it, so those that judge have chosen nothing.
Which documents stand where is decided by a rule before anything is measured, from their text alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ropewalk.evaluate.battery import FAR_TOKENS
from ropewalk.evaluate.documents import Document, cut, far_places, texts
from ropewalk.extend.copies import Copies

RULE = (
    "documents of at least {longest:,} tokens{far}, no near copies, in the order of the SHA-256 of their text: the "
    "first {search} to search, the next {select} to select, {judge} of the others to judge"
)
FAR = " whose last {tail:,} repeat at least {least} pairs of tokens last seen more than {near:,} tokens back"
LEAST = 2
"""Documents of a set: the foreign text of each is taken from another."""

SEARCH, SELECT = 1, 2
"""Seeds of the needles in these documents."""


@dataclass(frozen=True)
class Sets:
    search: list[Document]
    select: list[Document]
    judge: list[Document]
    rule: str
    number: int = 0
    """Which draw the documents to judge on are."""
    left_out: dict[str, int] = field(default_factory=dict)
    """How many of the documents before the last one taken do not follow the rule, by the reason."""

    @property
    def seed(self) -> int:
        """Of the needles in the documents to judge on: other keys, values and depths than chose, and than in any other
        draw."""
        return SELECT + 1 + self.number

    def to_dict(self) -> dict[str, Any]:
        each = {"search": self.search, "select": self.select, "judge": self.judge}
        return {name: [{"name": one.name, "sha256": one.digest} for one in found] for name, found in each.items()}


def draw(
    paths: Sequence[Path],
    encode: Callable[[str], Sequence[int]],
    *,
    longest: int,
    near: int,
    tail: int,
    judge: int,
    number: int = 0,
) -> Sets:
    """near: tokens from the end past which text is far; judge: documents of that set, of which the others have a
    quarter. number: 0 for the first documents that may judge, 1 for those after them, and so on."""
    if judge < LEAST:
        raise ValueError(f"{judge} documents to judge on are too few; give at least {LEAST}")
    quarter = max(LEAST, judge // 4)
    wanted = 2 * quarter + judge * (number + 1)
    far = FAR.format(tail=tail, least=FAR_TOKENS, near=near)
    found: list[Document] = []
    known, exactly = Copies(), set[bytes]()
    short, near_only, copies = f"fewer than {longest:,} tokens", "an end that repeats nothing far", "near copies"
    left_out = dict.fromkeys((short, near_only, copies), 0)
    for name, text in _ordered(paths):
        document = cut(name, text, encode, longest)
        if document is None:
            left_out[short] += 1
            continue
        if len(far_places(document.tokens, tail, near)) < FAR_TOKENS:
            left_out[near_only] += 1
            continue
        # Two editions of a text, or two that differ past what is read, are one document.
        if (tokens := document.tokens.tobytes()) in exactly or known.has(read := document.read_of(text)):
            left_out[copies] += 1
            continue
        exactly.add(tokens)
        known.add(read)
        found.append(document)
        if len(found) == wanted:
            break
    rule = RULE.format(longest=longest, far=far, search=quarter, select=quarter, judge=judge)
    if len(found) < wanted:
        raise ValueError(
            f"{len(found)} documents will do and {wanted} are needed (left out: {counts(left_out) or 'none'}); "
            f"the rule: {rule}. Give more texts, or fewer documents to judge on (now {judge})"
        )
    start = 2 * quarter + judge * number
    return Sets(found[:quarter], found[quarter : 2 * quarter], found[start:wanted], rule, number, left_out)


def counts(left_out: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in left_out.items() if count)


def _ordered(paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Each text once, by its digest, which has nothing to do with what the text says."""
    known: dict[str, tuple[str, str]] = {}
    for name, text in texts(paths):
        known.setdefault(hashlib.sha256(text.encode()).hexdigest(), (name, text))
    for digest in sorted(known):
        yield known[digest]
