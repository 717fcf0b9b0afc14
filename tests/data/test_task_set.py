"""Several tasks in one data set: every answer against plain Python, no question on both sides, a token a task."""

from __future__ import annotations

import numpy as np
import pytest

from ropewalk.data.batch import IGNORE
from ropewalk.data.config import TASKS, TaskSetData
from ropewalk.data.open import open_data
from ropewalk.data.task_set import TaskSetRows
from ropewalk.data.tasks import END, FIRST, MARK, SEPARATOR
from ropewalk.positions import PAD


def oracle(task: str, asked: list[int]) -> list[int]:
    if task == "copy":
        return asked
    if task == "sort":
        return sorted(asked)
    if task == "parity":
        return [FIRST + (asked.count(FIRST + 1) & 1)]
    if task == "recall":
        cut = len(asked) - 1 - asked[::-1].index(MARK)
        known = dict(zip(asked[:cut:2], asked[1:cut:2], strict=True))
        return [known[key] for key in asked[cut + 1 :]]
    middle = len(asked) // 2
    assert asked[middle] == MARK
    a, b = (int("".join(str(n - FIRST) for n in reversed(part))) for part in (asked[:middle], asked[middle + 1 :]))
    return [FIRST + int(digit) for digit in reversed(f"{a + b:0{middle + 1}d}")]


@pytest.mark.parametrize("task", TASKS)
def test_answers_are_right_at_every_size(task: str) -> None:
    rows = TaskSetRows(TaskSetData(longest=6), "decoder", 0, valid=True)
    rng = np.random.default_rng(0)
    for size in (1, 2, 6, 40):
        for _ in range(20):
            drawn = rows.sample(task, size, rng)
            assert drawn.answer.tolist() == oracle(task, drawn.question.tolist())


def test_a_sample_says_its_task_and_asks_for_the_answer_alone() -> None:
    config = TaskSetData(of=("copy", "parity"), longest=6)
    rows = TaskSetRows(config, "decoder", 3, valid=False)
    seen = set()
    for number in range(60):
        row = rows[number]
        for segment in range(row.side.segment.max() + 1):
            where = row.side.segment == segment
            tokens, target = row.side.tokens[where].tolist(), row.target[where]
            task = TASKS[tokens[0] - (config.vocabulary - len(TASKS))]
            middle = tokens.index(SEPARATOR)
            asked, answer = tokens[1:middle], tokens[middle + 1 :]
            assert answer == oracle(task, asked)
            assert target[target != IGNORE].tolist() == [*answer, END]
            assert row.side.index[where].tolist() == list(range(len(tokens)))
            seen.add((task, len(asked)))
    assert {task for task, _ in seen} == {"copy", "parity"}
    assert {size for task, size in seen if task == "copy"} == set(range(1, 7))


def test_a_sequence_is_filled_with_samples_of_every_size() -> None:
    rows = TaskSetRows(TaskSetData(of=("copy",), longest=20, length=512), "decoder", 0, valid=False)
    segments = [rows[number].side.segment for number in range(40)]
    sizes = [int(count) // 2 - 1 for one in segments for count in np.bincount(one[one != PAD])]
    assert len(sizes) / 40 > 20
    assert max(np.count_nonzero(one == PAD) for one in segments) < 42  # the longest sample has as many tokens
    # None is rarer than half of its share: of some 22 samples of a sequence one is left out.
    assert min(np.bincount(sizes, minlength=21)[1:]) > len(sizes) / 20 / 2


def test_no_long_question_is_in_training_and_in_evaluation() -> None:
    config = TaskSetData(of=("copy",), longest=4, vocabulary=32)
    sides = [
        {
            tuple(rows[n].side.tokens[rows[n].side.segment == 0].tolist())
            for n in range(400)
            if (rows[n].side.segment == 0).sum() > 7
        }
        for rows in (TaskSetRows(config, "decoder", 0, valid=valid) for valid in (False, True))
    ]
    assert min(map(len, sides)) > 50
    assert not sides[0] & sides[1]


def test_batches_depend_on_seed_and_number_alone() -> None:
    config = TaskSetData(longest=5)
    one, two = (open_data(config, stack="decoder", seed=7) for _ in range(2))
    assert (one.batch("train", 3, rows=4).tokens == two.batch("train", 3, rows=4).tokens).all()
    other = open_data(config, stack="decoder", seed=8)
    assert (one.batch("train", 3, rows=4).tokens != other.batch("train", 3, rows=4).tokens).any()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"write 64, or leave length out"):
        TaskSetData(longest=20, length=63)
    with pytest.raises(ValueError, match="is for stack decoder"):
        open_data(TaskSetData(), stack="encoder", seed=0)
    rows = TaskSetRows(TaskSetData(vocabulary=32), "decoder", 0, valid=False)
    with pytest.raises(ValueError, match="recall of 30 keys and 22 symbols"):
        rows.sample("recall", 30, np.random.default_rng(0))
