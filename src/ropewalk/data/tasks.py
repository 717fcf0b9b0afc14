"""Tasks that need no files: a sample is a function of the seed, its number and whether it is for training.

    copy      7 3 9 -> 7 3 9            reverse   7 3 9 -> 9 3 7
    addition  2 7 + 1 5 -> 4 2          passkey   . . . key 4 0 1 9 7 . . . -> 4 0 1 9 7, `.` any symbols

    decoder           start question separator answer -> the answer and end
    encoder           start question separator mask mask mask -> the answer
    encoder-decoder   question end; start answer -> answer end

A question is for evaluation or for training by its hash, so no question of one is met in the other.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

from ropewalk.data.batch import IGNORE, Ints, Row, filled, side
from ropewalk.data.config import TaskData

START, END, MASK, SEPARATOR, FIRST = 0, 1, 2, 3, 4
"""Ids; symbols are FIRST and up, the first ten of them being digits."""
DIGITS = 10
MARK = FIRST + DIGITS
"""The sign `+` of addition, the sign before the key of passkey."""
KEY = 5
SHARE = 16
"""One question in so many is for evaluation."""
MOST_DRAWS = 10_000


class Question(NamedTuple):
    question: Ints
    answer: Ints


class TaskRows:
    def __init__(self, config: TaskData, stack: str, seed: int, *, valid: bool) -> None:
        self.config, self.stack, self.seed, self.valid = config, stack, seed, valid
        self.longest = self._longest()
        self.shortest = self.longest if config.shortest is None else config.shortest
        needed = {"copy": FIRST + 1, "reverse": FIRST + 1, "addition": MARK + 1, "passkey": MARK + 2}[config.task]
        if config.vocabulary < needed:
            raise ValueError(f"data.vocabulary {config.vocabulary}: {config.task} needs {needed} ids or more")
        if not 1 <= self.shortest <= self.longest:
            least = "data.length" if config.shortest is None else f"data.shortest {config.shortest} or data.length"
            raise ValueError(
                f"{least} {config.length}: a sequence has room for {max(self.longest, 0)} symbols of {config.task}; "
                "give a greater data.length"
            )
        question, answer = (len(part) for part in self._draw(self.longest, np.random.default_rng(0)))
        apart = stack == "encoder-decoder"
        self.width = answer + 1 if apart else config.length
        self.source_width = question + 1 if apart else None
        used = answer + 1 if apart else 2 + question + answer
        self.plain = self.shortest == self.longest and used == self.width

    def __len__(self) -> int:
        return self.config.valid_samples if self.valid else self.config.samples

    def __getitem__(self, number: int) -> Row:
        question, answer = self.sample(number)
        if self.source_width is not None:
            source = side([np.append(question, END)], self.source_width, END)
            target = filled([np.append(answer, END)], self.width)
            return Row(number, side([np.insert(answer, 0, START)], self.width, END), target, source)
        shown = answer if self.stack == "decoder" else np.full_like(answer, MASK)
        read = np.concatenate([[START], question, [SEPARATOR], shown])
        quiet = np.full(len(question) + 1, IGNORE)
        # A decoder is asked at the separator for the answer's first token; an encoder at the token itself.
        asked = [quiet, answer, [END]] if self.stack == "decoder" else [[IGNORE], quiet, answer]
        return Row(number, side([read], self.width, END), filled([np.concatenate(asked)], self.width))

    def sample(self, number: int) -> Question:
        rng = np.random.default_rng([self.seed, number, int(self.valid)])
        for _ in range(MOST_DRAWS):
            drawn = self._draw(int(rng.integers(self.shortest, self.longest + 1)), rng)
            if for_evaluation(drawn.question) == self.valid:
                return drawn
        raise ValueError(f"data: {self.config.task} of {self.longest} symbols has too few questions; raise data.length")

    def _draw(self, size: int, rng: np.random.Generator) -> Question:
        symbols = rng.integers(FIRST, self.config.vocabulary, size=size)
        match self.config.task:
            case "copy":
                return Question(symbols, symbols)
            case "reverse":
                return Question(symbols, symbols[::-1])
            case "addition":
                a, b = rng.integers(DIGITS, size=(2, size))
                return Question(np.concatenate([a + FIRST, [MARK], b + FIRST]), _sum(a, b) + FIRST)
            case "passkey":
                hay = rng.integers(MARK + 1, self.config.vocabulary, size=size)
                key, place = rng.integers(FIRST, FIRST + DIGITS, size=KEY), int(rng.integers(size + 1))
                return Question(np.concatenate([hay[:place], [MARK], key, hay[place:]]), key)

    def _longest(self) -> int:
        """Symbols of a question that fills a row: digits of a summand, straw of a haystack."""
        room = self.config.length - (1 if self.stack == "encoder-decoder" else 2)
        match self.config.task, self.stack == "encoder-decoder":
            case (("copy" | "reverse"), apart):
                return room if apart else room // 2
            case "addition", apart:
                return (room - 1) // 2 if apart else (room - 2) // 3
            case _, apart:
                return room - 1 - (KEY if apart else 2 * KEY)


def _sum(a: Ints, b: Ints) -> Ints:
    """Digits of a + b, one more than they have, the most significant first."""
    out, carry = np.zeros(len(a) + 1, np.int64), 0
    for place in range(len(a) - 1, -1, -1):
        carry, out[place + 1] = divmod(int(a[place] + b[place]) + carry, DIGITS)
    out[0] = carry
    return out


def for_evaluation(question: Ints, share: int = SHARE) -> bool:
    """Whether a question is for evaluation and never for training."""
    return hashlib.blake2b(question.astype(np.int64).tobytes(), digest_size=8).digest()[0] % share == 0
