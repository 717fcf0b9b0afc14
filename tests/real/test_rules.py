"""Every rule that cuts text into words, against llama.cpp, with a vocabulary in which every cut shows.

Its merges are learned from whole lines, so that tokens run across words, digits and line ends wherever no cut forbids.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unicodedata import category

import gguf
import numpy as np
import pytest
import transformers
from tokenizers import Tokenizer as Inner
from tokenizers import models, pre_tokenizers, trainers

from ropewalk.checkpoints.tokens.gguf import WORDS
from ropewalk.checkpoints.tokens.tokenizer import of
from tests.real.conftest import Tokenize
from tests.real.lines import SPECIAL, lines

pytestmark = pytest.mark.real

WIDTH = 32
LINES = [*lines(), *SPECIAL]

CASED = ("tekken", "gpt-4o", "llama4", "minimax-m2")
"""Rules that tell capital letters from small ones. llama.cpp writes them with a-z and A-Z and without marks, so that it
cuts text of other letters differently from the tokenizers these rules stand for."""


@pytest.fixture(scope="module")
def vocabulary() -> tuple[list[str], list[str]]:
    inner = Inner(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=6000, initial_alphabet=alphabet, show_progress=False)
    inner.train_from_iterator([*LINES, *(line for n in range(4000) for line in digits(n))], trainer)
    model = json.loads(inner.to_str())["model"]
    return [*sorted(model["vocab"], key=model["vocab"].get), "<|begin|>", "<|finish|>"], [
        " ".join(merge) for merge in model["merges"]
    ]


def digits(n: int) -> list[str]:
    return [f" {n * 7919} {n}'s {n}'S\n\n{n}.5"]


def write(path: Path, pre: str, tokens: list[str], merges: list[str]) -> None:
    """The smallest Llama that llama.cpp opens."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 2) + [3, 3])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(len(tokens) - 2)
    writer.add_eos_token_id(len(tokens) - 1)
    parts = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    shapes: dict[str, Any] = {f"blk.0.{part}": (WIDTH, WIDTH) for part in parts} | {"token_embd": (len(tokens), WIDTH)}
    for name, shape in (shapes | dict.fromkeys(("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"), (WIDTH,))).items():
        writer.add_tensor(f"{name}.weight", np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("pre", WORDS)
def test_ids_are_those_of_llama_cpp(
    pre: str, vocabulary: tuple[list[str], list[str]], tmp_path: Path, llama_cpp: Callable[[Path], Tokenize]
) -> None:
    path = tmp_path / "rule.gguf"
    write(path, pre, *vocabulary)
    ours, theirs = of(path), llama_cpp(path)
    first = next(name for name, words in WORDS.items() if words == WORDS[pre]) == pre  # its other names need less
    texts = [text for text in LINES[:: 1 if first else 8] if pre not in CASED or not outside(text)]
    assert [text for text in texts if ours.encode(text, special=False) != theirs(text, False)] == []
    assert ours.encode("Hello") == theirs("Hello", True)


@pytest.mark.parametrize("pre", CASED)
def test_ids_are_those_of_transformers(pre: str, vocabulary: tuple[list[str], list[str]], tmp_path: Path) -> None:
    write(tmp_path / "rule.gguf", pre, *vocabulary)
    ours = of(tmp_path / "rule.gguf")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file="rule.gguf")
    assert len([text for text in LINES if outside(text)]) > 100
    # transformers takes <|endoftext|> for a special token whatever the file says.
    texts = [text for text in LINES if text not in SPECIAL]
    assert [text for text in texts if ours.encode(text, special=False) != theirs.encode(text)] == []


def outside(text: str) -> bool:
    return any(category(c)[0] == "M" or (c > "\x7f" and category(c) in ("Lu", "Lt")) for c in text)


def test_the_vocabulary_tells_rules_apart(vocabulary: tuple[list[str], list[str]], tmp_path: Path) -> None:
    """Rules that differ in words give other ids to some line; else the test above would show nothing."""
    found = {}
    for pre in {words: pre for pre, words in WORDS.items()}.values():
        write(tmp_path / pre, pre, *vocabulary)
        tokenizer = of(tmp_path / pre)
        found[pre] = str([tokenizer.encode(text) for text in LINES])
    assert len(set(found.values())) == len(found)
