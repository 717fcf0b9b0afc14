"""Training: one recipe, from one CPU to a cluster. The engine is PyTorch's own; this is the loop around it."""

from __future__ import annotations
