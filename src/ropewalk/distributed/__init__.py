"""Models over many processes: a mesh, and what wraps a model from outside so that every world computes one step."""

from __future__ import annotations

from ropewalk.distributed.apply import autocast, clip, finish, initialise, join, last, parallelise, share
from ropewalk.distributed.world import MeshConfig, World

__all__ = ["MeshConfig", "World", "autocast", "clip", "finish", "initialise", "join", "last", "parallelise", "share"]
