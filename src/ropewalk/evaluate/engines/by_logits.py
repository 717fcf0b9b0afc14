"""An engine that has logits: the likelihood of each scored token, and of candidates in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ropewalk.evaluate.passage import Nats, Numbers, Passage
from ropewalk.scaling import Scaling

LOGITS = 1 << 24
"""Logits held at once."""


class ByLogits:
    vocabulary: int

    def hidden(self, passage: Passage, scaling: Scaling | None) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """(scored, D) the vectors that predict the scored tokens, and what makes logits of some of them."""
        raise NotImplementedError

    def nats(self, passage: Passage, scaling: Scaling | None = None) -> Nats:
        tokens = torch.from_numpy(np.ascontiguousarray(passage.tokens))
        found = [
            F.cross_entropy(logits, tokens[start : start + len(logits)].to(logits.device), reduction="none")
            for start, logits in self._logits(passage, scaling)
        ]
        return torch.cat(found).double().cpu().numpy()

    def choices(self, passage: Passage, candidates: Numbers, scaling: Scaling | None = None) -> Nats:
        wanted = torch.from_numpy(np.ascontiguousarray(candidates))
        found = [-logits.log_softmax(-1)[:, wanted.to(logits.device)] for _, logits in self._logits(passage, scaling)]
        return torch.cat(found).double().cpu().numpy()

    @torch.inference_mode()
    def _logits(self, passage: Passage, scaling: Scaling | None) -> Iterator[tuple[int, Tensor]]:
        """Float32 logits in pieces, each with the number of the first token it predicts."""
        if int(passage.tokens.max()) >= self.vocabulary:
            raise ValueError(
                f"token {int(passage.tokens.max()):,} and the model knows {self.vocabulary:,}: whose tokenizer is this?"
            )
        x, output = self.hidden(passage, scaling)
        first, rows = len(passage.tokens) - passage.scored, max(1, LOGITS // self.vocabulary)
        for start in range(0, len(x), rows):
            yield first + start, output(x[start : start + rows]).float()
