"""What is said of a config has its Chinese: everything that the resolver notes, and what a longer context takes."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ropewalk
from ropewalk.checkpoints.architectures.table import ANYWHERE, TABLE
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.inspect.report import inspect
from ropewalk.checkpoints.resolve.leftovers import MEANT
from ropewalk.checkpoints.resolve.rope import _NO_MEANING
from ropewalk.report import checkpoint_page
from ropewalk.report.engine_words import LONGEST, _sentences, both, told
from tests.checkpoints import published
from tests.report.reading import shown

RESOLVE = Path(ropewalk.__file__).parent / "checkpoints" / "resolve"


def english_alone(sentences: set[str]) -> set[str]:
    return {one for one in sentences if "zh" not in told(one)}


def filled(node: ast.expr) -> Iterator[str]:
    """The sentences that an expression makes, with 7 for every value."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "7" for part in parts)
        case ast.GeneratorExp(elt=each):
            yield from filled(each)


def test_every_note_of_the_resolver_has_its_chinese() -> None:
    """In its source: no config has to be found for each."""
    said: set[str] = set()
    for file in RESOLVE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("notes.append", "notes.extend"):
                said.update(*map(filled, node.args))
    assert len(said) > 35
    in_tables = {
        "7 7 is ignored here: 7",
        "7.7 is ignored: 7",
        "transformers has no 7: what it is comes from 7",
        "the rotated features of a head come after its still ones7",
    }
    assert english_alone(said) == in_tables
    reasons = {*ANYWHERE.values(), *(each for row in TABLE.values() for each in row.inert.values())}
    said = {f"seven 7 is ignored here: {reason}" for reason in reasons}
    said |= {f"seven.7 is ignored: {reason}" for reason in _NO_MEANING.values()}
    said |= {row.refusal for row in TABLE.values() if row.refusal is not None}
    said |= {f"transformers has no 7: what it is comes from {row.code}" for row in TABLE.values() if row.code}
    said |= {f"True {meaning}; check what the weights are for" for meaning in MEANT.values()}
    assert english_alone(said) == set()


@pytest.mark.parametrize("part", range(4))
def test_published_configs_are_told_in_chinese(part: int) -> None:
    said: set[str] = set()
    for name in [name for name, plan in published.plans().items() if not plan.startswith("error:")][part::4]:
        path = published.path(name)
        found = inspect(path)
        resolved, plan = found.resolved, found.resolved.plan
        said |= {*resolved.notes, *filter(None, [resolved.refusal]), *resolved.not_understood.values()}
        length = plan.trained or plan.stated or plan.extended or plan.table or 1024
        for to in {length, 4 * length, plan.longest or length, 100}:
            try:
                reach = inspect(path, to=to).reach
            except BadInput:
                continue  # more than a table holds
            assert reach is not None
            overrides = [each for one in reach.stretches for each in one.overrides]
            said |= {*reach.words, *(note for each in overrides for note in each.notes)}
            said |= {each.why or "" for each in overrides if each.text is None}
    assert len(said) > 30
    assert english_alone(said) == set()


def test_no_sentence_stands_twice() -> None:
    each = [pattern.pattern for pattern, _ in _sentences()]
    nameless = [re.sub(r"\?P<\w+>", "", one) for one in each]
    assert sorted({*nameless}) == sorted(nameless)


def test_a_part_without_chinese_leaves_the_whole_in_english() -> None:
    assert told("it has no flag for linear")["zh"] == "它没有用于 linear 的命令行选项"
    assert told("it turns to the moon") == {"en": "it turns to the moon"}
    assert both("it turns to the moon")["zh"] == "it turns to the moon"
    assert told("qwen has a mixture of experts and chunked attention")["zh"] == "qwen 的结构包含混合专家、分块注意力"
    assert "zh" not in told("qwen has a mixture of experts and wings")


def test_a_hostile_config_costs_little() -> None:
    """Its keys and values stand in the sentences."""
    assert "zh" not in told("x" * LONGEST + " reads no such key")
    nested = "it " * (LONGEST // 4) + "has no flag for linear"
    assert "zh" not in told(nested), "as deep as a sentence goes, and no deeper"
    began = time.monotonic()
    for words in (" has  , : raise it too.", " has ", " is ignored here: ", " and "):
        told((words * LONGEST)[: LONGEST - 1] + "!")
    assert time.monotonic() - began < 5


def test_the_page_of_a_checkpoint_is_chinese_throughout() -> None:
    text = shown(checkpoint_page.page(inspect(published.path("qwen3-30b-a3b"), to=131_072)), "zh-CN")
    assert "ropewalk 能检查它" in text
    assert "qwen3_moe 的结构包含混合专家" in text
    assert "40,960 是配置写明的长度" in text
    assert "transformers 4 与 5" in text
    for english in ("does not load", "is what the config states", "is ignored", "it has no"):
        assert english not in text
