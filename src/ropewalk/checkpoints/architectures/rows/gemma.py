"""Gemma: wide heads, and from the second generation on a window in most layers."""

from __future__ import annotations

from dataclasses import replace

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.architectures.in_engines import InGGUF, InLlamaCpp, InSGLang, InTransformers, InVLLM

_BOTH_WAYS = "use_bidirectional_attention"
_GEMMA2 = Architecture(pattern="every", every=2, defaults={"head_dim": 256, "sliding_window": 4096})
_GEMMA3 = Architecture(
    pattern="every",
    every=6,
    every_key="sliding_window_pattern",
    local_theta_key="rope_local_base_freq",
    scales_local=False,
    states_extended=True,
    both_ways_key=_BOTH_WAYS,
    defaults={
        "rope_theta": 1e6,
        "rope_local_base_freq": 10_000.0,
        "head_dim": 256,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "sliding_window": 4096,
        "max_position_embeddings": 131_072,
        "num_hidden_layers": 26,
        "hidden_size": 2304,
    },
    transformers=InTransformers(type_unread_in_5=True),
    vllm=InVLLM(windows="stated", length_as_stated=True),
)
_GEMMA4 = Architecture(
    pattern="every",
    every=6,
    last_full=True,
    both_ways_key=_BOTH_WAYS,
    experts="enable_moe_block",
    defaults={
        "head_dim": 256,
        "global_head_dim": 512,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "sliding_window": 512,
        "max_position_embeddings": 131_072,
        "num_hidden_layers": 30,
        "hidden_size": 2304,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
        },
    },
    theta_key=None,
    fraction_key=None,
    gguf_name="gemma4",
    vllm=InVLLM(windows="stated"),
    llama_cpp=InLlamaCpp(windows="written", flags="file"),
)

ROWS = {
    "gemma": Architecture(defaults={"head_dim": 256}, both_ways_key=_BOTH_WAYS, gguf=InGGUF()),
    "gemma2": replace(
        _GEMMA2,
        both_ways_key=_BOTH_WAYS,
        family="gemma2",
        gguf=InGGUF(window=4096, loads=True, norms_plus_one=True, scale_by_width_at=46),
        vllm=InVLLM(windows="stated"),
        llama_cpp=InLlamaCpp(windows="built in", flags="file"),
    ),
    "gemma3_text": replace(
        _GEMMA3,
        family="gemma3",
        gguf_name="gemma3",
        gguf=InGGUF(loads=True, norms_plus_one=True, scale_by_width_at=62, to_config=()),
        llama_cpp=InLlamaCpp(windows="built in", flags="file"),
        sglang=InSGLang(rotates_as_transformers=True),
    ),
    "gemma3n_text": replace(
        _GEMMA3,
        every=5,
        every_key=None,
        defaults={
            **_GEMMA3.defaults,
            "num_hidden_layers": 35,
            "sliding_window": 512,
            "max_position_embeddings": 32_768,
        },
        refusal="gemma3n mixes several streams of activations",
        gguf_name="gemma3n",
        llama_cpp=InLlamaCpp(windows="written", flags="file"),
    ),
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": replace(
        _GEMMA4,
        defaults={**_GEMMA4.defaults, "sliding_window": 1024, "max_position_embeddings": 262_144},
        experts=False,
        vllm=InVLLM(),
        llama_cpp=InLlamaCpp(),
    ),
    "vaultgemma": _GEMMA2,
}
