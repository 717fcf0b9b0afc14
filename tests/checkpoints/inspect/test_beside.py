"""A tokenizer cuts texts off at a length of its own and says nothing: what is extended must not keep the old one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from ropewalk.checkpoints.inspect.report import inspect
from ropewalk.extend.write import write
from ropewalk.scaling import YaRN

TEMPLATE = '{# "model_max_length": 7, "truncation": {"max_length": 7} — 你好 #}{{ messages }}'


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Of 256 tokens, and every file says so."""
    path = tmp_path / "source"
    config = transformers.LlamaConfig(
        vocab_size=320, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=256,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    words = {"[UNK]": 0, "a": 1, '"truncation": {"max_length": 7}': 2, "max_length": 3, "truncation": 4}
    inner = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    inner.pre_tokenizer = Whitespace()
    inner.enable_truncation(256, stride=3)
    inner.save(str(path / "tokenizer.json"))
    said = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 256, "chat_template": TEMPLATE}
    (path / "tokenizer_config.json").write_text(json.dumps(said, indent=1), encoding="utf-8")
    (path / "sentence_bert_config.json").write_text('{"max_seq_length": 256, "do_lower_case": false}')
    (path / "generation_config.json").write_text('{"max_length":256}')
    return path


def test_no_file_keeps_the_old_length(source: Path, tmp_path: Path) -> None:
    text = "a " * 500
    before = transformers.AutoTokenizer.from_pretrained(source)
    assert len(before(text, truncation=True).input_ids) == 256
    assert len(Tokenizer.from_file(str(source / "tokenizer.json")).encode(text)) == 256
    out = tmp_path / "out"
    done = write(source, out, YaRN(factor=2, trained=256), 512)
    after = transformers.AutoTokenizer.from_pretrained(out)
    assert after.model_max_length == 512
    assert len(after(text, truncation=True).input_ids) == 500
    assert len(Tokenizer.from_file(str(out / "tokenizer.json")).encode(text)) == 500
    assert transformers.GenerationConfig.from_pretrained(out).max_length == 512
    assert done.raised == (
        "max_length in generation_config.json from 256 to 512",
        "max_seq_length in sentence_bert_config.json from 256 to 512",
        "truncation.max_length in tokenizer.json from 256 to 512",
        "model_max_length in tokenizer_config.json from 256 to 512",
    )
    for name in ("tokenizer.json", "tokenizer_config.json", "sentence_bert_config.json", "generation_config.json"):
        # The one number, and not a byte besides: neither in the template nor in the vocabulary.
        old, new = ((path / name).read_bytes() for path in (source, out))
        assert new == old.replace(b"256", b"512")


def test_who_pastes_a_scaling_is_told_what_else_to_raise(source: Path) -> None:
    said = inspect(source, to=512).reach
    assert said is not None
    assert [one for one in said.words if "raise it too" in one] == [
        "tokenizer_config.json has model_max_length 256, where transformers cuts texts off with truncation=True: raise "
        "it too.",
        "tokenizer.json has truncation.max_length 256, where the tokenizers library cuts every text off: raise it too.",
        "sentence_bert_config.json has max_seq_length 256, where sentence-transformers cuts texts off, and past which "
        "vLLM refuses them: raise it too.",
        "generation_config.json has max_length 256, where transformers ends generation, with the prompt counted: raise "
        "it too.",
    ]
    (source / "tokenizer_config.json").write_text('{"model_max_length": 128}')
    within = inspect(source, to=256).reach  # the model reads it, and its tokenizer does not
    assert within is not None
    assert [one for one in within.words if "raise it too" in one] == [
        "tokenizer_config.json has model_max_length 128, where transformers cuts texts off with truncation=True: raise "
        "it too.",
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tokenizer_config.json", '{"model_max_length": 1000000000000000019884624838656}'),
        ("tokenizer_config.json", '{"model_max_length": 1e+30}'),
        ("tokenizer_config.json", '{"model_max_length": 1024}'),
        ("generation_config.json", '{"max_length": 20}'),
        ("sentence_bert_config.json", '{"max_seq_length": null}'),
    ],
)
def test_what_cuts_nothing_off_stays(source: Path, tmp_path: Path, name: str, text: str) -> None:
    """A short end of generation is a choice, not the model's length."""
    (source / name).write_text(text)
    done = write(source, tmp_path / "out", YaRN(factor=2, trained=256), 512)
    assert (tmp_path / "out" / name).read_text() == text
    assert not any(name in one for one in done.raised)
    assert len(done.raised) == 3
