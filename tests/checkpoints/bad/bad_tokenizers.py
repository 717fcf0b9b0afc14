"""Vocabularies, chat templates and model cards that are wrong by hand, in GGUF files and in directories."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import gguf

from tests.checkpoints.bad.bad_files import TOKENIZER, Case, Content, Late, Link
from tests.checkpoints.file_bytes import Raw, array, floats
from tests.checkpoints.valid_files import GGUF_KEYS, WORDS, gguf_model, spoken

LETTERS = [chr(97 + n) for n in range(26)]


def numbers(kind: int, values: list[int]) -> Raw:
    return array(kind, len(values), b"".join(value.to_bytes(4, "little") for value in values))


def pieces(tokens: list[str], types: list[int] | None = None) -> dict[str, Any]:
    """SentencePiece's keys."""
    every = ["<unk>", "<s>", "</s>", *LETTERS, *tokens]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": every,
        "tokenizer.ggml.scores": array(6, len(every), floats(*[0.0] * len(every))),
        "tokenizer.ggml.token_type": numbers(5, [2, 3, 3, *(types or [1] * (len(every) - 3))]),
    }


def long_pieces() -> list[str]:
    rng = random.Random(1)
    return [f"{number:06}" + "".join(rng.choices("abc", k=250)) for number in range(8000)]


def in_gguf() -> Iterator[tuple[str, str, dict[str, Any]]]:
    yield "pieces", "valid", pieces(["ab", "cd", "abcd"])
    yield "8,000 pieces of 256 characters", "valid", pieces(long_pieces())
    yield "a user's token of 60,000 characters", "valid", pieces(["a" * 60_000], [*[1] * 26, 4])
    for length in (257, 60_000, 160_000, 1_600_000):
        yield f"a piece of {length:,} characters", "bad", pieces(["a" * length])
    yield "no scores", "bad", {**pieces(["ab"]), "tokenizer.ggml.scores": None}
    yield "too few scores", "bad", {**pieces(["ab"]), "tokenizer.ggml.scores": array(6, 1, floats(0.0))}
    changes: dict[str, list[Any]] = {
        "model": [None, 3, "bert", "x" * 5000],
        "pre": [None, "nobody", True],
        "tokens": [None, [], ["a"] * 40, 7, array(4, 1, b"\0" * 4)],
        "merges": [None, ["a z"], ["a"], [" "], ["ab" * 30_000], 1.0],
        "token_type": [array(5, 1, b"\1\0\0\0"), "x"],
        "bos_token_id": [40, True, "a"],
        "eos_token_id": [1 << 31, 0.5],
        "add_bos_token": [1, "yes"],
    }
    for name, values in changes.items():
        for number, value in enumerate(values):
            yield f"{name} {number}", "bad", {f"tokenizer.ggml.{name}": value}
    for key in ("tokenizer.chat_template", "tokenizer.chat_template.x", "tokenizer.ggml.unknown_token_id"):
        yield f"{key} is a list", "bad", {key: ["x"]}
    yield "padding past the end", "bad", {"tokenizer.ggml.padding_token_id": 4000}


def in_directories() -> Iterator[tuple[str, str, dict[str, Content]]]:
    for number, data in enumerate((b"", b"{}", b"[]", b'{"model": 1}', b"\xff", b"[" * 100_000, b'{"version": "1.0"}')):
        yield f"tokenizer.json {number}", "bad", {"tokenizer.json": data}
    for words in ([], 3, {"add_bos_token": 1}, {"chat_template": 3}, {"chat_template": [1]}, {"add_eos_token": "yes"}):
        yield f"tokenizer_config.json {words}", "bad", {"tokenizer_config.json": json.dumps(words).encode()}
    yield "eos of half a token", "bad", {"generation_config.json": b'{"eos_token_id": 0.5}'}
    yield "a template that is not text", "bad", {"chat_template.jinja": b"\xff\xfe"}
    yield "a template from elsewhere", "bad", {"chat_template.jinja": Link("../outside")}
    yield "a card from elsewhere", "bad", {"README.md": Link("/etc/passwd")}
    yield "a card that is not text", "bad", {"README.md": b"\xff\xfe"}
    yield "a card of 8 MB", "bad", {"README.md": Late(lambda: b"---\nlicense: x\n" + b"- x\n" * 2_000_000)}
    yield "a card of brackets", "valid", {"README.md": b"---\nlicense: " + b"[" * 60_000 + b"\n---\n"}
    yield "a card of keys", "valid", {"README.md": b"---\n" + b"a: b\n" * 100_000 + b"---\n"}
    yield "a template that never ends", "valid", {"chat_template.jinja": b"{% for x in range(10**12) %}{% endfor %}"}
    words = {**WORDS, "chat_template": "{{ ''.__class__.__mro__ }}"}
    yield "a template that climbs", "valid", {"tokenizer_config.json": json.dumps(words).encode()}


def cases() -> Iterator[Case]:
    for name, expected, changes in in_gguf():
        keys = tuple((key, value) for key, value in (dict(GGUF_KEYS) | changes).items() if value is not None)
        content = gguf_model(gguf.GGMLQuantizationType.F32, keys)
        yield Case(f"tokenizer: {name}", {"a.gguf": content}, expected, "a.gguf", TOKENIZER)  # pyrefly: ignore
    for name, expected, changes in in_directories():
        yield Case(f"tokenizer: {name}", {**spoken(), **changes}, expected, "", TOKENIZER)  # pyrefly: ignore
