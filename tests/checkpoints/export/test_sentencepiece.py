"""SentencePiece BPE from a tokenizer.json: scores that give the same merges, or none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from transformers.convert_slow_tokenizer import generate_merges

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.export.sentencepiece import pieces
from ropewalk.checkpoints.tokens.gguf import LONGEST_PIECE
from tests.checkpoints.tokens.test_tokenizer import SPACE, made, sentencepiece, spelled

TEXTS = ("abcd", "a a  a   a    a", "dcba abab cdcd", "a\u4f60</s>a<tool>a", "ab" * 9 + SPACE * 7)
RUNS = [SPACE * length for length in (4, 3, 8, 5)]


def keys(**changes: Any) -> dict[str, Any]:
    """With runs of spaces that share a score, as Llama's."""
    known = sentencepiece()
    tokens, types, scores = (known[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type", "scores"))
    scores = [-1e9 if token == SPACE * 2 else score for token, score in zip(tokens, scores, strict=True)]
    more = {"tokens": [*tokens, *RUNS], "token_type": [*types, *[1] * 4], "scores": [*scores, *[-1e9] * 4]}
    return sentencepiece(**more, **changes)


def converted(known: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """GGUF's keys, by way of a tokenizer.json whose merges transformers has made of the scores."""
    data = json.loads(made(known).inner.to_str())
    tokens, types, scores = (known[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type", "scores"))
    scored = {token: score for token, score, kind in zip(tokens, scores, types, strict=True) if kind == 1}
    data["model"]["merges"] = generate_merges(data["model"]["vocab"], scored)
    data["model"] |= changes.pop("model", {})
    data |= changes
    found = pieces(data, tokens, [3 if kind == 2 else 1 if kind == 6 else kind for kind in types], "tokenizer.json")
    return {f"tokenizer.ggml.{name}": value for name, value in found.items()}


@pytest.mark.parametrize("prefix", [True, False])
def test_the_same_tokens(prefix: bool) -> None:
    source = keys(add_space_prefix=prefix)
    written = converted(source)
    assert written["tokenizer.ggml.token_type"] == source["tokenizer.ggml.token_type"]
    one, two = made(source), made(written)
    for text in TEXTS:
        assert spelled(two, text) == spelled(one, text)


def test_scores_are_in_the_order_of_the_source_and_equal_where_those_are() -> None:
    source, written = (known["tokenizer.ggml.scores"] for known in (keys(), converted(keys())))
    merged = [number for number, token in enumerate(keys()["tokenizer.ggml.tokens"]) if token in (
        "ab", "bc", "cd", f"{SPACE}a", "abcd", SPACE * 2, *RUNS
    )]  # fmt: skip
    for one in merged:
        for two in merged:
            assert (source[one] < source[two]) == (written[one] < written[two])


@pytest.mark.parametrize(("scheme", "prefix"), [("first", True), ("always", True), ("never", False)])
def test_spaces_as_newer_tokenizers_treat_them(scheme: str, prefix: bool) -> None:
    step = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": False}
    assert converted(keys(), normalizer=None, pre_tokenizer=step)["tokenizer.ggml.add_space_prefix"] == prefix


def merges() -> list[list[str]]:
    return [["b", "c"], ["c", "d"], [SPACE, "a"], ["ab", "cd"], ["a", "b"]]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"model": {"merges": [*merges(), [SPACE, SPACE]][1:]}},
            "model.merges: 'b c' is missing: no scores give these",
        ),
        ({"normalizer": {"type": "Lowercase"}}, "normalizer: treats spaces as no GGUF file can say"),
        ({"normalizer": None}, "normalizer: treats spaces as no GGUF file can say"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "normalizer: treats spaces as no GGUF file can say"),
    ],
)
def test_what_no_scores_give_is_refused(changes: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        converted(sentencepiece(), **changes)


def test_merges_of_one_token_that_are_apart_are_refused() -> None:
    """abc is made of a and bc before ab and c are joined, and of ab and c after: one score cannot say both."""
    tokens = ["<unk>", "<s>", "</s>", SPACE, "a", "b", "c", "ab", "bc", "abc"]
    known = sentencepiece(tokens=tokens, token_type=[2, 3, 3, *[1] * 7], scores=[0.0] * 7 + [-2.0, -1.0, -3.0])
    apart = [["b", "c"], ["a", "bc"], ["a", "b"], ["ab", "c"]]
    with pytest.raises(BadInput, match="those of 'abc' are not together: no scores give these"):
        converted(known, model={"merges": apart})
    converted(known, model={"merges": [["b", "c"], ["a", "b"], ["ab", "c"], ["a", "bc"]]})


def test_long_tokens_are_refused_before_they_are_halved() -> None:
    data = json.loads(made(sentencepiece()).inner.to_str())
    tokens = [*data["model"]["vocab"], "a" * (LONGEST_PIECE + 1)]
    with pytest.raises(BadInput, match=f"a token of {LONGEST_PIECE + 1} characters, {LONGEST_PIECE} is the most"):
        pieces(data, tokens, [1] * len(tokens), "tokenizer.json")
