"""Near copies of texts, such as other editions: they share most runs of words with one of those that are known."""

from __future__ import annotations

import re
from collections import Counter

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Thai, Lao, Burmese, Khmer, kana and Han."""
WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
WORDS = 8
"""Of a shingle: so many in a row are seldom the same by chance."""
ALIKE = 0.5
"""Share of the shingles of the shorter of two texts from which on they are taken for one text."""


class Copies:
    """Texts that others may be near copies of."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.where: dict[int, list[int]] = {}

    def add(self, text: str) -> None:
        for shingle in (every := _shingles(text)):
            self.where.setdefault(shingle, []).append(len(self.sizes))
        self.sizes.append(len(every))

    def has(self, text: str) -> bool:
        """Whether it shares more than `ALIKE` of its shingles, or of the other's, with one of these."""
        every = _shingles(text)
        shared = Counter(number for shingle in every for number in self.where.get(shingle, ()))
        return any(count > ALIKE * min(len(every), self.sizes[number]) for number, count in shared.items())


def _shingles(text: str) -> set[int]:
    """Hashes of every `WORDS` words in a row; of a text of fewer, of all of them. In a script without spaces a
    character is a word: a whole clause as one would differ by any slip in it."""
    words = WORD.findall(text.lower())
    return {hash(tuple(words[start : start + WORDS])) for start in range(max(1, len(words) - WORDS + 1))}
