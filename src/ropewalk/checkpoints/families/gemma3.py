"""Gemma 3: Gemma 2 with normalised queries and keys in place of soft caps."""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.families import gemma2
from ropewalk.checkpoints.families.base import ModelKeys

NAMES = {
    **gemma2.NAMES,
    f"{gemma2.BLOCK}.attention.q_norm": f"{gemma2.LAYER}.self_attn.q_norm",
    f"{gemma2.BLOCK}.attention.k_norm": f"{gemma2.LAYER}.self_attn.k_norm",
}
SPARE = gemma2.SPARE


def shape(keys: ModelKeys) -> dict[str, Any]:
    # transformers keeps the key for Gemma 3 and computes nothing with it; no published model states one.
    keys.must("attn_logit_softcapping", None)
    cap = keys.cap("final_logit_softcapping", None)
    return {**gemma2.shape(keys), "qk_norm": "head", "soft_cap": None, "output_cap": cap}
