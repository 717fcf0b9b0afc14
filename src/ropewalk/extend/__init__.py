"""A checkpoint for longer texts: a scaling written into it, and the proof that engines compute what was meant."""

from __future__ import annotations
