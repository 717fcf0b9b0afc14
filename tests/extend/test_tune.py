"""Training of a chosen scaling on sequences of the old length: on what, what comes of it, and the verdict on it."""

from __future__ import annotations

import json
import random
import shutil
import string
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
import yaml
from safetensors.numpy import save
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch.nn import functional as F

from ropewalk.checkpoints.architectures.table import TABLE
from ropewalk.checkpoints.tokens.tokenizer import Tokenizer as Words
from ropewalk.checkpoints.tokens.tokenizer import of
from ropewalk.cli.extend.command import _taken
from ropewalk.evaluate.checkpoint import digest, opened
from ropewalk.evaluate.documents import cut
from ropewalk.evaluate.passage import Passage
from ropewalk.evaluate.statistics import paired
from ropewalk.evaluate.store import Stored
from ropewalk.extend import choose as choosing
from ropewalk.extend.asking import Asking, Opening, OutOfTime
from ropewalk.extend.candidates import Candidate
from ropewalk.extend.choose import choose
from ropewalk.extend.copies import Copies
from ropewalk.extend.judging import Judged
from ropewalk.extend.prove import prove
from ropewalk.extend.tournament import Result, run
from ropewalk.extend.tune import texts as found_texts
from ropewalk.extend.tune import training, tune
from ropewalk.extend.tune.texts import to_train_on, tokenizer_of, write_data
from ropewalk.extend.tune.tuned import Tuned, Tuning, decide
from ropewalk.extend.write import write
from ropewalk.report.extension.page import page
from ropewalk.scaling import NTK, LongRoPE, YaRN
from ropewalk.trials.jobs import Workers
from tests.checkpoints.small_models import MODELS, make, make_gguf
from tests.checkpoints.valid_files import LLAMA, llama, text
from tests.extend.toys import ROPE, TAIL, TO, Engineered, planted, sets, until
from tests.report.reading import Page

