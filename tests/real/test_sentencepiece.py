"""TinyLlama's vocabulary out of its GGUF file, through a tokenizer.json as transformers makes it, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import transformers
from transformers.convert_slow_tokenizer import generate_merges

from ropewalk.checkpoints.export.convert import export
from ropewalk.checkpoints.files.gguf import GGUF
from ropewalk.checkpoints.tokens.tokenizer import of
from tests.real.conftest import Tokenize
from tests.real.fetch import model
from tests.real.lines import lines

pytestmark = [pytest.mark.real, pytest.mark.no_poison]


def test_llama_cpp_cuts_text_as_with_the_file_of_tinyllama(
    tmp_path: Path, llama_cpp: Callable[[Path], Tokenize]
) -> None:
    source = model("tinyllama")
    known, made = GGUF(source).metadata, of(source)
    tokens, scores, types = (known[f"tokenizer.ggml.{name}"] for name in ("tokens", "scores", "token_type"))
    data = json.loads(made.inner.to_str())
    scored = {token: score for token, score, kind in zip(tokens, scores, types, strict=True) if kind == 1}
    data["model"]["merges"] = generate_merges(data["model"]["vocab"], scored)
    small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.LlamaConfig(**small, vocab_size=len(tokens), bos_token_id=1, eos_token_id=2)
    directory = tmp_path / "small"
    transformers.LlamaForCausalLM(config).save_pretrained(directory)
    (directory / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    said = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "bos_token": "<s>", "eos_token": "</s>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(said), encoding="utf-8")
    proof = export(directory, tmp_path / "small.gguf", format="gguf")
    assert proof.tokenizer == "32,000 tokens, 5 sample texts tokenize identically"
    assert GGUF(tmp_path / "small.gguf").metadata["tokenizer.ggml.token_type"] == types
    texts = [*lines(), *(" " * spaces + "x" for spaces in range(40))]
    theirs = llama_cpp(tmp_path / "small.gguf")
    found = [theirs(text, True) for text in texts]
    asked = llama_cpp(source)
    assert found == [asked(text, True) for text in texts] == [made.encode(text) for text in texts]
