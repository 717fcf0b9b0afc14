"""Multi-head latent attention (MLA): DeepSeek and its heirs."""

from __future__ import annotations

from dataclasses import replace

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.architectures.in_engines import InGGUF, InLlamaCpp, InMLX, InTransformers

_LATENT = Architecture(
    layout="pairs",
    latent=True,
    gain_on_scores=True,
    experts=True,
    head_key=None,
    inert={"head_dim": "the head is qk_nope_head_dim + qk_rope_head_dim"},
)
_DEEPSEEK_V3 = replace(
    _LATENT,
    defaults={"rope_interleave": True, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
    gguf_name="deepseek2",
)

ROWS = {
    "axk1": _DEEPSEEK_V3,
    "deepseek_v2": replace(
        _LATENT,
        defaults={"qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
        gguf_name="deepseek2",
        mlx=InMLX(needs_scaling=True),
    ),
    "deepseek_v3": replace(_DEEPSEEK_V3, gguf=InGGUF(log_multiplier_in_tenths=True)),
    "deepseek_v32": replace(
        _LATENT, pattern="indexed", indexer="half", defaults={"qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
    ),
    "deepseek_v4": Architecture(
        only_transformers=True,
        layout="pairs",
        pattern="compressed",
        experts=True,
        rotates_last=True,
        turns_values=True,
        theta_key="compress_rope_theta",
        local_theta_key="rope_theta",
        scales_local=False,
        yarn_gain=1.0,
        rope_labels={"compress": "full_attention", "main": "sliding_attention"},
        rotary_key="qk_rope_head_dim",
        marks_key="compress_ratios",
        marks={0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"},
        indexer="pairs",
        indexer_last=True,
        defaults={
            "compress_rope_theta": 160_000.0,
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 0.125,
            "head_dim": 512,
            "sliding_window": 128,
            "index_head_dim": 128,
        },
    ),
    "glm4_moe_lite": replace(_DEEPSEEK_V3, defaults={**_DEEPSEEK_V3.defaults, "qk_nope_head_dim": 192}),
    "glm5_next_text": Architecture(
        pattern="linear",
        every=4,
        rotates="none",
        experts=True,
        fixed={"qk_rope_head_dim": 0, "head_dim": 0},
        inert={"qk_nope_head_dim": "no feature rotates"},
    ),
    "glm_moe_dsa": replace(
        _LATENT, pattern="indexed", indexer="pairs", defaults={"qk_nope_head_dim": 192, "qk_rope_head_dim": 64}
    ),
    "hy_v4": replace(
        _LATENT,
        layout="half",
        pattern="indexed",
        indexer="half",
        indexer_last=True,
        defaults={"qk_nope_head_dim": 192, "qk_rope_head_dim": 64},
    ),
    "kimi_k2": replace(
        _DEEPSEEK_V3, code="the DeepSeek V3 code that Kimi K2 ships", class_name="DeepseekV3ForCausalLM"
    ),
    "kimi_linear": Architecture(
        pattern="linear",
        rotates="none",
        experts=True,
        numbers_in="linear_attn_config",
        longest_key="model_max_length",
        fixed={"mla_use_nope": True},
        inert={
            "head_dim": "no feature rotates",
            "qk_nope_head_dim": "no feature rotates",
            "qk_rope_head_dim": "no feature rotates",
        },
    ),
    "longcat_flash": replace(
        _LATENT,
        layer_key="num_layers",
        defaults={"qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
        refusal="longcat_flash has two attentions in a layer",
    ),
    "minicpm3": replace(
        _LATENT,
        layout="half",
        experts=False,
        defaults={"rope_theta": 10_000.0, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32},
    ),
    "mistral4": replace(
        _LATENT,
        temperature="ministral",
        filled_in="YaRN x128 from 8,192 tokens with the base 10,000",
        defaults={"rope_interleave": True, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64},
        elsewhere=("llama_4_scaling_beta", "max_position_embeddings"),
        llama_cpp=InLlamaCpp(temperature="dropped"),
        transformers=InTransformers(scaling_drops_part_in_5=True),
    ),
    "youtu": replace(_DEEPSEEK_V3, experts=False, gguf_name=None),
}
