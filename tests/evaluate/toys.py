"""Engines whose likelihoods are known in closed form, and a document for them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ropewalk.evaluate.documents import Document
from ropewalk.evaluate.passage import Passage


def document(number: int, length: int, vocabulary: int = 50) -> Document:
    draws = np.random.default_rng(number)
    tokens = draws.integers(0, vocabulary, length)
    tokens[-40:-20] = tokens[5:25]  # something to copy from far back
    return Document(f"d{number}", str(number), tokens, 3 * length)


class Toy:
    name, model, trained = "toy", "toy", 100

    def __init__(self, vocabulary: int = 50) -> None:
        self.vocabulary = vocabulary
        self.asked: list[tuple[Passage, Any]] = []

    def likelihoods(self, passage: Passage, place: int) -> np.ndarray[Any, Any]:
        """(V,) probabilities of the token at a place, given those before it."""
        return np.full(self.vocabulary, 1 / self.vocabulary)

    def nats(self, passage: Passage, scaling: Any = None) -> np.ndarray[Any, Any]:
        self.asked.append((passage, scaling))
        first = len(passage.tokens) - passage.scored
        places = range(first, len(passage.tokens))
        return np.array([-math.log(self.likelihoods(passage, place)[passage.tokens[place]]) for place in places])

    def choices(self, passage: Passage, candidates: np.ndarray[Any, Any], scaling: Any = None) -> np.ndarray[Any, Any]:
        first = len(passage.tokens) - passage.scored
        every = [self.likelihoods(passage, place)[candidates] for place in range(first, len(passage.tokens))]
        return -np.log(np.array(every))


class Copier(Toy):
    """Says what followed the last occurrence of the previous two tokens, at most `reach` tokens back."""

    def __init__(self, reach: int, vocabulary: int = 50) -> None:
        super().__init__(vocabulary)
        self.reach = reach

    def likelihoods(self, passage: Passage, place: int) -> np.ndarray[Any, Any]:
        tokens = passage.tokens
        found = np.full(self.vocabulary, 0.5 / self.vocabulary)
        for back in range(place - 1, max(place - self.reach, 1), -1):
            if back >= 2 and (tokens[back - 2 : back] == tokens[place - 2 : place]).all():
                found[tokens[back]] += 0.5
                return found
        return np.full(self.vocabulary, 1 / self.vocabulary)
