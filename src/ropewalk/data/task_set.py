"""Several tasks for one decoder: the first token of a sample says which.

    copy       7 3 9          -> 7 3 9
    addition   7 2 + 5 1      -> 2 4 0         the lowest digit first, as carries go: 27 + 15 = 42
    sort       9 3 7          -> 3 7 9
    recall     a 3 b 9 c 4 = b c  -> 9 4       values of some of the keys, each key once
    parity     1 0 1 1        -> 1             whether the ones are odd

    task question separator answer -> the answer and end

The size of a sample is the number of symbols, of digits of a summand, or of pairs. Training has sizes up to `longest`;
`sample` makes any size, so that a model can be asked for more than it was trained on. A question is for evaluation or
for training by its hash; sizes with few questions have them in both.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ropewalk.data.batch import IGNORE, Ints, Row, filled, side
from ropewalk.data.config import TASKS, TaskSetData
from ropewalk.data.tasks import DIGITS, END, FIRST, MARK, SEPARATOR, Question, for_evaluation

ASKED = 4
"""Keys that recall asks for, or all where there are fewer."""
SHARE = 3
"""One question in so many is for evaluation: a question that is not wanted is drawn again."""
OF_DIGITS = ("addition", "parity")
"""Tasks whose questions are the same with any vocabulary; those of others are drawn from all its symbols."""
DRAWS = 200
"""After which a question may be of the other side: of one bit there are only two."""


class TaskSetRows:
    """Rows of training or of evaluation, each a function of the seed and its number."""

    plain = False

    def __init__(self, config: TaskSetData, stack: str, seed: int, *, valid: bool) -> None:
        if stack != "decoder":
            raise ValueError(f"data.kind tasks is for stack decoder, the model's is {stack}")
        self.config, self.seed, self.valid, self.width = config, seed, valid, config.length

    def __len__(self) -> int:
        return self.config.valid_samples if self.valid else self.config.samples

    def __getitem__(self, number: int) -> Row:
        """As many samples as fit, each a document of its own; the first that does not is left out."""
        rng = np.random.default_rng([self.seed, number, int(self.valid)])
        told: list[tuple[Ints, Ints]] = []
        room = self.width
        while True:
            task = self.config.of[int(rng.integers(len(self.config.of)))]
            one = self.told(task, self.sample(task, int(rng.integers(1, self.config.longest + 1)), rng))
            room -= len(one[0])
            if room < 0:
                break
            told.append(one)
        tokens, targets = zip(*told, strict=True)
        return Row(number, side(tokens, self.width, END), filled(targets, self.width))

    def sample(self, task: str, size: int, rng: np.random.Generator) -> Question:
        symbols = self.config.vocabulary - len(TASKS) - FIRST
        drawn = MAKE[task](size, symbols, rng)
        for _ in range(DRAWS):
            if for_evaluation(drawn.question, SHARE) == self.valid:
                break
            drawn = MAKE[task](size, symbols, rng)
        return drawn

    def told(self, task: str, drawn: Question) -> tuple[Ints, Ints]:
        """The tokens that are read and what is asked at each of them."""
        first = self.config.vocabulary - len(TASKS) + TASKS.index(task)
        quiet = np.full(len(drawn.question) + 1, IGNORE)
        tokens = np.concatenate([[first], drawn.question, [SEPARATOR], drawn.answer])
        return tokens, np.concatenate([quiet, drawn.answer, [END]])


def _copy(size: int, symbols: int, rng: np.random.Generator) -> Question:
    drawn = rng.integers(FIRST, FIRST + symbols, size=size)
    return Question(drawn, drawn)


def _addition(size: int, symbols: int, rng: np.random.Generator) -> Question:
    a, b = rng.integers(DIGITS, size=(2, size))
    total, carry = [], 0
    for one, other in zip(a.tolist(), b.tolist(), strict=True):
        carry, digit = divmod(one + other + carry, DIGITS)
        total.append(digit)
    return Question(np.concatenate([a + FIRST, [MARK], b + FIRST]), np.array([*total, carry]) + FIRST)


def _sort(size: int, symbols: int, rng: np.random.Generator) -> Question:
    drawn = rng.integers(FIRST, FIRST + symbols, size=size)
    return Question(drawn, np.sort(drawn))


def _recall(size: int, symbols: int, rng: np.random.Generator) -> Question:
    free = np.delete(np.arange(FIRST, FIRST + symbols), MARK - FIRST)
    if size > len(free):
        raise ValueError(f"recall of {size} keys and {len(free)} symbols for them; write a greater data.vocabulary")
    keys, values = rng.choice(free, size, replace=False), rng.choice(free, size)
    asked = rng.choice(size, min(ASKED, size), replace=False)
    pairs = np.stack([keys, values], 1).reshape(-1)
    return Question(np.concatenate([pairs, [MARK], keys[asked]]), values[asked])


def _parity(size: int, symbols: int, rng: np.random.Generator) -> Question:
    bits = rng.integers(2, size=size)
    return Question(bits + FIRST, np.array([bits.sum() % 2]) + FIRST)


MAKE: dict[str, Callable[[int, int, np.random.Generator], Question]] = {
    "copy": _copy, "addition": _addition, "sort": _sort, "recall": _recall, "parity": _parity,
}  # fmt: skip
