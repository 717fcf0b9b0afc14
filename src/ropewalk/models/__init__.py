"""Whole Transformers, and the config that describes them."""

from __future__ import annotations

from ropewalk.models.config import Layer, LayerKind, LayerPattern, NormConfig, Stacks, TransformerConfig
from ropewalk.models.generate import Beam, beam_search, complete, generate
from ropewalk.models.presets import PRESETS, preset
from ropewalk.models.transformer import Memory, Transformer

__all__ = [
    "PRESETS",
    "Beam",
    "Layer",
    "LayerKind",
    "LayerPattern",
    "Memory",
    "NormConfig",
    "Stacks",
    "Transformer",
    "TransformerConfig",
    "beam_search",
    "complete",
    "generate",
    "preset",
]