TRAINED, LONG = 64, 256
DIVISORS = tuple(1.0 + 0.2 * pair for pair in range(8))
SCALING = YaRN(factor=4, trained=TRAINED)
TUNING = Tuning(steps=6, rate=1e-2)
GEMMA3 = ["sliding_attention", "full_attention"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama whose tokens are letters."""
    path = tmp_path_factory.mktemp("letters")
    (path / "config.json").write_bytes(text({**LLAMA, "max_position_embeddings": TRAINED}))
    (path / "model.safetensors").write_bytes(save(llama()))
    words = Tokenizer(models.BPE({letter: n for n, letter in enumerate(string.ascii_lowercase)}, []))
    words.pre_tokenizer, words.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    words.add_special_tokens(["</s>"])
    words.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each ends with what was said at its beginning."""
    path = tmp_path_factory.mktemp("texts")
    for number in range(18):
        letters = "".join(random.Random(number).choices(string.ascii_lowercase, k=LONG))
        (path / f"{number}.txt").write_text(letters[: LONG - 40] + letters[:40])
    return path


def asked(model: Path, texts: Path, work: Path, **more: Any) -> Result:
    return choose(model, LONG, [texts], work, judges=8, tail=32, only=SCALING, tuning=TUNING, **more)


@pytest.mark.no_poison  # compiled kernels
def test_what_is_trained_is_judged_written_and_proved(
    model: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "BATCH", 512)
    before = digest(model)
    whole = asked(model, texts, tmp_path / "whole")
    assert whole.tuned is not None
    assert whole.tuned.kind == "own crop", "six steps teach it letters, and nothing of length"
    assert whole.tuned.over.low > 0.2
    # The scaling that was named, against a crop: the model as it is breaks at this length, and takes as long.
    assert whole.judged.keys() == {"yarn", "crop", "sinks"}
    assert whole.not_tried.keys() == {"leave"}
    # By hand: the tuned weights as a model, on the last tokens that a crop leaves.
    tuned = opened(whole.tuned.model)[0]
    crop, whole_text = (
        [tuned.nats(Passage.plain(one.tokens[-length:], 32)).mean() for one in whole.sets.judge]
        for length in (whole.tuned.judged.tail.best_crop, LONG)
    )
    assert whole.tuned.own.mean == pytest.approx(float(np.mean(crop) - np.mean(whole_text)), abs=1e-6)
    assert whole.tuned.start == "yarn"
    assert whole.tuned.steps == 6
    # One baseline: cropping, by the weights before training.
    assert whole.tuned.judged.tail.crop == whole.judged["yarn"].tail.crop
    assert digest(model) == before
    recipe = yaml.safe_load(next((tmp_path / "whole").glob("tune-*/recipe.yaml")).read_text())
    assert recipe["data"]["length"] == TRAINED
    assert recipe["data"]["positions"] == {"kind": "pose", "reach": LONG, "chunks": 2}
    assert recipe["model"]["encoding"]["scaling"]["kind"] == "yarn"
    # Stopped in the middle, it continues and ends with the same bytes.
    real = training.train
    monkeypatch.setattr(training, "train", lambda *a, **k: real(*a, **{**k, "until": min(2, k["until"])}))
    with pytest.raises(OutOfTime, match="after 2 steps"):
        asked(model, texts, tmp_path / "parts")
    ends: list[int] = []

    def noted(*given: Any, **more: Any) -> Any:
        ends.append(more["until"])
        return real(*given, **more)

    # A step that takes longer than what may be lost is saved at once.
    monkeypatch.setattr(training, "SAVED", 1e-9)
    monkeypatch.setattr(training, "train", noted)
    parts = asked(model, texts, tmp_path / "parts").tuned
    assert ends == [3, 4, 5, 6]
    assert parts is not None
    assert parts.digest == whole.tuned.digest
    assert parts.judged.to_dict() == whole.tuned.judged.to_dict()
    # What was trained has its verdict before what that is made of.
    (folder,) = (tmp_path / "parts").glob("tune-*")
    kept = (folder / "measurements.jsonl").read_text().splitlines(keepends=True)
    (folder / "measurements.jsonl").write_text("".join(kept[:-1]))
    monkeypatch.setattr(Asking, "__call__", until("loss by position", Asking.__call__))
    with pytest.raises(OutOfTime) as caught:
        asked(model, texts, tmp_path / "parts")
    known = caught.value.so_far.tuned
    assert (known.kind, known.over, known.own) == (parts.kind, parts.over, parts.own)
    assert known.not_measured == ["out of time at loss by position: 0 of 1 passes"]
    monkeypatch.undo()
    # Written as the untuned is, with the trained weights.
    source = tune.checkpoint(whole.tuned, model)
    done = write(source, tmp_path / "out", SCALING, LONG)
    assert done.engines == dict.fromkeys(["transformers 5", "transformers 4", "vLLM", "SGLang"])
    assert not any(one.failed for one in prove(source, done.path, SCALING, LONG, "rope walk ".replace(" ", "")))
    passage = Passage.plain(whole.sets.judge[0].tokens, 32)
    loss = float(opened(done.path)[0].nats(passage).mean())
    assert loss == pytest.approx(whole.tuned.judged.tail.loss[LONG][0], abs=1e-5)


@pytest.mark.no_poison  # compiled kernels
def test_a_tuned_base_is_raised_once(model: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NTK is a larger base: the tuned checkpoint has it, and what is written from that must not raise it again."""
    monkeypatch.setattr(training, "BATCH", 512)
    scaling = NTK(factor=4)
    found = choose(model, LONG, [texts], tmp_path / "work", judges=8, tail=32, only=scaling, tuning=TUNING)
    assert found.tuned is not None
    taken = replace(found, tuned=replace(found.tuned, kind="take"))
    source, shown, applied = _taken(str(model), taken)
    assert shown == scaling
    assert applied is not None
    done = write(source, tmp_path / "out", applied, LONG)
    theta = json.loads((done.path / "config.json").read_text())["rope_theta"]
    assert theta == pytest.approx(10_000 * 4 ** (16 / 14), rel=1e-12)  # heads of 16 features
    loss = float(opened(done.path)[0].nats(Passage.plain(found.sets.judge[0].tokens, 32)).mean())
    assert loss == pytest.approx(found.tuned.judged.tail.loss[LONG][0], abs=1e-5)


def drawn_texts(known: Words, folder: Path, longer: int) -> None:
    """Each repeats its beginning at its end, and has just enough tokens."""
    folder.mkdir()
    for number in range(14):
        letters = "".join(random.Random(number).choices(string.ascii_letters, k=3 * longer))
        begun = known.decode(known.encode(letters, special=False)[: longer - 40])
        (folder / f"{number}.txt").write_text(begun + letters[:90])


LISTED = LongRoPE(short=DIVISORS, long=DIVISORS, trained=256, factor=2, attention_factor=1.05)


@pytest.mark.no_poison  # compiled kernels
def test_a_tuned_file_is_written_with_divisors_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "BATCH", 512)
    source, folder, longer = make_gguf("llama", tmp_path), tmp_path / "texts", 512
    drawn_texts(of(source), folder, longer)
    short = Tuning(steps=1)
    found = choose(source, longer, [folder], tmp_path / "work", judges=8, tail=32, only=LISTED, tuning=short)
    assert found.tuned is not None
    tuned, _, applied = _taken(str(source), replace(found, tuned=replace(found.tuned, kind="take")))
    assert applied is not None
    done = write(tuned, tmp_path / "out.gguf", applied, longer)
    assert done.engines == {"llama.cpp": None}
    loss = float(opened(done.path)[0].nats(Passage.plain(found.sets.judge[0].tokens, 32)).mean())
    assert loss == pytest.approx(found.tuned.judged.tail.loss[longer][0], abs=1e-5)


def test_no_text_left_to_train_on_is_found_before_anything_is_measured(
    model: Path, texts: Path, tmp_path: Path
) -> None:
    few = tmp_path / "few"
    few.mkdir()
    for number in range(12):
        shutil.copy(texts / f"{number}.txt", few)
    with pytest.raises(ValueError, match="none of the 12 texts is left to train on"):
        asked(model, few, tmp_path / "work")
    assert not (tmp_path / "work" / "measurements.jsonl").exists()


FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt neox": MODELS["gpt neox"],
    "gpt neox, all of a head": ("GPTNeoX", {"rotary_pct": 1.0}),
    "gemma2": ("Gemma2", {"head_dim": 16, "sliding_window": 24}),
    "gemma3": ("Gemma3", {"head_dim": 16, "sliding_window": 24, "layer_types": GEMMA3}),
    "olmo2": ("Olmo2", {}),
}
"""Whose configs spell positions in other keys than Llama's: some rotate a part of a head, some have windows."""


@pytest.mark.no_poison  # compiled kernels
@pytest.mark.parametrize("name", FAMILIES)
def test_other_families_are_trained_and_written(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers computes from what is written what was judged, past the old length."""
    monkeypatch.setattr(training, "BATCH", 512)
    monkeypatch.setitem(MODELS, name, FAMILIES[name])
    source, folder, scaling = tmp_path / "source", tmp_path / "texts", YaRN(factor=2, trained=256)
    make(name, source)
    drawn_texts(of(source), folder, 512)
    found = choose(source, 512, [folder], tmp_path / "work", judges=8, tail=32, only=scaling, tuning=Tuning(steps=2))
    assert found.tuned is not None
    tuned, _, applied = _taken(str(source), replace(found, tuned=replace(found.tuned, kind="take")))
    assert applied is not None
    done = write(tuned, tmp_path / "out", applied, 512)
    assert done.engines["transformers 5"] is None
    tokens = torch.from_numpy(found.sets.judge[0].tokens)[None]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(done.path).eval()
    assert theirs.config.max_position_embeddings == 512
    with torch.no_grad():
        nats = F.cross_entropy(theirs(tokens).logits[0, -33:-1].double(), tokens[0, -32:])
    assert float(nats) == pytest.approx(found.tuned.judged.tail.loss[512][0], abs=1e-4)
    before = found.judged["yarn"].tail.loss[512][0]
    assert abs(float(nats) - before) > 1e-3, "training changed it"


def test_a_type_that_cannot_be_written_after_training_is_refused_first(
    tmp_path: Path, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_gguf("llama", tmp_path)
    form = TABLE["llama"].gguf
    assert form is not None
    monkeypatch.setitem(TABLE, "llama", replace(TABLE["llama"], gguf=replace(form, to_config=None)))
    says = "llama from GGUF is not written as a directory"
    with pytest.raises(ValueError, match=f"after training, yarn could not be written: .*{says}"):
        choose(source, 512, [texts], tmp_path / "work", only=YaRN(factor=2, trained=256), tuning=TUNING)
    assert not (tmp_path / "work").exists()


def test_texts_that_were_half_tokenized_are_continued(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, folder, real = {"a": "rope" * 500, "b": "walk" * 500}, tmp_path / "tune" / "data", found_texts.prepare
    begun = {"times": []}

    def killed(files: Any, *more: Any) -> None:
        begun["times"].append(files[0].stat().st_mtime_ns)
        raise KeyboardInterrupt

    monkeypatch.setattr(found_texts, "prepare", killed)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            write_data(kept, model, folder)
    first, second = begun["times"]
    assert first == second
    monkeypatch.setattr(found_texts, "prepare", real)
    write_data(kept, model, folder)
    assert folder.is_dir()


def test_tuned_weights_are_float32_and_judged_in_the_precision_that_was_asked_for(
    model: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a checkpoint in bfloat16, most updates are smaller than half of its last bit: the weights stay float32."""
    monkeypatch.setattr(training, "BATCH", 512)
    with pytest.raises(ValueError, match="--dtype float16: --tune trains, and measures, in float32 or bfloat16"):
        asked(model, texts, tmp_path / "work", dtype="float16")
    narrow = tmp_path / "narrow"
    shutil.copytree(model, narrow)
    half = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(model / "model.safetensors").items()}
    save_file(half, narrow / "model.safetensors")
    ends: dict[str | None, float] = {}
    for dtype in (None, "bfloat16"):
        work = tmp_path / f"work-{dtype}"
        found = asked(narrow, texts, work, dtype=dtype)
        assert found.tuned is not None
        computed = dtype or "float32"
        assert f", {computed}" in found.engine
        recipe = yaml.safe_load(next(work.glob("tune-*/recipe.yaml")).read_text())
        assert recipe["train"].get("precision", "float32") == computed
        saved = {one.dtype for file in found.tuned.model.glob("*.safetensors") for one in load_file(file).values()}
        assert saved == {torch.float32}
        passage = Passage.plain(found.sets.judge[0].tokens, 32)
        ends[dtype] = float(opened(found.tuned.model, dtype=computed)[0].nats(passage).mean())
        assert ends[dtype] == pytest.approx(found.tuned.judged.tail.loss[LONG][0], abs=1e-6)
    assert ends[None] != ends["bfloat16"]
    assert ends[None] == pytest.approx(ends["bfloat16"], abs=0.1)


def test_training_that_does_not_fit_is_refused_first(
    model: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 10_000}
    monkeypatch.setattr(training.os, "sysconf", sizes.__getitem__)
    with pytest.raises(ValueError, match=r"training would take about \d+\.\d GiB, and this machine has 0\.0"):
        asked(model, texts, tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_the_time_of_a_run_counts_from_its_beginning(
    model: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading a model and drawing documents take minutes too."""
    real = choosing.draw

    def slow(*given: Any, **more: Any) -> Any:
        time.sleep(0.3)
        return real(*given, **more)

    monkeypatch.setattr(choosing, "draw", slow)
    with pytest.raises(OutOfTime, match=": 0 of"):
        choose(model, LONG, [texts], tmp_path / "work", judges=8, tail=32, minutes=0.3 / 60)


def test_workers_leave_the_threads_of_this_process_alone(
    model: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It trains and proves, while they do nothing."""
    before = torch.get_num_threads()
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    torch.set_num_threads(3)
    try:
        with pytest.raises(OutOfTime):
            choose(model, LONG, [texts], tmp_path / "work", judges=8, tail=32, workers=Workers(2), minutes=0)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_a_worker_with_another_model_refuses(model: Path) -> None:
    known = Opening(str(model)).engine().model
    other = Opening(str(model), threads=1, expected="another")
    with pytest.raises(ValueError, match=f"{known} and not another; give every worker the same files"):
        other.engine()


def test_what_judges_is_not_trained_on_under_any_name(texts: Path, tmp_path: Path) -> None:
    """Nor with a line break at its end, nor continued."""

    def encode(text: str) -> list[int]:
        return [ord(letter) for letter in text]

    one = (texts / "3.txt").read_text()
    for name, end in (("again.txt", ""), ("again.md", "\n"), ("longer.txt", " and so on")):
        (tmp_path / name).write_text(one + end)
    judges = [cut(f"{n}", (texts / f"{n}.txt").read_text(), encode, LONG) for n in (3, 5)]
    assert all(judge is not None for judge in judges)
    kept, alike = to_train_on([texts, tmp_path], [judge for judge in judges if judge is not None], encode)
    assert (len(kept), alike) == (16, 0)
    assert not any(text.startswith(one) for text in kept.values())
    with pytest.raises(
        ValueError, match="none of the 3 texts is left to train on: 3 search, select or judge and 0 are near"
    ):
        to_train_on([tmp_path], [judge for judge in judges if judge is not None], encode)


def test_a_near_copy_of_what_judges_is_not_trained_on(tmp_path: Path) -> None:
    """Another edition, with every fortieth word another, and one with a preface; not the rest of the same book."""
    draws = random.Random(1)
    book = [draws.choice(("rope", "walk", "turn", "pair", "far", "near", "text")) + str(n % 97) for n in range(3000)]
    edition = [word if n % 40 else "other" for n, word in enumerate(book[:1000])]
    files = {
        "judge": book,
        "edition": edition,
        "preface": [f"preface{n}" for n in range(2000)] + edition,
        "chapter": book[100:160],
        "rest": book[1500:],
        "quoting": [f"new{n}" for n in range(600)] + book[:100],
    }
    for name, words in files.items():
        (tmp_path / f"{name}.txt").write_text(" ".join(words))

    def encode(text: str) -> list[int]:
        return [ord(letter) for letter in text]

    longest = len(" ".join(book[:1000]))
    judge = cut("judge", " ".join(book), encode, longest)
    assert judge is not None
    kept, alike = to_train_on([tmp_path], [judge], encode)
    assert {text.split()[0] for text in kept.values()} == {book[1500], "new0"}
    assert alike == 3


def test_a_near_copy_is_seen_in_a_script_without_spaces() -> None:
    """Of two editions one character in a hundred differs, which is one in nearly every clause."""
    draws = random.Random(2)
    book = "".join(chr(draws.randrange(0x4E00, 0x5E00)) + ("\uff0c" if n % 12 == 11 else "") for n in range(4000))
    edition = "".join("\u4e00" if n % 100 == 7 else letter for n, letter in enumerate(book))
    unbroken = book.replace("\uff0c", "")
    other = "".join(chr(draws.randrange(0x4E00, 0x5E00)) for _ in range(4000))
    known = Copies()
    known.add(book)
    assert [known.has(text) for text in (edition, unbroken, other)] == [True, True, False]


@pytest.mark.parametrize(
    ("declared", "files", "around"),
    [
        # As in Phi-3: </s> is in the vocabulary and ends nothing.
        ({"bos_token": "<s>", "eos_token": "<|endoftext|>"}, {}, ("<s>", "<|endoftext|>")),
        # As in Gemma: the declared BOS, though <s> is there too and nothing is put before a text.
        ({"bos_token": "<bos>", "eos_token": "<eos>"}, {}, ("<bos>", "<eos>")),
        # A chat model's EOS ends a turn; what ends a text is among its stops.
        (
            {"eos_token": "<|im_end|>"},
            {"generation_config.json": {"eos_token_id": ["<|im_end|>", "<|endoftext|>"]}},
            (None, "<|endoftext|>"),
        ),
        ({"eos_token": "<|im_end|>"}, {}, (None, "<|im_end|>")),
        ({}, {}, (None, None)),
        # As in T5: what its answers begin with.
        (
            {"bos_token": "<s>", "eos_token": "</s>"},
            {"config.json": {"decoder_start_token_id": "<pad>"}},
            ("<pad>", "</s>"),
        ),
    ],
)
def test_the_tokens_around_a_text_are_those_declared(
    tmp_path: Path, declared: dict[str, str], files: dict[str, dict[str, Any]], around: tuple[str | None, str | None]
) -> None:
    words = Tokenizer(models.BPE({letter: n for n, letter in enumerate(string.ascii_lowercase)}, []))
    words.add_special_tokens(["</s>", "<s>", "<bos>", "<eos>", "<|endoftext|>", "<|im_end|>", "<pad>"])
    words.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(declared))
    for name, said in files.items():
        numbers = {
            key: [*map(words.token_to_id, value)] if isinstance(value, list) else words.token_to_id(value)
            for key, value in said.items()
        }
        (tmp_path / name).write_text(json.dumps(numbers))
    found = tokenizer_of(str(tmp_path), tmp_path / "unused.json")
    assert (found["start"], found["end"]) == around


def judged(loss: float, noise: float = 0.01, count: int = 10, seed: int = 0) -> tuple[Judged, Judged]:
    """A candidate before training, better than cropping by 0.1, and after it, better by `loss` more."""
    engine = Engineered({4.0: TO})
    asking = Asking(Stored(engine, None), engine, Workers())
    found = run(asking, ROPE, sets(count), [planted("good", 4)], None, tail_tokens=TAIL, cheap=False).judged["good"]
    draws = np.random.default_rng(seed)
    crop = found.tail.crop[found.tail.best_crop]
    given = [
        {n: [c - by + draws.normal(0, noise) for c in crop] for n in found.tail.lengths} for by in (0.1, 0.1 + loss)
    ]
    first, second = (replace(found, tail=replace(found.tail, loss=each)) for each in given)
    return second, first


@pytest.mark.parametrize(
    ("loss", "noise", "count", "kind"),
    [
        (0.1, 0.01, 10, "take"),
        (0.0, 0.01, 10, "same"),
        (-0.1, 0.01, 10, "worse"),
        (0.1, 0.01, 5, "too few"),
    ],
)
def test_the_verdict_on_training(loss: float, noise: float, count: int, kind: str) -> None:
    found, over = decide(*judged(loss, noise, count), [0.2] * count)
    assert found == kind
    assert over.mean == pytest.approx(loss, abs=0.02)


def behind(one: Judged, by: float) -> Judged:
    """The same with so many nats more in every token."""
    return replace(one, tail=replace(one.tail, loss={n: [v + by for v in each] for n, each in one.tail.loss.items()}))


@pytest.mark.parametrize(("by", "kind"), [(0.2, "crop"), (0.4, "crop better")])
def test_better_than_before_and_no_better_than_cropping_is_said(by: float, kind: str) -> None:
    """Where cropping is better by 0.2, it is not as good."""
    found, over = decide(*(behind(one, by) for one in judged(0.1)), [0.2] * 10)
    assert found == kind
    assert over.low > 0


@pytest.mark.parametrize(("by", "kind"), [(0.2, "leave"), (0.1, "leave"), (-0.1, "take"), (None, "take")])
def test_where_leaving_the_model_won_training_is_compared_with_that(by: float | None, kind: str) -> None:
    """by: how much better the model as it is than what was trained, before training, which gains 0.1."""
    tuned, untuned = judged(0.1)
    draws = np.random.default_rng(1)
    left = None
    if by is not None:
        loss = {n: [v - by + draws.normal(0, 0.01) for v in each] for n, each in untuned.tail.loss.items()}
        left = replace(untuned, tail=replace(untuned.tail, loss=loss))
    assert decide(tuned, untuned, [0.2] * 10, left)[0] == kind


@pytest.mark.parametrize("own", [0.0, -0.2])
def test_weights_that_gain_as_much_when_they_are_cropped_are_not_taken(own: float) -> None:
    """They learned what the texts are about, and nothing of length."""
    draws = np.random.default_rng(1)
    assert decide(*judged(0.1), [own + draws.normal(0, 0.01) for _ in range(10)])[0] == "own crop"


def test_what_is_trained_is_not_what_won_where_that_is_the_model_as_it_is() -> None:
    engine = Engineered({1.0: TO, 4.0: 128}, broken=0.0)
    asking = Asking(Stored(engine, None), engine, Workers())
    candidates = [Candidate("leave", ""), planted("good", 4)]
    found = run(asking, ROPE, sets(), candidates, None, tail_tokens=TAIL, cheap=False)
    assert found.verdict.kind == "leave"
    assert tune.start_of(found).candidate.name == "good"
    left = tune.left_as_it_is(found)
    assert left is not None
    assert left.candidate.name == "leave"
    extended = run(asking, ROPE, sets(), candidates[1:], None, tail_tokens=TAIL, cheap=False)
    assert tune.left_as_it_is(extended) is None
    # At a length that it reads, a model is not worse for being left, however unsure its gain over cropping is.
    own = replace(found, verdict=replace(found.verdict, kind="crop", winner="crop", own=True))
    left = tune.left_as_it_is(own)
    assert left is not None
    assert left.candidate.name == "leave"


GAINS = [0.2 + 0.001 * number for number in range(10)]


def test_the_page_says_what_training_bought() -> None:
    engine = Engineered({4.0: TO})
    asking = Asking(Stored(engine, None), engine, Workers())
    found = run(asking, ROPE, sets(), [planted("good", 4)], None, tail_tokens=TAIL, cheap=False)
    for loss, by, own, english, chinese in (
        (0.1, 0.0, GAINS, "Take the tuned weights", "\u7528\u8bad\u7ec3\u540e\u7684\u6743\u91cd"),
        (0.1, 0.0, [0.0] * 10, "are not shown to be worse", "\u770b\u4e0d\u51fa\u66f4\u5dee"),
        (-0.1, 0.0, GAINS, "Training made it worse", "\u8bad\u7ec3\u4f7f\u5b83\u53d8\u5dee"),
        (0.1, 0.4, GAINS, "but cropping is still better", "\u4f46\u622a\u65ad\u4ecd\u7136\u66f4\u597d"),
    ):
        tuned, untuned = (behind(one, by) for one in judged(loss))
        kind, over = decide(tuned, untuned, own)
        one = Tuned("good", 200, 90.0, 12, Path("model"), "ab", tuned, over, paired(own), kind, [])
        data = {"model": "m", **replace(found, judged={"good": untuned}, tuned=one).to_dict(), "written": None}
        shown = page("m", json.loads(json.dumps(data)))
        assert english in one.sentence
        for language, says in (("en", english), ("zh-CN", chinese)):
            words = " ".join(Page(shown, language).words)
            assert says in words
            assert f"{over}" in words
            assert f"{paired(own)}" in words
            assert "200" in words
        # What is written is the tuned one where that is taken, and the cost on short text is of what is written.
        data["written"] = {"path": "p", "engines": {"vLLM": None}, "proofs": [], "commands": {}}
        costs = [str(each.tail.short_cost) for each in (tuned, untuned)]
        assert costs[0] != costs[1]
        assert costs[kind != "take"] in page("m", json.loads(json.dumps(data)))


def test_minutes_become_steps_once(tmp_path: Path) -> None:
    assert training._goal(tmp_path / "steps.json", 60.0, 0.5) == 120
    assert training._goal(tmp_path / "steps.json", 60.0, 5.0) == 120
    run_directory = tmp_path / "run"
    run_directory.mkdir()
    lines = ['{"step": 1, "loss": 3, "seconds": 9}', '{"step": 2, "loss": 3, "seconds": 2}']
    lines += ['{"step": 2, "loss": 3, "seconds": 4}', '{"kind": "event"}', '{"step": 3, "lo']
    (run_directory / "metrics.jsonl").write_text("\n".join(lines))
    assert training._each(run_directory) == [9, 4]
    assert training._seconds(run_directory) == 4
