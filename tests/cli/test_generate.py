"""`ropewalk generate`: the text, the batch, the JSON, and what it refuses, with small random models."""

from __future__ import annotations

import importlib
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

from ropewalk.checkpoints.tokens.tokenizer import of
from ropewalk.cli import generate as command
from tests.cli.conftest import Ropewalk

GREEDY = ("--temperature", "0", "--max-tokens", "12")


def theirs(checkpoint: Path, prompt: str, count: int = 12) -> list[int]:
    """What transformers says, always the likeliest."""
    ids = torch.tensor([of(checkpoint).encode(prompt)])
    model = transformers.LlamaForCausalLM.from_pretrained(checkpoint)
    out = model.generate(ids, max_new_tokens=count, do_sample=False, pad_token_id=0)
    return out[0, ids.shape[1] :].tolist()


def test_one_prompt(ropewalk: Ropewalk, checkpoint: Path) -> None:
    answer = ropewalk("generate", str(checkpoint), "--prompt", "The sea is", *GREEDY)
    assert (answer.code, answer.stderr) == (0, "")
    assert answer.stdout == of(checkpoint).decode(theirs(checkpoint, "The sea is")) + "\n"


def test_json(ropewalk: Ropewalk, checkpoint: Path) -> None:
    answer = ropewalk("generate", str(checkpoint), "--prompt", "\u4f60", "--prompt", "The sky", *GREEDY, "--json")
    first, second = answer.data
    tokens = theirs(checkpoint, "\u4f60")
    assert answer.code == 0
    assert (first["prompt"], first["prompt_tokens"], first["tokens"]) == ("\u4f60", 3, tokens)
    assert first["text"] == of(checkpoint).decode(tokens)
    assert (first["positions"], second["positions"]) == (15, 19)
    assert second["seed"] == first["seed"] + 1
    assert first["stop"] == second["stop"] == "max tokens"
    assert second["tokens"] == theirs(checkpoint, "The sky")


def test_a_batch_is_printed_below_its_prompts(ropewalk: Ropewalk, checkpoint: Path) -> None:
    said = [of(checkpoint).decode(theirs(checkpoint, prompt)) for prompt in ("The  sea\n", "The sky")]
    asked = ("generate", str(checkpoint), "--prompt", "The  sea\n", "--prompt", "The sky", *GREEDY)
    assert ropewalk(*asked).stdout == f"[1] The sea\n{said[0]}\n\n[2] The sky\n{said[1]}\n"
    assert ropewalk(*asked, "--quiet").stdout == f"{said[0]}\n\n{said[1]}\n"


def test_a_seed_says_it_again(ropewalk: Ropewalk, checkpoint: Path) -> None:
    asked = ("generate", str(checkpoint), "--prompt", "ab", "--max-tokens", "8", "--temperature", "1.5", "--json")
    (drawn,) = ropewalk(*asked).data
    seed = str(drawn["seed"])
    assert ropewalk(*asked, "--seed", seed).data == [drawn]
    two = ropewalk(*asked, "--prompt", "ab", "--seed", seed).data
    assert (two[0], two[0]["tokens"] != two[1]["tokens"]) == (drawn, True)
    (narrow,) = ropewalk(*asked, "--top-k", "1", "--top-p", "0.9", "--min-p", "0.1").data
    assert narrow["tokens"] == theirs(checkpoint, "ab", 8)


def test_files(ropewalk: Ropewalk, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.txt").write_text("The sea\n", encoding="utf-8")
    monkeypatch.setattr(command.sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"The sky")))
    asked = ("--prompt", "x", "--file", "a.txt", *GREEDY, "--json")
    assert [row["prompt"] for row in ropewalk("generate", str(checkpoint), *asked).data] == ["x", "The sea\n"]
    Path("bad.txt").write_bytes(b"ok\xff")
    answer = ropewalk("generate", str(checkpoint), "--file", "bad.txt")
    assert (answer.code, answer.stderr) == (3, "Error: bad.txt: byte 2 is not UTF-8; a prompt is text\n")
    assert command._read("-") == "The sky"


def test_a_stop_token_ends_it(ropewalk: Ropewalk, checkpoint: Path, tmp_path: Path) -> None:
    """The second token the model would say is made the one that ends a text."""
    tokens = theirs(checkpoint, "The sea is")
    stop = next(n for n in range(1, 12) if tokens[n] not in tokens[:n])
    copy = copied(checkpoint, tmp_path / "copy")
    (copy / "generation_config.json").write_text(json.dumps({"eos_token_id": [256, tokens[stop]]}), encoding="utf-8")
    (row,) = ropewalk("generate", str(copy), "--prompt", "The sea is", *GREEDY, "--json").data
    assert (row["tokens"], row["stop"]) == (tokens[: stop + 1], "stop token")


