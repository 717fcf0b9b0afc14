"""What each architecture is, as far as positions go: facts that stand in its code and not in a checkpoint's config.

The entries were read from transformers 5.22.2 (architectures_table.py). A checkpoint of an architecture that is not
here is refused, since layout, width and pattern of its layers would be guesses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal

from ropewalk.checkpoints.resolved import Stack
from ropewalk.plan import Layout

Kind = Literal["rope", "learned", "alibi", "t5", "sinusoidal", "mpnet"]
Pattern = Literal[
    "full",  # every layer sees everything
    "window",  # sliding_window, if given, is every layer's
    "each",  # the same, unless layer_types says otherwise
    "every",  # sliding, except every n-th layer
    "late",  # Qwen2: full up to max_window_layers, then sliding, if use_sliding_window
    "odd",  # Qwen2-MoE: every other of the first max_window_layers slides, if use_sliding_window
    "used",  # Qwen3-MoE: sliding_window is every layer's, if use_sliding_window
    "still",  # SmolLM3: layers without rotation slide, if use_sliding_window
    "first",  # ModernBERT: every n-th layer from the first is full, the rest sees both ways
    "chunked",  # Llama 4: layers with rotation see their chunk
    "linear",  # layers of linear attention or convolution between full ones, as layer_types says
]
Rotates = Literal["all", "listed", "sliding"]
"""Which layers rotate: all, those `no_rope_layers` marks with 1, or the sliding ones."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    kind: Kind = "rope"
    stack: Stack = "decoder"
    layout: Layout = "half"
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What transformers takes for keys that published checkpoints leave out."""
    implied: Mapping[str, Any] = field(default_factory=dict)
    """What it takes besides where this is the text part of another config: there transformers writes no defaults."""
    layer_key: str = "num_hidden_layers"
    heads_key: str = "num_attention_heads"
    width_key: str = "hidden_size"
    head_key: str | None = "head_dim"
    """Features of a head; where the key is absent, `defaults` or width / heads. None: always width / heads."""
    longest_key: str = "max_position_embeddings"
    theta_key: str | None = "rope_theta"
    """None: the base is fixed in the architecture's code, and stands in `defaults` as rope_theta."""
    local_theta_key: str | None = None
    """The base of sliding layers, where they have one of their own."""
    scales_local: bool = True
    """Whether an unnested scaling is the sliding layers' too."""
    fraction_key: str | None = "partial_rotary_factor"
    rotary_key: str | None = None
    """Rotated features as a number (`rotary_dim`)."""
    pattern: Pattern = "full"
    every: int = 0
    """n of the patterns that have one."""
    every_key: str | None = None
    window_key: str = "sliding_window"
    rotates: Rotates = "all"
    latent: bool = False
    """Multi-head latent attention: a slice of qk_rope_head_dim features rotates after qk_nope_head_dim still ones."""
    gain_on_scores: bool = False
    """Whether YaRN's second gain multiplies the scores."""
    experts: bool | str = False
    """Whether layers are mixtures of experts, or the key that says so."""
    sections: Literal["blocks", "interleaved"] | None = None
    """How M-RoPE arranges its axes; None: one axis."""
    axes: tuple[int, int, int] = (0, 0, 0)
    """Frequencies of M-RoPE's three axes where `mrope_section` does not say."""
    temperature: Literal["llama4", "ministral"] | None = None
    first_row: int | Literal["pad"] = 0
    """Of a learned table: the row of position 0; pad: the row after the padding token's."""
    rows_beside: bool = False
    """Whether those first rows come on top of `max_position_embeddings`."""
    elsewhere: tuple[str, ...] = ()
    """Keys within rope_parameters that are read beside the scaling."""
    inert: Mapping[str, str] = field(default_factory=dict)
    """Position-like keys that published configs have and this architecture's code does not read, and why."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Keys that published configs have and the code does not read, with the only value that its code agrees with."""
    code: str | None = None
    """Whose code the facts are from, where it is not transformers'."""
    before: tuple[int, int] | None = None
    """The transformers version that first knew `theta_key`; configs written before it fix the default."""
    refusal: str | None = None


PARTS = {
    "aya_vision": "cohere2",
    "cohere2_vision": "cohere2",
    "exaone4_5": "exaone4",
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "kimi_k25": "deepseek_v3",
    "llama4": "llama4_text",
    "llava": "llama",
    "mistral3": "mistral",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
}
"""Models of several parts, and what their `text_config` is where it does not say."""

TEXTS = (("text_config",), ("llm_config",), ("language_config",), ("thinker_config", "text_config"))
"""Where models of several parts have their text part."""

REMOTE = {
    "baichuan": "Baichuan's positions (RoPE in the 7B models, ALiBi in the 13B ones) are chosen by its own code",
    "chatglm": "ChatGLM's positions are in its own code; the GLM-4 checkpoints whose names end in -hf state them",
    "qwen": "the first Qwen's dynamic NTK and log-n scaling are in its own code; Qwen1.5 and later state theirs",
    "minicpm": "MiniCPM's positions are in its own code",
    "phi3small": "Phi-3-small's block-sparse layers are in its own code",
}
"""Known by name, and refused: nothing but Python code says what they are, and that is not run."""


def find(model_type: str) -> Architecture | None:
    from ropewalk.checkpoints.architectures_table import TABLE

    return TABLE.get(model_type)


def names() -> tuple[str, ...]:
    from ropewalk.checkpoints.architectures_table import TABLE

    return tuple(sorted({*TABLE, *PARTS}))


@cache
def of_transformers(what: Literal["keys", "defaults", "gguf"]) -> Any:
    """Of each architecture, keys that are not about positions, or what a text part may leave out; such keys of GGUF."""
    return json.loads(Path(__file__).with_name("config_keys.json").read_text(encoding="utf-8"))[what]


def nearest(model_type: str) -> str:
    """What to say of a name that is not known: the one it misspells. A name that an engine has for an architecture of
    its own, and one that adds to a known name or has another number, is another architecture and no misspelling."""
    from ropewalk.checkpoints.engines.facts import known

    if any(model_type in known(engine)["types"] for engine in ("transformers5", "transformers4")):
        return ""
    for close in get_close_matches(model_type, names(), 3, 0.85):
        added = close.startswith(model_type) or model_type.startswith(close)
        if not added and re.findall(r"\d+", close) == re.findall(r"\d+", model_type):
            return f" (did you mean {close!r}?)"
    return ""
