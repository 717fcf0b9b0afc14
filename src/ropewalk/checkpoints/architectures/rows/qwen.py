"""Qwen: plain decoders, mixtures of experts, vision models with M-RoPE, and those with linear attention."""

from __future__ import annotations

from dataclasses import replace

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.architectures.in_engines import InGGUF, InLlamaCpp, InMLX, InSGLang, InTransformers, InVLLM

_QWEN2 = Architecture(
    pattern="late",
    defaults={"sliding_window": 4096, "max_window_layers": 28},
    family="qwen2",
    one_rotation=True,
    written_as_gguf=True,
    gguf=InGGUF(loads=True, always_biased=True, to_config=("use_sliding_window",)),
    vllm=InVLLM(windows="all or none"),
    llama_cpp=InLlamaCpp(windows="none", graph="its qwen2 graph", flags="all"),
)
_VL = Architecture(
    pattern="late",
    sections="blocks",
    axes=(16, 24, 24),
    defaults={"sliding_window": 4096, "max_window_layers": 80},
    implied={"rope_theta": 1e6, "max_position_embeddings": 32_768},
    elsewhere=("mrope_section",),
    gguf_name="qwen2vl",
    vllm=InVLLM(windows="all or none", table_four_times=True),
    llama_cpp=InLlamaCpp(windows="none", graph="its qwen2vl graph"),
)
_VL3 = Architecture(
    sections="interleaved",
    axes=(24, 20, 20),
    implied={"rope_theta": 500_000.0, "max_position_embeddings": 128_000},
    elsewhere=("mrope_section", "mrope_interleaved"),
)
_NEXT = Architecture(
    pattern="linear",
    every=4,
    every_key="full_attention_interval",
    defaults={"partial_rotary_factor": 0.25, "head_dim": 256},
)
_NEXT_VL = replace(
    _NEXT,
    sections="interleaved",
    axes=(11, 11, 10),
    elsewhere=("mrope_section", "mrope_interleaved"),
    transformers=InTransformers(reads_gguf_in_5=True),
)

ROWS = {
    "qwen2": _QWEN2,
    "qwen2_5_omni_text": replace(_VL, defaults={"sliding_window": 32_768, "max_window_layers": 28}),
    "qwen2_5_vl_text": _VL,
    "qwen2_moe": Architecture(
        pattern="odd",
        defaults={"sliding_window": 4096, "max_window_layers": 28},
        experts=True,
        gguf_name="qwen2moe",
        gguf=InGGUF(),
        transformers=InTransformers(one_mask_in_4=True),
        vllm=InVLLM(windows="all"),
        llama_cpp=InLlamaCpp(windows="none", graph="its qwen2moe graph", flags="all"),
        mlx=InMLX(takes=("linear",), needs_type=True),
    ),
    "qwen2_vl_text": replace(_VL, gguf=InGGUF()),
    "qwen3": replace(
        _QWEN2,
        defaults={"sliding_window": 4096, "max_window_layers": 28, "head_dim": 128},
        family="qwen3",
        gguf=InGGUF(loads=True, to_config=("attention_bias", "use_sliding_window")),
        llama_cpp=InLlamaCpp(windows="none", graph="its qwen3 graph", flags="all"),
    ),
    "qwen3_5_moe_text": replace(_NEXT_VL, experts=True, gguf_name="qwen35moe"),
    "qwen3_5_text": replace(_NEXT_VL, gguf_name="qwen35"),
    "qwen3_moe": Architecture(
        pattern="used",
        experts=True,
        defaults={"sliding_window": 4096},
        inert={"max_window_layers": "Qwen3-MoE has one window for all layers, or none"},
        gguf_name="qwen3moe",
        gguf=InGGUF(),
        vllm=InVLLM(windows="stated"),
        llama_cpp=InLlamaCpp(windows="none", graph="its qwen3moe graph", flags="all"),
    ),
    "qwen3_next": replace(
        _NEXT, experts=True, gguf_name="qwen3next", sglang=InSGLang(needs=("full_attention_interval",))
    ),
    "qwen3_vl_moe_text": replace(_VL3, experts=True, gguf_name="qwen3vlmoe"),
    "qwen3_vl_text": replace(_VL3, defaults={"head_dim": 128}, gguf_name="qwen3vl", gguf=InGGUF()),
    "qwen4_exp_text": replace(
        _NEXT_VL,
        experts=True,
        defaults={"head_dim": 256},
        indexer="half",
        index_key="indexer_head_dim",
        index_block_key="indexer_compress_ratio",
        transformers=InTransformers(),
    ),
}
