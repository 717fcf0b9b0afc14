"""The parts of a Transformer: norms, activations, feed-forward, attention, and the block that joins them."""

from __future__ import annotations

from ropewalk.nn.attention import Attention, Core
from ropewalk.nn.block import Block, Residual
from ropewalk.nn.dropout import Dropout, DropoutKey
from ropewalk.nn.mlp import MLP
from ropewalk.nn.norm import AcrossHeads, deepnorm, norm

__all__ = ["MLP", "AcrossHeads", "Attention", "Block", "Core", "Dropout", "DropoutKey", "Residual", "deepnorm", "norm"]
