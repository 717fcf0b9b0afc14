"""Which config keys say nothing of positions, read from transformers' own classes.

Written to src/ropewalk/checkpoints/architectures/config_keys.json:

    python scripts/config_keys.py

For every architecture that can be read: the fields its config class declares, without those that are about positions.
All names that the classes declare were looked at one by one: `ABOUT` are about positions, `BESIDE` are not, and a name
in neither (a later transformers has new ones) ends the script, so that a person looks at it. What is in no list is
named in the answer of `ropewalk inspect`. Beside it: what each class takes for keys that a text part leaves out.
"""

from __future__ import annotations

import dataclasses
import json
import textwrap
from pathlib import Path

from gguf.constants import Keys
from transformers import CONFIG_MAPPING, GenerationConfig, PreTrainedConfig

from ropewalk.checkpoints.architectures.table import TABLE

TARGET = Path(__file__).parents[1] / "src" / "ropewalk" / "checkpoints" / "architectures" / "config_keys.json"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ABOUT = _names("""
    _sliding_window_pattern alibi attention_chunk_size attn_config attn_layer_offset attn_layer_period attn_scale
    attn_temperature_tuning compress_rates compress_rope_theta cross_attention_layers floor_scale full_attn_idxs
    global_attn_every_n_layers head_dim index_head_dim indexer_compress_ratio indexer_head_dim is_decoder
    layer_rope_theta layer_types learned_pos_emb local_attention max_position_embeddings max_seq_len
    max_source_positions max_target_positions max_window_layers model_max_length n_ctx n_positions
    no_rope_layer_interval no_rope_layers original_max_position_embeddings partial_rotary_factor per_layer_config
    position_embedding_type prefix_dense_sliding_window_pattern prefix_lm qk_nope_head_dim qk_rope_head_dim
    relative_attention_max_distance relative_attention_num_buckets rope_interleave rope_parameters rope_scaling
    rope_theta rotary_dim sinusoidal_pos_embds sliding_window sliding_window_pattern use_bidirectional_attention
    use_sliding_window
""")
"""Declared by some class and about positions: what is rotated, by what, which layers, how far they see, what length."""

