"""A Transformer as it learns: its forward pass is the loss, so that sharding wraps the one call that is made.

    decoder          -sum log p(next token)
    encoder          -sum log p(masked token)
    encoder-decoder  -sum log p(next token of the target | source)

Sums, not means: whoever calls divides by the number of targets of the whole step, over all passes and all ranks, so a
step is the same however it is cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ropewalk.data.batch import IGNORE, Batch
from ropewalk.distributed.apply import join, parallelise, share
from ropewalk.distributed.world import World
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.nn import DropoutKey
from ropewalk.positions import Positions

LOGITS = 1 << 26
"""Logits held at once; a larger batch goes through the output map in pieces, computed again in the backward pass."""


class Learner(Transformer):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.pieces: Callable[..., Tensor] = loss_of_piece
        """What computes the loss of a piece: compiled where the blocks are."""
        self.world: World | None = None
        """Whose ranks of tp, which have the same last vectors, share the tokens of the output map."""

    def forward(  # pyrefly: ignore[bad-override]  the loss is what a learner answers
        self,
        tokens: Tensor,
        at: Positions,
        target: Tensor,
        *,
        source: Tensor | None = None,
        source_at: Positions | None = None,
        dropout_key: DropoutKey | None = None,
        smoothing: float = 0.0,
        each: bool = False,
    ) -> Tensor:
        """The sum of the losses, a float32 number; each: those of the tokens, (B, L), 0 where nothing is asked."""
        x = self.hidden(tokens, at, source=source, source_at=source_at, dropout_key=dropout_key)
        shared = None if each else self.world
        if shared is not None:
            x, target = share(self, shared, x, target)
        x = x.flatten(0, -2)
        if self.config.scale_output:
            x = x * self.config.width**-0.5
        if self.transform is not None:
            x = self.transform(x)
        weight = self.tokens.weight if self.head is None else self.head.weight
        settings = (self.output_bias, self.config.output_cap, smoothing, "none" if each else "sum")
        rows = max(1, LOGITS // weight.shape[0])
        if len(x) <= rows or not torch.is_grad_enabled():
            found = [
                self.pieces(part, weight, wanted, *settings)
                for part, wanted in zip(x.split(rows), target.flatten().split(rows), strict=True)
            ]
        else:
            found = [
                checkpoint(self.pieces, part, weight, wanted, *settings, use_reentrant=False)
                for part, wanted in zip(x.split(rows), target.flatten().split(rows), strict=True)
            ]
        if each:
            return torch.cat(found).view(target.shape)
        total = torch.stack(found).sum()
        return total if shared is None else join(self, shared, total)

    def logits(
        self, tokens: Tensor, at: Positions, *, source: Tensor | None = None, source_at: Positions | None = None
    ) -> Tensor:
        """(B, L, vocabulary), as of a model that does not learn."""
        return self.output(self.hidden(tokens, at, source=source, source_at=source_at))


def learner(
    config: TransformerConfig, world: World, *, seed: int | None, compiled: bool = False, **how: Any
) -> Learner:
    """The model as it is trained on this rank; how: what else `parallelise` takes."""
    made = parallelise(lambda: Learner(config), world, seed=seed, compiled=compiled, share_loss=True, **how)
    assert isinstance(made, Learner)
    made.world = world
    if isinstance(made, FSDPModule):
        register_fsdp_forward_method(made, "logits")
    if compiled:
        made.pieces = torch.compile(made.pieces)
    return made


def loss_of_piece(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, cap: float | None, smoothing: float, reduction: str
) -> Tensor:
    settings: dict[str, Any] = {"reduction": reduction, "ignore_index": IGNORE, "label_smoothing": smoothing}
    # The last norm answers in float32 under autocast; a sharded model's weights are bfloat16 without one. Either way
    # the product is taken in bfloat16 and autocast sums the exponentials in float32.
    low = torch.is_autocast_enabled(x.device.type) or torch.bfloat16 in (x.dtype, weight.dtype)
    # Without its cache of weights: all pieces would share one bfloat16 copy, and their gradients be summed in that.
    with torch.autocast(x.device.type, torch.bfloat16, enabled=low, cache_enabled=False):
        if cap is None:
            return F.linear_cross_entropy(x, weight, target, linear_bias=bias, **settings)
        logits = F.linear(x, weight, bias).float()
        return F.cross_entropy(cap * torch.tanh(logits / cap), target, **settings)


def dropout_key_of(batch: Batch, seed: int, step: int) -> DropoutKey:
    """What the dropout masks of a step depend on."""
    return DropoutKey.for_step(seed, step, batch.sample)
