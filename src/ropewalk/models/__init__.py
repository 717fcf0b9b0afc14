"""Whole Transformers, and the config that describes them."""

from __future__ import annotations

from ropewalk.models.config import Layer, LayerKind, LayerPattern, Stacks, TransformerConfig

__all__ = ["Layer", "LayerKind", "LayerPattern", "Stacks", "TransformerConfig"]
