"""Multi-head latent attention (MLA): DeepSeek and its heirs."""

from __future__ import annotations

from dataclasses import replace

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.architectures.in_engines import InGGUF, InLlamaCpp

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
    "deepseek_v2": replace(_LATENT, defaults={"qk_nope_head_dim": 128, "qk_rope_head_dim": 64}, gguf_name="deepseek2"),
    "deepseek_v3": replace(_DEEPSEEK_V3, gguf=InGGUF(log_multiplier_in_tenths=True)),
    "glm4_moe_lite": replace(_DEEPSEEK_V3, defaults={**_DEEPSEEK_V3.defaults, "qk_nope_head_dim": 192}),
    "kimi_k2": replace(
        _DEEPSEEK_V3, code="the DeepSeek V3 code that Kimi K2 ships", class_name="DeepseekV3ForCausalLM"
    ),
    "mistral4": replace(
        _LATENT,
        temperature="ministral",
        defaults={"rope_interleave": True, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64},
        elsewhere=("llama_4_scaling_beta", "max_position_embeddings"),
        llama_cpp=InLlamaCpp(temperature="dropped"),
    ),
}
