"""Perplexity against the scripts of the literature, run with transformers' own loss."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from ropewalk.evaluate.documents import Document
from ropewalk.evaluate.measures import perplexity
from tests.evaluate.test_hf import engine
from tests.hf_models import TRAINED, made

STRIDE = 32


def windows(model: Any, tokens: np.ndarray, stride: int) -> list[tuple[float, int]]:
    """The loop of both scripts: the loss of each window, as the model gives it, and how many labels it has."""
    found, done = [], 0
    for begin in range(0, len(tokens), stride):
        end = min(begin + TRAINED, len(tokens))
        given = torch.from_numpy(tokens[begin:end])[None]
        labels = given.clone()
        labels[:, : -(end - done)] = -100
        with torch.no_grad():
            found.append((float(model(given, labels=labels).loss), int((labels != -100).sum())))
        done = end
        if end == len(tokens):
            break
    return found


def texts(length: int, count: int) -> list[Document]:
    draws = np.random.default_rng(1)
    return [Document(str(n), str(n), draws.integers(0, 61, length), length) for n in range(count)]


def test_it_is_that_of_transformers_documentation() -> None:
    """huggingface.co/docs/transformers/perplexity: each window's loss times one less than its labels, which is right
    for the first window alone: hence 0.1 %. Where windows do not divide a text, its last one is shorter, unlike ours.
    """
    (document,) = texts(1024, 1)
    every = windows(made("llama"), document.tokens, STRIDE)
    whole = sum(labels - 1 for _, labels in every)
    want = math.exp(sum(loss * (labels - 1) for loss, labels in every) / whole)
    got = perplexity.measure(engine(made("llama")), [document], TRAINED, stride=STRIDE)
    assert got.to_dict()["perplexity"] == pytest.approx(want, rel=1e-3)


def test_window_means_are_those_of_yarns_script() -> None:
    """jquesnelle/yarn, eval/perplexity.py: the mean of all windows' losses, whatever their labels."""
    documents = texts(160, 3)
    every = [loss for document in documents for loss, _ in windows(made("llama"), document.tokens, STRIDE)]
    found = perplexity.measure(engine(made("llama")), documents, TRAINED, stride=STRIDE).to_dict()
    assert found["window_mean_perplexity"] == pytest.approx(math.exp(np.mean(every)), rel=1e-5)
    # Weighed by tokens it is another number, or the test would not see which of the two it is.
    assert found["perplexity"] != pytest.approx(found["window_mean_perplexity"], rel=1e-3)
