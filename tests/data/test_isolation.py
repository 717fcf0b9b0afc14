"""A packed document or pair is to a model what it is alone: nothing of its neighbours in the row reaches it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ropewalk.data.batch import IGNORE
from ropewalk.data.config import PairsData, TextData
from ropewalk.data.open import Stack, open_data
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.positions import PAD, plain


def small(stack: Stack, encoding: str) -> Transformer:
    layers = {"encoder": 2, "decoder": 2} if stack == "encoder-decoder" else 2
    kind = {"kind": encoding, "bidirectional": True} if (stack, encoding) == ("encoder", "t5") else {"kind": encoding}
    sizes = {
        "stack": stack,
        "vocabulary": 512,
        "width": 32,
        "heads": 4,
        "layers": layers,
        "encoding": kind,
    }
    return Transformer(TransformerConfig.model_validate(sizes)).eval()


@pytest.mark.parametrize("encoding", ["rope", "t5", "alibi"])
@pytest.mark.parametrize("stack", ["decoder", "encoder"])
def test_a_packed_document_is_as_alone(text: Path, stack: Stack, encoding: str) -> None:
    data = open_data(TextData(path=str(text), length=400), stack=stack, seed=1)
    batch, model = data.batch("train", 0, rows=6), small(stack, encoding)
    with torch.inference_mode():
        packed = model(batch.tokens, batch.at)
        for row in range(6):
            for segment in range(int(batch.at.segment[row].max()) + 1):
                here = batch.at.segment[row] == segment
                tokens = batch.tokens[row][here][None]
                alone = model(tokens, plain(tokens.shape[1], limit=data.length))
                torch.testing.assert_close(packed[row][here], alone[0], atol=1e-5, rtol=1e-5)
    assert int(batch.at.segment.max()) > 0


@pytest.mark.parametrize("encoding", ["rope", "sinusoidal", "alibi"])
def test_a_packed_pair_is_as_alone(pairs: Path, encoding: str) -> None:
    config = PairsData(path=str(pairs), length=40, source_length=56)
    data = open_data(config, stack="encoder-decoder", seed=1)
    batch, model = data.batch("train", 0, rows=4), small("encoder-decoder", encoding)
    assert batch.source is not None
    assert batch.source_at is not None
    with torch.inference_mode():
        packed = model(batch.tokens, batch.at, source=batch.source, source_at=batch.source_at)
        for row in range(4):
            for segment in range(int(batch.at.segment[row].max()) + 1):
                ours, theirs = batch.at.segment[row] == segment, batch.source_at.segment[row] == segment
                tokens, source = batch.tokens[row][ours][None], batch.source[row][theirs][None]
                alone = model(
                    tokens, plain(tokens.shape[1], limit=40), source=source, source_at=plain(source.shape[1], limit=56)
                )
                torch.testing.assert_close(packed[row][ours], alone[0], atol=1e-5, rtol=1e-5)
    assert int(batch.at.segment.max()) > 2


def test_part_of_a_batch_keeps_what_is_known_of_it(text: Path, pairs: Path) -> None:
    data = open_data(TextData(path=str(text), length=64, isolate=False), stack="decoder", seed=0)
    batch = data.batch("train", 0, rows=4)
    part = batch.take(slice(1, 3))
    assert type(part.at) is type(batch.at)
    assert part.at.limit == 64
    assert torch.equal(part.tokens, batch.tokens[1:3])
    quiet = batch.silent(torch.tensor([True, False, True, False]))
    assert (quiet.target[0] == IGNORE).all()
    assert torch.equal(quiet.target[1], batch.target[1])
    two = open_data(PairsData(path=str(pairs)), stack="encoder-decoder", seed=0).batch("train", 0, rows=2)
    half = two.take(slice(0, 1)).to("cpu")
    assert half.source is not None
    assert half.source_at is not None
    assert half.source.shape[0] == half.source_at.shape[0] == 1
    assert (half.at.segment == PAD).any()
