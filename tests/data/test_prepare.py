"""Preparation: the same bytes however often it is killed, splits that share nothing, mistakes told with their line."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ropewalk import crash
from ropewalk.data.config import PairsData, TextData
from ropewalk.data.layout import BadData, changed, describe
from ropewalk.data.open import open_data
from ropewalk.data.options import Options
from ropewalk.data.prepare import dataset, parts
from ropewalk.data.prepare.dataset import POINTS, prepare
from ropewalk.data.prepare.writer import replace
from ropewalk.data.stored import Documents
from ropewalk.trials.jobs import Workers

WORDS = "hemp yarn strand hawser cable twist tar walk rope splice".split()  # noqa: SIM905
SMALL = Options(document="line", vocabulary=300, valid=0.1, shard_tokens=1500, chunk=1200)
KILLED = """
import sys
from pathlib import Path
import ropewalk.data.prepare.dataset as p
p.COMMIT_SECONDS = 0
options, workers = p.Options.model_validate_json(sys.argv[2]), p.Workers(int(sys.argv[3]))
p.prepare([Path("a.txt"), Path("b.txt")], sys.argv[1], options, workers=workers)
"""


def lines(seed: int, count: int = 200) -> str:
    rng = random.Random(seed)
    return "".join(" ".join(rng.choices(WORDS, k=rng.randint(5, 30))) + "\n" for _ in range(count))


def contents(folder: Path) -> dict[str, str]:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def texts(folder: Path, split: str, stream: str = "tokens") -> list[str]:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    found = Documents(folder, split, stream, describe(folder))
    bounds = found.bounds(0, found.documents)
    cut = np.split(found.span(0, found.tokens), bounds[1:-1])
    return [tokenizer.decode(ids.tolist()[1:-1], skip_special_tokens=False) for ids in cut] if found.documents else []


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    for seed, name in enumerate(("a.txt", "b.txt")):
        (folder / name).write_text(lines(seed), encoding="utf-8")
    prepare([folder / "a.txt", folder / "b.txt"], folder / "out", SMALL)
    return folder


def run(folder: Path, out: Path, crash: str | None = None, workers: int = 1) -> int:
    environment = {key: value for key, value in os.environ.items() if key != "ROPEWALK_CRASH_AT"}
    environment |= {"ROPEWALK_CRASH_AT": crash} if crash else {}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2] / "src")
    command = [sys.executable, "-c", KILLED, str(out), SMALL.model_dump_json(), str(workers)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


@pytest.mark.parametrize(
    "point", [*POINTS, "prepare.chunk:7", "prepare.state:3", "prepare.shard:4", "prepare.survey:2"]
)
def test_killed_and_run_again_it_is_the_same(uninterrupted: Path, tmp_path: Path, point: str) -> None:
    assert run(uninterrupted, tmp_path / "out", point) == -signal.SIGKILL
    assert (tmp_path / "out").exists() == (point == "prepare.renamed")
    assert run(uninterrupted, tmp_path / "out") == 0
    assert contents(tmp_path / "out") == contents(uninterrupted / "out")
    assert not (tmp_path / "out.part").exists()


def test_killed_with_workers_it_is_the_same(uninterrupted: Path, tmp_path: Path) -> None:
    """Neither how many there were before matters nor how many there are after."""
    assert run(uninterrupted, tmp_path / "out", "prepare.state:3", workers=2) == -signal.SIGKILL
    assert run(uninterrupted, tmp_path / "out", workers=3) == 0
    assert contents(tmp_path / "out") == contents(uninterrupted / "out")


@pytest.mark.parametrize("count", [2, 4])
def test_workers_write_the_same_though_one_is_killed(uninterrupted: Path, tmp_path: Path, count: int) -> None:
    said: list[str] = []
    victims: list[int | None] = []

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "tokens" and not victims:
            child = multiprocessing.active_children()[0]
            victims.append(child.pid)
            child.kill()

    files = [uninterrupted / "a.txt", uninterrupted / "b.txt"]
    prepare(files, tmp_path / "out", SMALL, progress, Workers(count, say=said.append))
    assert contents(tmp_path / "out") == contents(uninterrupted / "out")
    assert len(victims) == 1
    assert said == ["a worker was lost (killed by SIGKILL); its job is done again by another"]


def test_a_mistake_found_by_a_worker_is_told_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "fine"}\n{"text": 3}\n')
    with pytest.raises(BadData, match=r"a.jsonl, line 2: text must be a string, found int$"):
        prepare([tmp_path / "a.jsonl"], tmp_path / "out", SMALL, workers=Workers(2))


@pytest.mark.parametrize(("chunk", "most"), [(100, 1 << 18), (100, 5), (10**6, 1 << 18)])
def test_where_it_is_cut_changes_nothing(
    uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, most: int
) -> None:
    written = []
    monkeypatch.setattr(parts, "MOST_PARTS", most)
    monkeypatch.setattr(crash, "here", lambda point: written.append(point))
    files = [uninterrupted / "a.txt", uninterrupted / "b.txt"]
    prepare(files, tmp_path / "out", SMALL.model_copy(update={"chunk": chunk}))
    assert contents(tmp_path / "out") == contents(uninterrupted / "out")
    count = written.count("prepare.chunk")
    assert count > 100 if most > 5 and chunk == 100 else count <= most + 2


def test_killed_again_and_again_it_ends(uninterrupted: Path, tmp_path: Path) -> None:
    kills = 0
    while run(uninterrupted, tmp_path / "out", "prepare.state:2"):
        kills += 1
        assert kills < 30
    assert kills > 2
    assert contents(tmp_path / "out") == contents(uninterrupted / "out")


def test_what_is_stored_is_the_text(uninterrupted: Path) -> None:
    folder = uninterrupted / "out"
    whole = (uninterrupted / "a.txt").read_text() + (uninterrupted / "b.txt").read_text()
    found_texts = {split: texts(folder, split) for split in ("train", "valid")}
    assert sorted(found_texts["train"] + found_texts["valid"]) == sorted(whole.splitlines())
    assert 20 < len(found_texts["valid"]) < 60
    about, sizes = describe(folder), np.load(folder / "token_bytes.npy")
    found = Documents(folder, "train", "tokens", about)
    stored = about["splits"]["train"]["streams"]["tokens"]
    assert sizes[found.span(0, found.tokens)].sum() == stored["bytes"] == sum(map(len, found_texts["train"]))
    assert len(stored["shards"]) > 3
    assert changed(folder) == []


@pytest.mark.parametrize("model", ["bpe", "unigram"])
def test_any_text_comes_back(tmp_path: Path, model: str) -> None:
    odd = [
        "<start> is <mask>ed <end>",
        "\u6c49\u5b57 \U0001f600 \u00fc\t  two  spaces ",
        "a\u0000b",
        "\ufffd\u200d",
        "\u0915\u094d\u0937",
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in [*odd, *lines(1).split("\n")]))
    options = Options.model_validate({"vocabulary": 400, "valid": 0.0, "model": model})
    prepare([tmp_path / "a.jsonl"], tmp_path / "out", options)
    assert texts(tmp_path / "out", "train")[: len(odd)] == odd
    found = Documents(tmp_path / "out", "train", "tokens", describe(tmp_path / "out"))
    tokens = found.span(0, found.tokens)
    assert (tokens == 0).sum() == (tokens == 1).sum() == found.documents
    assert not (tokens == 2).any()
    sizes = np.load(tmp_path / "out" / "token_bytes.npy")
    assert sizes[tokens].sum() == describe(tmp_path / "out")["splits"]["train"]["streams"]["tokens"]["bytes"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", " "], ids=["lines", "CRLF", "paragraphs", "one line"])
def test_a_long_document_has_the_tokens_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    (tmp_path / "a.txt").write_bytes(lines(1, 500).replace("\n", end).encode())
    prepare([tmp_path / "a.txt"], tmp_path / "whole", Options(vocabulary=300, valid=0))
    monkeypatch.setattr("ropewalk.data.prepare.tokenizer.PIECE", 1000)
    prepare([tmp_path / "a.txt"], tmp_path / "pieces", Options(vocabulary=300, valid=0))
    assert contents(tmp_path / "whole") == contents(tmp_path / "pieces")


@pytest.fixture
def spaced(tmp_path: Path) -> Path:
    """A tokenizer that puts a space before a text, as SentencePiece does."""
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=special, unk_token="<unk>", show_progress=False)
    made.train_from_iterator([lines(1), "0 1 2 3 4 5 6 7 8 9"], trainer)
    made.save(str(tmp_path / "spaced.json"))
    return tmp_path / "spaced.json"


def test_a_long_document_gets_no_space_in_its_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spaced: Path
) -> None:
    (tmp_path / "a.txt").write_text(lines(1, 500))
    monkeypatch.setattr("ropewalk.data.prepare.tokenizer.PIECE", 1000)
    prepare([tmp_path / "a.txt"], tmp_path / "out", Options(tokenizer=str(spaced), valid=0))
    found = Documents(tmp_path / "out", "train", "tokens", describe(tmp_path / "out"))
    whole = Tokenizer.from_file(str(spaced)).encode(lines(1, 500), add_special_tokens=False).ids
    assert found.span(0, found.tokens).tolist() == [1, *whole, 1]


@pytest.mark.parametrize("kind", ["text", "pairs"])
def test_bytes_of_tokens_are_those_of_the_text(tmp_path: Path, spaced: Path, kind: Literal["text", "pairs"]) -> None:
    """Though the tokenizer puts a space before each document."""
    texts = [f"{n} {n * n}" for n in range(80)]
    file = tmp_path / ("a.txt" if kind == "text" else "a.tsv")
    file.write_text("\n".join(texts if kind == "text" else [f"{text} is\t{text}" for text in texts]))
    prepare([file], tmp_path / "out", Options(kind=kind, tokenizer=str(spaced), valid=0.4, document="line"))
    where = {"path": str(tmp_path / "out"), "length": 64}
    if kind == "text":
        data = open_data(TextData(**where), stack="decoder", seed=0)
    else:
        data = open_data(PairsData(**where, source_length=64), stack="encoder-decoder", seed=0)
    stream = "tokens" if kind == "text" else "target"
    about = describe(tmp_path / "out")
    found = Documents(tmp_path / "out", "valid", stream, about)
    size = about["splits"]["valid"]["streams"][stream]["bytes"]
    assert data.token_bytes is not None
    assert data.token_bytes[found.span(0, found.tokens)].sum() == pytest.approx(size, rel=1e-12)
    plain = np.load(tmp_path / "out" / "token_bytes.npy")[found.span(0, found.tokens)].sum()
    assert plain == size + found.documents


def test_no_source_of_evaluation_is_in_training(tmp_path: Path) -> None:
    rng = random.Random(0)
    sources = [" ".join(rng.choices(WORDS, k=2)) for _ in range(300)]
    rows = [
        rng.choice((str, str.upper, lambda s: s.replace(" ", "  ")))(s) + f"\t{n}" for n, s in enumerate(sources * 4)
    ]
    (tmp_path / "a.tsv").write_text("\n".join(rows))
    prepare([tmp_path / "a.tsv"], tmp_path / "out", Options(kind="pairs", vocabulary=300, valid=0.2))
    train, valid = (
        {" ".join(t.lower().split()) for t in texts(tmp_path / "out", s, "source")} for s in ("train", "valid")
    )
    assert train
    assert valid
    assert not train & valid
    assert texts(tmp_path / "out", "valid", "target")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", b'{"text": "fine"}\n{"text": 3}\n', "a.jsonl, line 2: text must be a string, found int"),
        ("a.jsonl", b'{"text": "fine"}\n\n{"body": "x"}\n', "a.jsonl, line 3: text must be a string, found only body"),
        ("a.jsonl", b'{"text": "fine"}\n{"text": \n', "a.jsonl, line 2: not JSON"),
        ("a.jsonl", b'["x"]\n', "a.jsonl, line 1: list; a line is an object"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', "a.jsonl, line 1: text holds half a character"),
        ("a.jsonl", b"[" * 100_000, "a.jsonl, line 1: not JSON"),
        ("a.txt", b"fine\nna\xefve\n", "a.txt, line 2: byte 0xef is not UTF-8"),
        ("a.tsv", b"one\ttwo\nthree\n", "a.tsv, line 2: 0 tabs; a pair is source, tab, target"),
        ("a.tsv", b"one\ttwo\tthree\n", "a.tsv, line 1: 2 tabs"),
        ("a.parquet", b"PAR1 is how it begins", "a.parquet: not a readable Parquet file"),
        ("a.csv", b"x", r"a.csv: text is read from .txt, .jsonl, .parquet"),
        ("a.txt", b" \n\n", "of 0 documents 0 are for training"),
    ],
)
@pytest.mark.parametrize("document", ["line", "file", "blank"])
def test_mistakes_are_told_with_file_and_line(
    tmp_path: Path, name: str, content: bytes, says: str, document: str
) -> None:
    (tmp_path / name).write_bytes(content)
    kind = "pairs" if name.endswith(".tsv") else "text"
    with pytest.raises(ValueError, match=says):
        prepare([tmp_path / name], tmp_path / "out", Options.model_validate({"kind": kind, "document": document}))
    assert not (tmp_path / "out").exists()


def test_documents_of_a_text_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n\r\n\r\nthree\n \nfour")
    wanted = {
        "line": ["one", "two", "three", "four"],
        "blank": ["one\ntwo", "three", "four"],
        "file": ["one\r\ntwo\r\n\r\n\r\nthree\n \nfour"],
    }
    for document, found in wanted.items():
        options = Options.model_validate({"document": document, "vocabulary": 259, "valid": 0})
        prepare([tmp_path / "a.txt"], tmp_path / document, options)
        assert texts(tmp_path / document, "train") == found


def test_parquet_is_the_same_as_jsonl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow
    from pyarrow import parquet

    rows = [{"source": line, "target": line.upper(), "id": n} for n, line in enumerate(lines(3, 3000).splitlines())]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=700)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = Options(kind="pairs", vocabulary=300, chunk=5000)
    found = [prepare([tmp_path / f"a.{s}"], tmp_path / s, options)["fingerprint"] for s in ("parquet", "jsonl")]
    assert found[0] == found[1]
    with pytest.raises(ValueError, match=r"a.parquet: no column text; it has source, target, id"):
        prepare([tmp_path / "a.parquet"], tmp_path / "text", Options())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="pyarrow"):
        prepare([tmp_path / "a.parquet"], tmp_path / "other", options)


def test_a_given_tokenizer_is_used(tmp_path: Path, uninterrupted: Path) -> None:
    source = json.loads((uninterrupted / "out" / "tokenizer.json").read_text())
    for token in source["added_tokens"]:
        fresh = {"<start>": "<s>", "<end>": "[STOP]", "<mask>": "[HIDE]"}[token["content"]]
        source["model"]["vocab"][fresh] = source["model"]["vocab"].pop(token["content"])
        token["content"] = fresh
    (tmp_path / "mine.json").write_text(json.dumps(source))
    options = {"tokenizer": str(tmp_path / "mine.json"), "document": "line"}
    with pytest.raises(ValueError, match=r"mine.json: no token <end> or .* --eos-token TOKEN"):
        prepare([uninterrupted / "a.txt"], tmp_path / "out", Options.model_validate(options))
    with pytest.raises(ValueError, match=r"no token STOP in it; name one that is: --eos-token TOKEN"):
        prepare([uninterrupted / "a.txt"], tmp_path / "two", Options.model_validate({**options, "end": "STOP"}))
    about = prepare([uninterrupted / "a.txt"], tmp_path / "three", Options.model_validate({**options, "end": "[STOP]"}))
    assert about["special"] == {"start": 0, "end": 1, "mask": None}
    with pytest.raises(ValueError, match="its tokenizer has no mask token, an encoder needs one"):
        open_data(TextData(path=str(tmp_path / "three")), stack="encoder", seed=0)
    source["model"]["vocab"]["[MASK]"] = source["model"]["vocab"].pop("[HIDE]")
    source["added_tokens"][2]["content"] = "[MASK]"
    (tmp_path / "mine.json").write_text(json.dumps(source))
    with pytest.raises(ValueError, match="is there already, from other text or with other options"):
        prepare([uninterrupted / "a.txt"], tmp_path / "three", Options.model_validate({**options, "end": "[STOP]"}))
    (tmp_path / "mine.json").write_text("{}")
    with pytest.raises(ValueError, match=r"not a tokenizer.json"):
        prepare([uninterrupted / "a.txt"], tmp_path / "four", Options.model_validate(options))


def test_other_options_do_not_go_on_with_the_old(uninterrupted: Path, tmp_path: Path) -> None:
    run(uninterrupted, tmp_path / "out", "prepare.state:2")
    files = [uninterrupted / "a.txt", uninterrupted / "b.txt"]
    with pytest.raises(ValueError, match=r"was begun with vocabulary 300, not 400; give the same again, or remove it"):
        prepare(files, tmp_path / "out", SMALL.model_copy(update={"vocabulary": 400}))
    with pytest.raises(ValueError, match="other input files"):
        prepare(files[:1], tmp_path / "out", SMALL)
    prepare(files, tmp_path / "out", SMALL)
    assert prepare(files, tmp_path / "out", SMALL) == describe(uninterrupted / "out")
    with pytest.raises(ValueError, match="is there already, from other text or with other options"):
        prepare(files[:1], tmp_path / "out", SMALL)


def test_two_at_once_are_refused(uninterrupted: Path, tmp_path: Path) -> None:
    import fcntl

    (tmp_path / "out.part").mkdir()
    with (tmp_path / "out.part" / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="another process is preparing it"):
            prepare([uninterrupted / "a.txt"], tmp_path / "out", SMALL)


def test_a_changed_file_is_found(uninterrupted: Path, tmp_path: Path) -> None:
    prepare([uninterrupted / "a.txt"], tmp_path / "out", SMALL)
    file = tmp_path / "out" / "train" / "tokens-00001.bin"
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    assert changed(tmp_path / "out") == [str(file)]


def test_few_documents_are_enough(tmp_path: Path) -> None:
    """One of them is for evaluation though its share would be none, and what was refused does not stand in the way."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "0.txt").write_text("a rope is laid", encoding="utf-8")
    options = Options(vocabulary=280, valid=0.001)
    with pytest.raises(ValueError, match="of 1 documents 1 are for training and 0 for evaluation"):
        prepare([tmp_path / "texts"], tmp_path / "out", options)
    for number in range(1, 4):
        (tmp_path / "texts" / f"{number}.txt").write_text(lines(number, 1), encoding="utf-8")
    about = prepare([tmp_path / "texts"], tmp_path / "out", options.model_copy(update={"vocabulary": 290}))
    assert {split: found["documents"] for split, found in about["splits"].items()} == {"train": 3, "valid": 1}


def test_notes_of_how_far_it_is_do_not_grow_with_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each names every file: one after each would make the whole quadratic."""
    (tmp_path / "texts").mkdir()
    for number in range(200):
        (tmp_path / "texts" / f"{number:03}.txt").write_text(f"text {number}", encoding="utf-8")
    written: list[str] = []
    monkeypatch.setattr(dataset, "replace", lambda path, data: (written.append(path.name), replace(path, data)))
    about = prepare([tmp_path / "texts"], tmp_path / "out", Options(vocabulary=280, valid=0.05))
    assert sum(found["documents"] for found in about["splits"].values()) == 200
    assert len(about["sources"]) == 200
    assert len(written) < 20, written
