"""llama.cpp's likelihoods of forced tokens against ours, of the same GGUF file."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ropewalk.cli.main import app
from ropewalk.evaluate import battery
from ropewalk.evaluate.checkpoint import opened
from ropewalk.evaluate.documents import Document
from ropewalk.evaluate.engines import llama_cpp
from ropewalk.evaluate.passage import Cannot, Passage
from ropewalk.scaling import Linear, Llama3, YaRN
from tests.checkpoints.small_models import MODELS, make_gguf, rope

pytest.importorskip("xllamacpp")
TOKENS = np.random.default_rng(2).integers(40, 90, 500)
YARN = YaRN(factor=2, trained=256)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_gguf("llama", tmp_path_factory.mktemp("model"))


def test_forced_tokens_have_our_likelihoods(file: Path) -> None:
    ours, theirs = opened(file)[0], opened(file, engine="llama.cpp")[0]
    assert theirs.name.startswith("llama.cpp")
    assert theirs.trained == 256
    short, long = Passage.plain(TOKENS[:250], 60), Passage.plain(TOKENS, 60)
    for passage, scaling in ((short, None), (long, YARN), (short, Linear(factor=2)), (short, None)):
        np.testing.assert_allclose(theirs.nats(passage, scaling), ours.nats(passage, scaling), atol=1e-3)
    assert np.abs(ours.nats(short) - ours.nats(short, YARN)).max() > 1e-2


def test_longrope_is_the_list_of_the_texts_own_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was read before, and at exactly the trained length."""
    lists = {"short_factor": [1 + 0.125 * i for i in range(8)], "long_factor": [1.0 + i for i in range(8)]}
    long = rope("longrope", factor=2.0, original_max_position_embeddings=512, **lists)
    monkeypatch.setitem(MODELS, "long", ("Llama", {**long, "max_position_embeddings": 1024}))
    file = make_gguf("long", tmp_path)
    ours, theirs = opened(file)[0], opened(file, engine="llama.cpp")[0]
    text = np.random.default_rng(3).integers(40, 90, 900)
    for length in (300, 900, 300, 512, 513):
        passage = Passage.plain(text[:length], 20)
        np.testing.assert_allclose(theirs.nats(passage), ours.nats(passage), atol=1e-3)


def test_what_it_cannot_do_is_said(file: Path) -> None:
    engine = opened(file, engine="llama.cpp")[0]
    gap = np.concatenate([np.arange(50), np.arange(60, 110)])
    for passage, scaling, says in (
        (Passage(TOKENS[:100], gap, 10), None, "gaps"),
        (Passage.plain(np.tile(TOKENS, 3)[:1300], 1200), None, "at most 1,024"),
        (Passage.plain(np.append(TOKENS[:100], 97), 10), None, "part of a character"),
        (Passage.plain(TOKENS, 10), None, "context_length, 256"),
        (Passage.plain(TOKENS, 10), Linear(factor=2), "context_length, 256"),
        (Passage.plain(TOKENS, 10), Llama3(factor=4, trained=256), "no flags for llama3"),
    ):
        with pytest.raises(Cannot, match=says):
            engine.nats(passage, scaling)
    with pytest.raises(Cannot, match="candidates"):
        engine.choices(Passage.plain(TOKENS[:100], 10), np.arange(5))


def test_the_end_of_the_file_is_seen_whatever_was_read_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server for 299 tokens has room for 310, and still ends texts at the file's 300."""
    monkeypatch.setitem(MODELS, "odd", ("Llama", {"max_position_embeddings": 300}))
    engine = opened(make_gguf("odd", tmp_path), engine="llama.cpp")[0]
    engine.nats(Passage.plain(TOKENS[:299], 20))
    with pytest.raises(Cannot, match="context_length, 300"):
        engine.nats(Passage.plain(TOKENS[:310], 20))


def test_the_battery_says_what_was_not_measured(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_cpp, "MOST", 100)
    engine, encode = opened(file, engine="llama.cpp")
    texts = [np.random.default_rng(seed).integers(40, 90, 250) for seed in (0, 1)]
    documents = [Document(f"text {n}", str(n), tokens, 250) for n, tokens in enumerate(texts)]
    report = battery.evaluate(engine, documents, encode, trained=256, lengths=[120, 250], tail_tokens=8)
    assert report.tail.loss[250]
    assert not [one for one in report.perplexity if one.stride > 100]
    assert any(one.startswith("perplexity in windows of 250: llama.cpp scores") for one in report.not_measured)


def test_other_forms_are_answered_with_what_to_type(file: Path) -> None:
    with pytest.raises(ValueError, match=r"export .* --format gguf"):
        opened(file.parent / "source", engine="llama.cpp")
    with pytest.raises(ValueError, match=r"export .* --format hf"):
        opened(file, engine="transformers")
    with pytest.raises(ValueError, match="leave out --dtype"):
        opened(file, engine="llama.cpp", dtype="float32")


def test_engines_of_one_model_side_by_side(file: Path, tmp_path: Path) -> None:
    """As a user asks for it: one command, two engines, one page."""
    run = partial(CliRunner().invoke, app)
    texts = tmp_path / "texts"
    texts.mkdir()
    for seed in (0, 1):
        drawn = np.random.default_rng(seed).integers(97, 122, 2000)
        (texts / f"{seed}.txt").write_bytes(bytes(drawn.tolist()))
    command = ["eval", str(file), "--text", str(texts), "--lengths", "60,120", "--tail", "16"]
    command += ["--store", str(tmp_path / "kept.jsonl"), "--html", str(tmp_path / "eval.html"), "--json"]
    done = run([*command, "--engine", "ropewalk", "--engine", "llama.cpp"])
    assert done.exit_code == 0, done.output
    ours, theirs = json.loads(done.stdout)["engines"]
    assert theirs["engine"].startswith("llama.cpp")
    assert abs(theirs["apart"]["mean"]) < 1e-3
    assert abs(theirs["loss"] - ours["loss"] - theirs["apart"]["mean"]) < 1e-9
    assert "By engine" in (tmp_path / "eval.html").read_text(encoding="utf-8")
    done = run([*command, "--engine", "llama.cpp", "--engine", "llamacpp"])
    assert done.exit_code == 2
    assert "no engine 'llamacpp'; there are ropewalk" in done.output
