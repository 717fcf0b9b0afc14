"""vLLM's and SGLang's DeepSeek layers write deepseek_yarn over the rope type of any scaling, whatever it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.checkpoints.engines.base import LayerReading, gain
from ropewalk.checkpoints.engines.draft import Draft
from ropewalk.checkpoints.engines.facts import Facts, Subject
from ropewalk.scaling import YaRN

KEYS = ("beta_fast", "beta_slow", "mscale", "mscale_all_dim")


def overwrites(facts: Facts) -> bool:
    """Whether these layers are DeepSeek's: latent attention that turns pairs. MiniCPM 3's own turns halves."""
    return facts.row.gain_on_scores and facts.row.layout == "pairs"


def taken_for_yarn(subject: Subject, usual: Mapping[str, float], *, unscaled: bool, draft: Draft) -> LayerReading:
    """Some other scaling as these layers compute it. usual: what stands in for keys that the config lacks; a key in
    neither raises ValueError. unscaled: whether scores have no gain."""
    said = {**usual, **{key: value for key, value in subject.block.items() if value is not None}}
    missing = [key for key in ("factor", "original_max_position_embeddings") if key not in said]
    if missing:
        raise ValueError(f"its DeepSeek layers take every rope type for deepseek_yarn, and {missing[0]} is missing")
    given: dict[str, Any] = {key: said[key] for key in KEYS if key in said}
    trained = said["original_max_position_embeddings"]
    used = YaRN(factor=said["factor"], trained=trained, dialect="deepseek", **given)
    kind = "another rope type" if subject.layer.scaling is None else subject.layer.scaling.kind
    draft.note(f"computes {used} in place of {kind}", "its DeepSeek layers take every rope type for deepseek_yarn")
    on_scores = 1.0 if unscaled else gain(used.factor, used.mscale_all_dim or 0.0) ** 2
    return subject.numbers_of(used, logit_gain=on_scores)
