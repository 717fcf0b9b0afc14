"""Texts that begin as the model's tokenizer begins them, against transformers' model and tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch.nn import functional as F

from ropewalk.checkpoints.export.convert import export
from ropewalk.evaluate.checkpoint import opened
from ropewalk.evaluate.engines.begun import Begun
from ropewalk.evaluate.passage import Engine, Nats, Numbers, Passage
from ropewalk.evaluate.store import Stored
from ropewalk.extend.candidates.base import Candidate
from ropewalk.extend.prove import prove
from ropewalk.extend.view import seen
from ropewalk.extend.write import write
from ropewalk.scaling import Scaling, YaRN
from tests.checkpoints.small_models import make

TEXT = "On the rope walk the strands are turned, and the rope grows longer the more they are turned. " * 5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained for 256 tokens, each text of which begins with <|begin|>, token 300."""
    path = tmp_path_factory.mktemp("begun")
    make("llama", path)
    words = Tokenizer.from_file(str(path / "tokenizer.json"))
    words.post_processor = TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", 300)])
    words.save(str(path / "tokenizer.json"))
    return path


def served(path: Path, given: str, scored: int) -> np.ndarray:
    """By transformers alone, of what its tokenizer makes of a text."""
    words = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path / "tokenizer.json"))
    ids = torch.tensor([words(given).input_ids])
    assert ids[0, 0] == 300
    loaded = transformers.LlamaForCausalLM.from_pretrained(path).eval()
    with torch.no_grad():
        logits = loaded(ids).logits[0].double()
    return F.cross_entropy(logits[:-1], ids[0, 1:], reduction="none")[-scored:].numpy()


@pytest.mark.parametrize("engine", ["ropewalk", "transformers"])
@pytest.mark.parametrize("all_scored", [False, True])
def test_a_passage_has_the_likelihoods_of_a_served_text(model: Path, engine: str, all_scored: bool) -> None:
    computes, encode = opened(model, engine=engine, dtype="float32")
    assert computes.name.endswith(", texts begin with <|begin|>")
    tokens = np.asarray(encode(TEXT))
    assert len(tokens) > 256, "past the trained length"
    want = served(model, TEXT, len(tokens) if all_scored else 40)
    # The token that <|begin|> takes the place of does not matter.
    for first in (0, 7):
        got = computes.nats(Passage.plain(np.concatenate([[first], tokens]), len(want)))
        np.testing.assert_allclose(got, want, atol=2e-4)
    chosen = computes.choices(Passage.plain(np.concatenate([[0], tokens]), 40), np.arange(300))
    np.testing.assert_allclose(chosen[np.arange(40), tokens[-40:]], served(model, TEXT, 40), atol=2e-4)


def test_a_crop_begins_so_too(model: Path) -> None:
    computes, encode = opened(model, dtype="float32")
    tokens = np.asarray(encode(TEXT))
    keep = 200
    cropped = seen(computes, Candidate("crop", "", None, text="crop"), keep)
    rest = tokens[-keep + 1 :]
    want = computes.nats(Passage.plain(np.concatenate([[9], rest]), 40))
    np.testing.assert_array_equal(cropped.nats(Passage.plain(tokens, 40)), want)


def test_llama_cpp_reads_the_same_passage(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    export(model, tmp_path / "model.gguf", format="gguf")
    ours, theirs = (opened(tmp_path / "model.gguf", engine=name)[0] for name in ("ropewalk", "llama.cpp"))
    tokens = np.random.default_rng(2).integers(40, 90, 200)
    passage = Passage.plain(tokens, 30)
    np.testing.assert_allclose(theirs.nats(passage), ours.nats(passage), atol=1e-3)
    assert isinstance(ours, Begun)
    assert np.abs(ours.engine.nats(passage) - ours.nats(passage)).max() > 1e-2, "the beginning matters"


def test_a_proof_holds_for_texts_that_begin_so(model: Path, tmp_path: Path) -> None:
    scaling = YaRN(factor=2, trained=256)
    done = write(model, tmp_path / "out", scaling, 512)
    found = prove(model, done.path, scaling, 512, TEXT)
    assert [one.engine for one in found if one.not_run is None and not one.failed] == [
        "ropewalk", "transformers", "transformers, cached",
    ]  # fmt: skip


class Notes:
    name, model, trained, vocabulary = "notes", "none", None, 100

    def __init__(self) -> None:
        self.passages: list[Passage] = []

    def nats(self, passage: Passage, scaling: Scaling | None = None) -> Nats:
        self.passages.append(passage)
        return np.zeros(passage.scored)

    def choices(self, passage: Passage, candidates: Numbers, scaling: Scaling | None = None) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("scored", "tokens", "positions"),
    [
        (3, [90, 91, 12, 13, 14], [0, 1, 2, 7, 8]),
        (4, [90, 91, 11, 12, 13, 14], [0, 1, 2, 3, 8, 9]),
    ],
)
def test_scored_tokens_are_never_replaced(scored: int, tokens: list[int], positions: list[int]) -> None:
    notes = Notes()
    begun: Engine = Begun(notes, [90, 91], "[gMASK] <sop>")
    assert len(begun.nats(Passage(np.arange(10, 15), np.array([0, 1, 2, 7, 8]), scored))) == scored
    assert (notes.passages[0].tokens.tolist(), notes.passages[0].positions.tolist()) == (tokens, positions)


def test_what_was_measured_without_it_is_not_taken_for_it(tmp_path: Path) -> None:
    notes, passage = Notes(), Passage.plain(np.arange(20), 5)
    for engine in (notes, Begun(notes, [90], "<s>"), Begun(notes, [91], "<t>")):
        kept = Stored(engine, tmp_path / "store.jsonl")
        kept.nats(passage)
        assert kept.computed == 1
