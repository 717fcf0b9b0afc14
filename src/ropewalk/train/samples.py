"""Samples now and then: what a model under training says to a few prompts, by its most likely tokens.

    decoder          the prompt, continued
    encoder-decoder  the answer to the prompt, such as its translation
    encoder          the prompt with its masked tokens filled in

Nothing is drawn, and every rank reads the same texts: the losses of a run are the same with samples and without.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from ropewalk import positions
from ropewalk.data.open import Data
from ropewalk.distributed.world import World
from ropewalk.models import TransformerConfig
from ropewalk.positions import Positions
from ropewalk.train.config import TrainConfig
from ropewalk.train.objective import Learner

TOKENS = 32


class Sampler:
    """An error where the prompts of a recipe are not for its model, data or mesh."""

    def __init__(self, config: TrainConfig, data: Data, model: TransformerConfig, world: World) -> None:
        assert config.samples is not None
        self.world, self.stack, self.end, self.eager = world, model.stack, data.end, config.compile
        self.prompts, self.count = config.samples.prompts, config.samples.tokens or TOKENS
        if data.tokenizer is None:
            raise ValueError("train.samples.prompts are texts, and data.kind=task has none; leave train.samples out")
        if world.cp_size > 1:
            raise ValueError(
                f"mesh.cp={world.cp_size} gives each rank a part of every sequence, and train.samples are short texts; "
                "leave train.samples out, or write mesh.cp=1"
            )
        from tokenizers import Tokenizer

        self.words = Tokenizer.from_file(str(data.tokenizer))
        bare = [self.words.encode(text, add_special_tokens=False).ids for text in self.prompts]
        start, end = ([] if token is None else [token] for token in (data.start, data.end))
        self.sources: list[list[int]] | None = None
        if model.stack == "decoder":
            self.texts = [start + text for text in bare]
        elif model.stack == "encoder-decoder":
            self.sources, self.texts = [text + end for text in bare], [start for _ in bare]
        else:
            self.texts, self.count = [start + text + end for text in bare], 0
            self.mask = data.mask
            _check_masks(config, self.words, self.prompts, bare, data.mask)
        for prompt, *read in zip(self.prompts, self.texts, *([self.sources] if self.sources else []), strict=True):
            if not all(read):
                raise ValueError(f"train.samples.prompts: {prompt!r} has no tokens; write a text")
        longest = max(map(len, self.texts)) + self.count
        self.limit = max(data.limit, longest)
        self.source_limit = max([data.source_length or 0, *map(len, self.sources or [])])
        for side, length in zip(reversed(model.sides), (longest, self.source_limit), strict=False):
            table = model.plan(side).table
            if table is not None and length > table:
                raise ValueError(
                    f"train.samples: prompts and new tokens take {length} positions, the {side}'s table has {table}; "
                    "shorten the prompts, or lower train.samples.tokens"
                )

    @torch.no_grad()
    def __call__(self, learner: Learner) -> list[str]:
        """The texts, the same on every rank; of a model that is in evaluation mode."""
        # Each length would be compiled once more.
        with torch.compiler.set_stance("force_eager") if self.eager else nullcontext():
            return self._filled(learner) if self.stack == "encoder" else self._continued(learner)

    def _continued(self, learner: Learner) -> list[str]:
        rows, new = list(self.texts), [[] for _ in self.texts]
        live = list(range(len(rows)))
        for _ in range(self.count):
            sources = None if self.sources is None else [self.sources[n] for n in live]
            logits = self._logits(learner, [rows[n] for n in live], sources)
            last = torch.tensor([len(rows[n]) - 1 for n in live], device=logits.device)
            # From the first rank: one that chose otherwise would wait for the others, or they for it.
            chosen = self.world.share(logits[torch.arange(len(live)), last].argmax(-1).tolist())
            for n, token in zip(live, chosen, strict=True):
                rows[n] = [*rows[n], token]
                new[n].append(token)
            live = [n for n, token in zip(live, chosen, strict=True) if token != self.end]
            if not live:
                break
        return [self._text(self.texts[n], new[n]) for n in range(len(rows))]

    def _text(self, before: Sequence[int], new: Sequence[int]) -> str:
        """What was added: a first space counts in a text that is continued."""
        if self.stack == "encoder-decoder":
            return self.words.decode(new)
        return self.words.decode([*before, *new])[len(self.words.decode(before)) :]

    def _filled(self, learner: Learner) -> list[str]:
        best = self.world.share(self._logits(learner, self.texts, None).argmax(-1).tolist())
        return [
            self.words.decode([said if read == self.mask else read for read, said in zip(text, row, strict=False)])
            for text, row in zip(self.texts, best, strict=True)
        ]

    def _logits(self, learner: Learner, rows: list[list[int]], sources: list[list[int]] | None) -> Tensor:
        """(B, L, V) in float32."""
        tokens, at = self._padded(rows, self.limit)
        source, source_at = (None, None) if sources is None else self._padded(sources, self.source_limit)
        return learner.logits(tokens, at, source=source, source_at=source_at).float()

    def _padded(self, rows: list[list[int]], limit: int) -> tuple[Tensor, Positions]:
        lengths = [len(row) for row in rows]
        filled = [row + [0] * (max(lengths) - len(row)) for row in rows]
        device = self.world.device
        return torch.tensor(filled, device=device), positions.padded(lengths, limit=limit, device=device)


def _check_masks(
    config: TrainConfig, words: Any, prompts: Sequence[str], bare: Sequence[Sequence[int]], mask: int | None
) -> None:
    assert config.samples is not None
    if config.samples.tokens is not None:
        raise ValueError(
            f"train.samples.tokens={config.samples.tokens} is for models that write; an encoder fills in masked "
            "tokens, leave it out"
        )
    name = "the mask token" if mask is None else words.id_to_token(mask)
    for prompt, text in zip(prompts, bare, strict=True):
        if mask not in text:
            raise ValueError(f"train.samples.prompts: {prompt!r} has no {name}, which an encoder is to fill in")
