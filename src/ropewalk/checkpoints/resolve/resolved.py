"""What a checkpoint's positions resolve to: a plan for each side of the model, and notes on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ropewalk.checkpoints.architectures.architecture import Stack
from ropewalk.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Resolved:
    name: str
    """What the checkpoint calls itself, or the file it was read from."""
    where: str
    """config.json, or the name of the GGUF file."""
    model_type: str
    stack: Stack
    plans: Mapping[str, Plan]
    """By side: decoder, encoder."""
    config: Mapping[str, Any]
    """config.json as it stands, or GGUF metadata without the tokenizer's arrays."""
    text_at: tuple[str, ...] = ()
    """Where in the config the part with the positions is; empty where it is the config itself."""
    notes: tuple[str, ...] = ()
    """Keys that were read and mean nothing here, and readings that differ without changing a number."""
    not_understood: Mapping[str, str] = field(default_factory=dict)
    """Keys that look like position settings and that nothing here reads, with a message for each."""
    not_looked_at: tuple[str, ...] = ()
    """Keys that are in no list: neither read nor known to be about something else."""
    refusal: str | None = None
    """Why such a model is not loaded; None if it can be."""

    @property
    def plan(self) -> Plan:
        """Of the side that speaks: the decoder, or the encoder where it is alone."""
        return self.plans["decoder"] if "decoder" in self.plans else self.plans["encoder"]
