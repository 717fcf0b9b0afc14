"""`ropewalk data`: from text to tokens and what is said of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ropewalk.data.prepare.sample import sample
from tests.cli.conftest import Ropewalk
from tests.test_layers import COMMAND_LINE, run_without_torch


@pytest.mark.parametrize("command", ["prepare", "fetch", "show"])
def test_help_needs_no_torch(command: str) -> None:
    done = run_without_torch(COMMAND_LINE, "data", command, "--help")
    assert done.returncode == 0, done.stderr


def test_prepare_needs_no_torch(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text\n" * 9)
    done = run_without_torch(
        COMMAND_LINE,
        "data",
        "prepare",
        str(tmp_path / "a.txt"),
        "--valid-fraction",
        "0",
        "--out",
        str(tmp_path / "out"),
    )
    assert done.returncode == 0, done.stderr


def test_prepare_and_show_say_the_same(ropewalk: Ropewalk) -> None:
    Path("a.tsv").write_text("".join(f"number {n}\tZahl {n}\n" for n in range(200)), encoding="utf-8")
    arguments = ("--kind", "pairs", "--vocabulary", "300", "--valid-fraction", "0.2", "--license", "CC0-1.0")
    made = ropewalk("data", "prepare", "a.tsv", "--out", "out", *arguments, "--json")
    assert (made.code, made.stderr) == (0, "")
    assert made.data == ropewalk("data", "show", "out", "--json", "--check").data
    assert made.data["licence"] == "CC0-1.0"
    shown = ropewalk("data", "show", "out").stdout.splitlines()
    assert shown[0].split() == ["split", "pairs", "tokens", "bytes", "bytes/token"]
    assert [line.split()[:2] for line in shown[1:5]] == [
        ["train", "source"],
        ["train", "target"],
        ["valid", "source"],
        ["valid", "target"],
    ]
    assert ropewalk("data", "show", "out", "--quiet").stdout == "out\n"
    assert ropewalk("data", "prepare", "a.tsv", "--out", "out", *arguments).code == 0
    again = ropewalk("data", "prepare", "a.tsv", "--out", "out")
    assert again.code == 3


def test_a_corpus_misspelt(ropewalk: Ropewalk) -> None:
    answer = ropewalk("data", "prepare", "long-englsh", "--out", "out")
    assert answer.code == 3
    assert answer.stderr == "Error: long-englsh: no such file, and no corpus of that name; did you mean long-english?\n"
    answer = ropewalk("data", "fetch", "klingon", "--out", "out")
    assert "there are long-english, chinese, en-zh, en-de" in answer.stderr
    Path("a.txt").write_text("x")
    answer = ropewalk("data", "prepare", "a.txt", "en-de", "--out", "out")
    assert "prepare it alone" in answer.stderr
    assert not Path("out.raw").exists()


def test_a_corpus_wins_over_a_path_of_its_name(ropewalk: Ropewalk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetched(name: str, out: str, note: object) -> Path:
        raise ValueError(f"{name} into {out}")

    monkeypatch.setattr("ropewalk.data.prepare.fetch.fetch", fetched)
    Path("en-de").mkdir()
    Path("en-de/a.tsv").write_text("one\teins\n")
    assert ropewalk("data", "prepare", "en-de", "--out", "out").stderr == "Error: en-de into out.raw\n"
    arguments = ("--kind", "pairs", "--valid-fraction", "0", "--vocabulary", "300")
    assert ropewalk("data", "prepare", "./en-de", "--out", "out", *arguments).code == 0


def test_a_table_without_pyarrow(ropewalk: Ropewalk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    Path("a.parquet").write_bytes(b"PAR1")
    answer = ropewalk("data", "prepare", "a.parquet", "--out", "out")
    assert answer.code == 5
    assert answer.stderr == 'Error: This needs pyarrow: pip install "ropewalk[datasets]"\n'


def test_a_spoiled_file_makes_exit_code_1(ropewalk: Ropewalk) -> None:
    file = sample("text", "prepared") / "train" / "tokens-00000.bin"
    data = bytearray(file.read_bytes())
    data[7] ^= 16
    file.write_bytes(data)
    answer = ropewalk("data", "show", "prepared", "--check")
    assert answer.code == 1
    assert answer.stderr == f"Error: {file} has changed since it was written\n"


def test_options_out_of_range(ropewalk: Ropewalk) -> None:
    Path("a.txt").write_text("x")
    for option, value in (
        ("--valid-fraction", "1.5"),
        ("--vocabulary", "-3"),
        ("--document", "page"),
        ("--kind", "both"),
    ):
        assert ropewalk("data", "prepare", "a.txt", "--out", "out", option, value).code == 2
    answer = ropewalk("data", "prepare", "a.txt", "--out", "out", "--vocabulary", "100", "--valid-fraction", "0")
    assert "--vocabulary 100: 259 is the least" in answer.stderr


def test_options_that_would_do_nothing_are_refused(ropewalk: Ropewalk) -> None:
    Path("a.txt").write_text("some text\n" * 9)
    Path("b.jsonl").write_text('{"text": "some text"}\n')
    words = str(sample("text", "prepared") / "tokenizer.json")
    for option, value in (("--vocabulary", "300"), ("--tokenizer-model", "unigram")):
        answer = ropewalk("data", "prepare", "a.txt", "--out", "out", "--tokenizer", words, option, value)
        assert answer.code == 2
        assert option in answer.stderr
        assert "only for training a tokenizer" in " ".join(answer.stderr.replace("│", "").split())
    answer = ropewalk("data", "prepare", "b.jsonl", "--out", "out", "--tokenizer", words, "--document", "line")
    assert answer.code == 2
    assert "it splits .txt files" in answer.stderr
    assert not Path("out").exists()
    both = ("a.txt", "b.jsonl", "--tokenizer", words, "--document", "line", "--valid-fraction", "0")
    assert ropewalk("data", "prepare", *both, "--out", "out").code == 0