def test_ctrl_c_keeps_what_there_is(ropewalk: Ropewalk, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("ropewalk.models.generate")  # the package has a function of that name
    real = module.generate

    def interrupted(*args: Any, **options: Any) -> Any:
        for number, step in enumerate(real(*args, **options)):
            if number == 3:
                raise KeyboardInterrupt
            yield step

    monkeypatch.setattr(module, "generate", interrupted)
    tokens = theirs(checkpoint, "The sea is")[:3]
    asked = ("generate", str(checkpoint), "--prompt", "The sea is", *GREEDY)
    answer = ropewalk(*asked)
    assert (answer.code, answer.stdout) == (130, of(checkpoint).decode(tokens) + "\n")
    answer = ropewalk(*asked, "--json")
    assert (answer.code, answer.data[0]["tokens"], answer.data[0]["stop"]) == (130, tokens, "interrupted")


def test_an_encoder_decoder_answers(ropewalk: Ropewalk, checkpoint: Path, tmp_path: Path) -> None:
    config = transformers.T5Config(
        vocab_size=257,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        eos_token_id=256,
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    model.save_pretrained(tmp_path / "t5")
    (tmp_path / "t5" / "tokenizer.json").write_bytes((checkpoint / "tokenizer.json").read_bytes())
    (row,) = ropewalk("generate", str(tmp_path / "t5"), "--prompt", "The sea is", *GREEDY, "--json").data
    ids = torch.tensor([of(checkpoint).encode("The sea is")])
    said = model.generate(ids, max_new_tokens=12, do_sample=False)[0, 1:].tolist()
    assert (row["tokens"], row["positions"], row["prompt_tokens"]) == (said, len(said) + 1, 10)


class TestRefusals:
    def test_no_prompt(self, ropewalk: Ropewalk, checkpoint: Path) -> None:
        answer = ropewalk("generate", str(checkpoint))
        assert answer.code == 2
        assert "--prompt TEXT or --file PATH" in answer.stderr

    def test_an_encoder(self, ropewalk: Ropewalk, checkpoint: Path, tmp_path: Path) -> None:
        config = transformers.BertConfig(
            vocab_size=257, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
        )
        transformers.BertModel(config).save_pretrained(tmp_path / "bert")
        answer = ropewalk("generate", str(tmp_path / "bert"), "--prompt", "a")
        assert answer.code == 3
        assert "is an encoder, which does not generate text" in answer.stderr

    def test_no_tokenizer(self, ropewalk: Ropewalk, checkpoint: Path, tmp_path: Path) -> None:
        copy = copied(checkpoint, tmp_path / "copy")
        (copy / "tokenizer.json").unlink()
        answer = ropewalk("generate", str(copy), "--prompt", "a")
        assert (answer.code, "tokenizer.json: is missing" in answer.stderr) == (3, True)

    def test_nothing_there(self, ropewalk: Ropewalk) -> None:
        answer = ropewalk("generate", "nowhere", "--prompt", "a")
        assert (answer.code, "nowhere" in answer.stderr) == (3, True)

    @pytest.mark.parametrize(
        ("options", "code", "says"),
        [
            (("--temperature", "-1"), 2, "temperature"),
            (("--max-tokens", "0"), 2, "max-tokens"),
            (("--dtype", "int8"), 2, "dtype"),
            (("--top-p", "1.5"), 3, "top_p=1.5 is not a share in"),
        ],
    )
    def test_options(
        self, ropewalk: Ropewalk, checkpoint: Path, options: tuple[str, ...], code: int, says: str
    ) -> None:
        answer = ropewalk("generate", str(checkpoint), "--prompt", "a", *options)
        assert answer.code == code
        assert says in answer.stderr


def test_a_length_the_model_was_not_made_for(ropewalk: Ropewalk, checkpoint: Path) -> None:
    answer = ropewalk("generate", str(checkpoint), "--prompt", "a" * 120, *GREEDY)
    assert (answer.code, answer.stderr) == (
        0,
        "up to 132 positions, but the model was trained for 128: quality may degrade beyond that\n",
    )


def test_a_terminal_is_not_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a\x1b[2J\u4f60\x9b\n\tb\r"
    assert command._safe(text) == text
    monkeypatch.setattr(command.sys, "stdout", SimpleNamespace(isatty=lambda: True))
    assert command._safe(text) == "a\\x1b[2J\u4f60\\x9b\n\tb\\x0d"


def copied(checkpoint: Path, to: Path) -> Path:
    to.mkdir()
    for file in checkpoint.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    return to
