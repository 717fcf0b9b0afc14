"""One forward pass of an evaluation, and what can compute its likelihoods.

A passage is tokens at explicit positions, of which the last `scored` are judged: their negative log-likelihood in nats,
given all tokens before them. Whatever a measure asks (more context, foreign context, gaps) is another passage, so every
engine is asked the same question.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ropewalk.scaling import Scaling

Numbers = NDArray[np.int64]
Nats = NDArray[np.float64]


class Cannot(ValueError):
    """What an engine has no way to compute; the reason is the message."""


@dataclass(frozen=True, eq=False)
class Passage:
    tokens: Numbers  # (N,)
    positions: Numbers  # (N,), strictly increasing
    scored: int

    def __post_init__(self) -> None:
        if self.tokens.shape != self.positions.shape or self.tokens.ndim != 1:
            raise ValueError(f"{self.tokens.shape} tokens and {self.positions.shape} positions: one position a token")
        if not 0 < self.scored < len(self.tokens):
            raise ValueError(
                f"scored={self.scored} of {len(self.tokens)} tokens: at least 1, and at most {len(self.tokens) - 1}, "
                "since the first token has nothing before it"
            )
        if len(self.positions) > 1 and (np.diff(self.positions) <= 0).any():
            raise ValueError("positions of a passage increase strictly; later tokens stand at later positions")

    @classmethod
    def plain(cls, tokens: Numbers, scored: int) -> Passage:
        """From position 0 on, as a served text."""
        return cls(tokens, np.arange(len(tokens)), scored)

    @property
    def gaps(self) -> bool:
        """Whether positions skip, which not every engine can do."""
        return bool(self.positions[0] != 0 or self.positions[-1] != len(self.positions) - 1)

    @property
    def digest(self) -> str:
        whole = hashlib.sha256(np.ascontiguousarray(self.tokens, "<i8").tobytes())
        whole.update(np.ascontiguousarray(self.positions, "<i8").tobytes())
        whole.update(str(self.scored).encode())
        return whole.hexdigest()


class Engine(Protocol):
    """Computes likelihoods with one model. What it cannot do it refuses with `Cannot`."""

    name: str
    """What computes, with its version and dtype: two names are never compared in one table without saying so."""
    model: str
    """A digest of the weights and the config."""
    trained: int | None
    """The length it was trained for, where that is known."""
    vocabulary: int

    def nats(self, passage: Passage, scaling: Scaling | None = None) -> Nats:
        """(scored,) the negative log-likelihood of each scored token. scaling: of RoPE's frequencies in place of the
        checkpoint's own; None: as the checkpoint is."""
        ...

    def choices(self, passage: Passage, candidates: Numbers, scaling: Scaling | None = None) -> Nats:
        """(scored, C) the nats of each candidate token at each scored place."""
        ...


def described(scaling: Scaling | None) -> dict[str, Any] | None:
    """A scaling as data, for keys and reports; None: the checkpoint's own."""
    return None if scaling is None else scaling.model_dump(mode="json")