BESIDE = _names("""
    H_cycles L_bp_cycles L_cycles _remove_final_layer_norm activation activation_dropout activation_function
    activation_sparsity_pattern add_cross_attention altup_active_idx altup_coef_clip altup_correct_scale
    altup_num_inputs apply_residual_connection_post_layernorm apply_spec_augment attention_in_multiplier
    attention_k_eq_v attention_multiplier attention_out_bias attention_out_multiplier attention_probs_dropout_prob
    attention_softmax_in_fp32 attention_value_scale attn_logit_softcapping attn_pdrop bias block_auto_adjust_ff_dim
    block_ffn_dim_multiplier block_multiple_of block_size chunk_size classifier_activation classifier_bias
    classifier_dropout classifier_pooling classifier_proj_size clip_qkv cls_token_id conv_L_cache conv_bias
    conv_kernel d_ff d_kv d_model decoder_attention_heads decoder_bias decoder_ffn_dim decoder_layerdrop
    decoder_layers decoder_sparse_step decoder_vocab_size dense_act_fn dense_intermediate_size
    deterministic_flash_attn dim dim_model_base do_layer_norm_before dropout dropout_rate emb_pdrop embd_pdrop
    embedding_dropout embedding_fraction embedding_initializer_range embedding_multiplier embedding_scale
    embedding_size enable_bias enable_moe_block enable_moe_fp32_combine encoder_attention_heads encoder_ffn_dim
    encoder_layerdrop encoder_layers eod_token_id expand expansion_ratio expert_ffn_hidden_size expert_layer_offset
    expert_layer_period expert_selection_fn feed_forward_proj ffn_config ffn_dim ffn_hidden_size
    final_logit_softcapping first_k_dense_replace full_attn_alpha_factor full_attn_beta_factor gating hc_count hc_eps
    hc_lowrank hc_magnitude hc_mult hc_sinkhorn_iters heads_per_ngram hidden_act hidden_activation hidden_dim
    hidden_dropout hidden_dropout_prob hidden_size hidden_size_per_layer_input index_block_size index_kpool
    index_kpool_always_select_tail index_local_blocks index_n_heads index_topk index_topk_blocks indexer_budget
    indexer_kv_heads indexer_n_heads indexer_types init_device init_std initializer_cutoff_factor initializer_factor
    initializer_range input_jitter_noise interleave_moe_layer_step intermediate_size intermediate_size_mlp
    is_gated_act key_multiplier kv_lora_rank lambda_std_dev laurel_rank layer_norm_elementwise_affine layer_norm_eps
    layer_norm_epsilon layerdrop layers_block_type learnable_sink_init linear_attn_alpha_factor
    linear_attn_beta_factor linear_conv_kernel_dim linear_head_dim linear_key_head_dim linear_lower_bound
    linear_num_heads linear_num_key_heads linear_num_value_heads linear_value_head_dim lm_head_bias lm_head_multiplier
    logit_scale logits_scaling make_ngram_vocab_size_divisible_by mamba_chunk_size mamba_conv_bias mamba_d_conv
    mamba_d_head mamba_d_ssm mamba_d_state mamba_dt_rank mamba_expand mamba_head_dim mamba_hidden_act mamba_n_groups
    mamba_n_heads mamba_norm_before_gate mamba_num_heads mamba_proj_bias mamba_rms_norm mamba_ssm_cache_dtype
    mask_feature_length mask_feature_min_masks mask_feature_prob mask_time_length mask_time_min_masks mask_time_prob
    mask_token_id median_filter_width mixer_rms_eps mlp_alpha_factor mlp_beta_factor mlp_dropout mlp_hidden_act
    mlp_layer_types mlp_multipliers mlp_only_layers moe_apply_router_weight_on_input moe_intermediate_size moe_k
    moe_latent_size moe_layer_end_index moe_layer_interval moe_layer_start_index moe_layers moe_norm_min
    moe_num_experts moe_num_shared_experts moe_renormalize moe_routed_scaling_factor moe_router_logit_softcapping
    moe_router_scaling_factor moe_shared_expert_intermediate_size moe_shared_expert_overlap moe_top_k moe_topk
    mtp_layer_types mtp_layers_block_type mtp_mlp_layer_types multi_query mup_enabled n_embd n_group n_groups n_head
    n_heads n_inner n_layer n_layers n_routed_experts n_shared_experts new_decoder_architecture ngram_size
    ngram_vocab_size_base no_bias norm_bias norm_eps norm_epsilon norm_topk_prob norm_type num_attention_groups
    num_attention_heads num_attention_heads_per_layer num_decoder_layers num_dense_layers num_expert_group num_experts
    num_experts_per_tok num_experts_per_token num_heads num_hidden_layers num_key_value_heads num_kv_heads
    num_kv_shared_layers num_layers num_layers_per_stack num_ln_in_parallel_attn num_local_experts num_logits_to_keep
    num_mel_bins num_mtp_layers num_nextn_predict_layers num_shared_experts num_sliding_attention_heads
    number_of_conv_states o_groups o_lora_rank output_gate_type output_multiplier output_router_logits parallel_attn
    ple_conv_kernel_size ple_embed_dim ple_layer_ids post_norm_eps prefix_dense_intermediate_size projectors_bias
    q_lora_rank qa_dropout qk_head_dim qk_layernorm qk_scale_factor qkv_bias query_pre_attn_scalar
    reorder_and_upcast_attn rescale_prenorm_residual resid_pdrop residual_dropout residual_in_fp32 residual_multiplier
    rms_norm_eps route_scale routed_scaling_factor router_aux_loss_coef router_jitter_noise router_scaling_factor
    scale_attention_softmax_in_fp32 scale_attn_by_inverse_layer_idx scale_attn_weights scale_decoder_outputs
    scale_depth scale_emb scale_embedding seed sep_token_id seq_classif_dropout share_encoder_decoder_embeddings
    share_expert_dim share_expert_dims shared_expert_combination_strategy shared_expert_intermediate_size
    shared_intermediate_size slow_but_exact sparse_pred_ignore_index sparse_prediction split_ngram_parts
    ssm_in_multiplier ssm_multipliers ssm_out_multiplier ssm_state_size state_size summary_activation
    summary_first_dropout summary_last_dropout summary_proj_to_labels summary_type summary_use_proj swiglu_alpha
    swiglu_limit swiglu_limits swiglu_limits_shared tie_word_embeddings time_step_floor time_step_init_scheme
    time_step_limit time_step_max time_step_min time_step_rank time_step_scale top_k_experts topk_group topk_method
    type_vocab_size use_associative_scan use_bias use_conv_bias use_double_wide_mlp use_expert_bias use_mamba_kernels
    use_mambapy use_parallel_residual use_post_norm use_qk_norm use_weighted_layer_sum v_head_dim vocab_size
    vocab_size_per_layer_input word_embed_proj_dim zero_expert_num
""")
"""Declared by some class and not about positions: sizes, norms, dropout, experts, tokens, heads of tasks."""

