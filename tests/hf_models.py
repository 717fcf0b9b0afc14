"""Small random models of transformers, of kinds that differ in where their positions are."""

from __future__ import annotations

from typing import Any

import torch
import transformers

TRAINED, FACTOR = 64, 4.0
SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.2,
}
EXPERTS = {"num_experts_per_tok": 2, "n_routed_experts": 4, "n_shared_experts": 1, "moe_intermediate_size": 32}
LATENT: dict[str, Any] = {
    **SIZES,
    **EXPERTS,
    "num_key_value_heads": 4,
    "q_lora_rank": None,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 24,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
NAMES = ("llama", "qwen3", "gpt_oss", "gemma2", "gemma3", "deepseek_v2", "deepseek_v3")


def made(name: str, *, yarn: bool = False) -> Any:
    """The same weights with and without YaRN, as transformers builds it."""
    torch.manual_seed(0)
    length = {"max_position_embeddings": int(TRAINED * FACTOR) if yarn else TRAINED}
    rope = {"rope_parameters": rotation(1e4, yarn)}
    sizes = {**SIZES, **length}
    if name == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **rope)).eval()
    if name == "qwen3":
        return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**sizes, head_dim=16, **rope)).eval()
    if name == "gpt_oss":
        more = {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16}
        return transformers.GptOssForCausalLM(transformers.GptOssConfig(**sizes, **more, **rope)).eval()
    if name == "gemma2":
        config = transformers.Gemma2Config(**sizes, head_dim=16, sliding_window=16, **rope)
        return transformers.Gemma2ForCausalLM(config).eval()
    if name == "gemma3":
        types = ["sliding_attention", "full_attention", "sliding_attention"]
        both = {"full_attention": rotation(1e6, yarn), "sliding_attention": rotation(1e4, False)}
        config = transformers.Gemma3TextConfig(
            **sizes, head_dim=16, sliding_window=16, layer_types=types, rope_parameters=both
        )
        return transformers.Gemma3ForCausalLM(config).eval()
    latent = {**LATENT, **length}
    if name == "deepseek_v2":
        rope = {"rope_parameters": rotation(1e4, yarn, **({"mscale": 0.707, "mscale_all_dim": 0.707} if yarn else {}))}
        return transformers.DeepseekV2ForCausalLM(transformers.DeepseekV2Config(**latent, head_dim=16, **rope)).eval()
    rope = {"rope_parameters": rotation(1e4, yarn, **({"mscale": 1.0, "mscale_all_dim": 1.0} if yarn else {}))}
    return transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(**latent, **rope)).eval()


def rotation(base: float, yarn: bool, **more: float) -> dict[str, Any]:
    if not yarn:
        return {"rope_type": "default", "rope_theta": base}
    return {
        "rope_type": "yarn",
        "rope_theta": base,
        "factor": FACTOR,
        "original_max_position_embeddings": TRAINED,
        **more,
    }
