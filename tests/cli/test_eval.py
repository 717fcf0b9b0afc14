"""`ropewalk eval` as a command."""

from __future__ import annotations

import json
import math
import random
import string
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ropewalk.cli.main import app
from tests.checkpoints.small_models import make_gguf


def test_bits_per_byte_are_of_the_bytes_that_were_read(tmp_path: Path) -> None:
    """Of texts whose beginning has longer tokens than the rest."""
    file = make_gguf("llama", tmp_path)
    for n in range(2):
        (tmp_path / f"{n}.txt").write_text(str(n) + " the" * 200 + "xyzq" * 500, encoding="utf-8")
    texts = [part for n in range(2) for part in ("--text", str(tmp_path / f"{n}.txt"))]
    command = ["eval", str(file), *texts, "--lengths", "60,120", "--tail", "16", "--json"]
    done = CliRunner().invoke(app, [*command, "--store", str(tmp_path / "kept.jsonl")])
    assert done.exit_code == 0, done.output
    for one in json.loads(done.stdout)["perplexity"]:
        assert one["bits_per_byte"] == pytest.approx(one["nats"] * 119 / (1 + 119 * 4) / math.log(2))


def test_windows_slide_where_a_text_is_longer_than_one(tmp_path: Path) -> None:
    """Up to the trained length one window holds the whole text, and what slides nowhere was called sliding."""
    file = make_gguf("llama", tmp_path)
    for n in range(6):
        letters = "".join(random.Random(n).choices(string.ascii_letters, k=50))
        (tmp_path / f"{n}.txt").write_text(letters + " the" * 30 + 3 * letters, encoding="utf-8")
    texts = [part for n in range(6) for part in ("--text", str(tmp_path / f"{n}.txt"))]
    command = ["eval", str(file), *texts, "--tail", "16", "--store", str(tmp_path / "kept.jsonl")]
    done = CliRunner().invoke(app, [*command, "--lengths", "60,120", "--trained", "60"])
    assert done.exit_code == 0, done.output
    sliding = next(line for line in done.stdout.splitlines() if line.startswith("sliding"))
    assert sliding.split()[1:3] == ["60", "15"]
    assert sliding.split()[-1] == "4", "texts"
    done = CliRunner().invoke(app, [*command, "--lengths", "60,120", "--trained", "120"])
    assert "\nsliding" not in done.stdout
    assert "not measured: perplexity in sliding windows: documents are read up to 120 tokens" in done.stdout
    assert "losses and gains on 6 documents" in done.stdout


def test_a_text_that_llama_cpp_cannot_score_is_left_out_of_every_engine(tmp_path: Path) -> None:
    """Before anything is measured: its last tokens hold parts of a character."""
    pytest.importorskip("xllamacpp")
    file = make_gguf("llama", tmp_path)
    for n in range(3):
        end = "\u4e00" if n == 1 else "."
        (tmp_path / f"{n}.txt").write_text(str(n) + " the" * 100 + "xyzq" * 2 + end + "xyzq" * 2, encoding="utf-8")
    command = ["eval", str(file), *(part for n in range(3) for part in ("--text", str(tmp_path / f"{n}.txt")))]
    command += ["--lengths", "60,110", "--tail", "16", "--store", str(tmp_path / "kept.jsonl")]
    done = CliRunner().invoke(app, [*command, "--engine", "ropewalk", "--engine", "llama.cpp", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [one["name"] for one in found["documents"]] == ["0.txt", "2.txt"]
    assert len(found["engines"]) == 2
    assert "skipped 1.txt: llama.cpp cannot score parts of characters" in done.stderr


def test_engines_whose_texts_begin_otherwise_are_named(tmp_path: Path) -> None:
    """The same weights twice, and a tokenizer that adds BOS in one of them: what differs is not the engine."""
    file = make_gguf("llama", tmp_path)
    for n in range(2):
        (tmp_path / f"{n}.txt").write_text(str(n) + " the" * 200, encoding="utf-8")
    source = tmp_path / "source"
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    first = min(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].__getitem__)
    number = tokenizer["model"]["vocab"][first]
    (source / "tokenizer_config.json").write_text(json.dumps({"bos_token": first, "add_bos_token": True}))
    command = ["eval", str(source), "--text", str(tmp_path / "0.txt"), "--text", str(tmp_path / "1.txt")]
    command += ["--lengths", "40,60", "--tail", "16", "--store", str(tmp_path / "kept.jsonl"), "--engine", "ropewalk"]
    done = CliRunner().invoke(app, [*command, "--engine", f"llama.cpp:{file}"])
    assert done.exit_code == 0, done.output
    assert "(tokens []) than for ropewalk" in " ".join(done.stderr.split())
    assert f"({[number]}): what differs between them is not the engine alone" in " ".join(done.stderr.split())


def test_a_text_that_is_given_twice_counts_once(tmp_path: Path) -> None:
    """As it is, and with a line break at its end: copies would make every interval narrower."""
    file = make_gguf("llama", tmp_path)
    for n in range(3):
        (tmp_path / f"{n}.txt").write_text(str(n) + " the" * 200, encoding="utf-8")
    (tmp_path / "again.txt").write_text((tmp_path / "1.txt").read_text() + "\n", encoding="utf-8")
    given = [tmp_path / f"{name}.txt" for name in ("0", "1", "2", "0", "again")]
    command = ["eval", str(file), *(part for path in given for part in ("--text", str(path)))]
    command += ["--lengths", "60,120", "--tail", "16", "--store", str(tmp_path / "kept.jsonl")]
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [one["name"] for one in found["documents"]] == ["0.txt", "1.txt", "2.txt"]
    assert found["tail"]["benefit"]["documents"] == 3
    assert "skipped again.txt: it is the same text as 1.txt" in done.stderr