OLDER = _names("""
    _attn_implementation _attn_implementation_autoset _attn_implementation_internal _commit_hash _experts_implementation
    attn_implementation auto_map compression_config cross_attention_hidden_size custom_pipelines experts_implementation
    finetuning_task gradient_checkpointing num_labels output_past prefix pruned_heads quantization_config
    task_specific_params tf_legacy_loss tie_encoder_decoder tokenizer_class torch_dtype torchscript unsloth_fixed
    unsloth_version use_bfloat16
""")
"""Written into any config by other versions of transformers, its hub or trainers."""

PUBLISHED = {
    "everywhere": """
        add_cross_attention attention_bias attention_dropout aux_loss_alpha ep_size mlp_bias moe_layer_freq
        pretraining_tp scoring_func seq_aux tie_word_embeddings use_flash_attention use_flash_attn use_flash_attn_2
        use_qkv_bias
    """,
    "deepseek_v3": "topk_method",
    "exaone": "activation_function embed_dropout layer_norm_epsilon num_layers",
    "gemma2": "hidden_act",
    "gemma4_text": "num_global_key_value_heads",
    "gpt_oss": "experts_per_token",
    "internlm2": "bias",
    "internlm3": "bias qkv_bias",
    "llama": "is_llama_config",
    "minimax_text_01": """
        layernorm_full_attention_alpha layernorm_full_attention_beta layernorm_linear_attention_alpha
        layernorm_linear_attention_beta layernorm_mlp_alpha layernorm_mlp_beta postnorm shared_moe_mode
    """,
    "minimax_m2": """
        layernorm_full_attention_alpha layernorm_full_attention_beta layernorm_linear_attention_alpha
        layernorm_linear_attention_beta layernorm_mlp_alpha layernorm_mlp_beta num_mtp_modules mtp_transformer_layers
        qk_norm_type shared_moe_mode use_mtp use_routing_bias
    """,
    "nemotron-nas": "block_configs",
    "neobert": "classifier_init_range decoder_init_range dim_head embedding_init_range norm_eps",
    "phi3": "lm_head_bias",
    "phimoe": "hidden_dropout",
    **dict.fromkeys(
        ("qwen3_5_text", "qwen3_5_moe_text"),
        "attn_output_gate mamba_ssm_dtype mlp_only_layers mtp_num_hidden_layers mtp_use_dedicated_embeddings",
    ),
    **dict.fromkeys(
        ("qwen2_vl_text", "qwen2_5_vl_text"),
        "vision_config image_token_id video_token_id vision_start_token_id vision_end_token_id vision_token_id",
    ),
}
"""Keys that checkpoints have from the code they were trained with, looked at one by one; an architecture or all."""


