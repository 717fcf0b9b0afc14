"""Measuring a model: its loss, by position, on text it has not seen."""

from __future__ import annotations