ABOUT_GGUF = _names("""
    attention.causal attention.key_length attention.key_length_mla attention.key_length_swa attention.max_alibi_bias
    attention.relative_buckets_count attention.sliding_window attention.sliding_window_pattern
    attention.temperature_length attention.temperature_scale block_count context_length full_attention_interval
""")
"""Keys of GGUF files that are about positions, beside all that start with rope."""

LIKE = {
    "exaone": "llama",
    "internlm2": "llama",
    "internlm3": "llama",
    "kimi_k2": "deepseek_v3",
    "minimax_text_01": "minimax",
    "nemotron-nas": "llama",
    "neobert": "bert",
    "stablelm_epoch": "stablelm",
}
"""Architectures that transformers has no class for, and the class their own is a copy of."""


def declared(model_type: str) -> set[str]:
    found = CONFIG_MAPPING[model_type]
    fields = {field.name for field in dataclasses.fields(found)}
    # Some classes write more than they declare.
    return {*fields, *found.attribute_map, *found.attribute_map.values(), *found().to_dict()}


def config_keys() -> dict[str, list[str]]:
    """The names under "everywhere", and of each architecture those it has besides."""
    shared = {field.name for field in dataclasses.fields(PreTrainedConfig)} | {*PreTrainedConfig().to_dict()}
    shared |= {*GenerationConfig().to_dict()} | OLDER | {*PUBLISHED["everywhere"].split()}
    types = {name: declared(LIKE.get(name, name)) - shared for name in sorted(TABLE)}
    if unseen := set().union(*types.values()) - ABOUT - BESIDE:
        raise SystemExit(f"nobody has looked at {', '.join(sorted(unseen))}; put each in ABOUT or in BESIDE")
    found = {name: sorted(keys - ABOUT | {*PUBLISHED.get(name, "").split()}) for name, keys in types.items()}
    return {"everywhere": sorted(shared), **found}


def defaults() -> dict[str, dict[str, int | float]]:
    """What each class takes for sizes, length, base and part of the head; a text part's config may leave them out."""
    found: dict[str, dict[str, int | float]] = {}
    for name, known in TABLE.items():
        made = CONFIG_MAPPING[LIKE.get(name, name)]()
        plain = {field.name: field.default for field in dataclasses.fields(made)}
        rope = getattr(made, "rope_parameters", None) or {}
        values = {key: getattr(made, key, None) for key in (known.layer_key, known.heads_key, known.width_key)}
        values[known.longest_key] = getattr(made, known.longest_key, None)
        if known.head_key is not None:
            values[known.head_key] = plain.get(known.head_key)
        if known.theta_key is not None and rope.get("rope_type") == "default":
            values[known.theta_key] = rope["rope_theta"]
        if known.fraction_key is not None and "partial_rotary_factor" in rope:
            values[known.fraction_key] = rope["partial_rotary_factor"]
        found[name] = {key: value for key, value in values.items() if isinstance(value, int | float)}
    return found


def gguf_keys() -> list[str]:
    """The keys of an architecture that the gguf package names, without those about positions."""
    groups = [vars(group).values() for group in vars(Keys).values() if isinstance(group, type)]
    named = {key.removeprefix("{arch}.") for group in groups for key in group if str(key).startswith("{arch}.")}
    return sorted(key for key in named if not key.startswith("rope.") and key not in ABOUT_GGUF)


def main() -> None:
    made = {"keys": config_keys(), "defaults": defaults(), "gguf": gguf_keys()}
    wrapped = textwrap.fill(json.dumps(made), 118, break_long_words=False, break_on_hyphens=False)
    TARGET.write_text(wrapped + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
