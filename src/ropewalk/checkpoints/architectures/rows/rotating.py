"""Other models that rotate queries and keys."""

from __future__ import annotations

from dataclasses import replace

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.architectures.in_engines import InGGUF, InLlamaCpp, InMLX, InSGLang, InTransformers, InVLLM

_EXAONE4 = Architecture(
    pattern="every",
    every=4,
    every_key="sliding_window_pattern",
    lettered=True,
    rotates="sliding",
    defaults={"sliding_window": 4096},
    vllm=InVLLM(windows="stated"),
    sglang=InSGLang(pattern_alone=True),
)
_GLM = Architecture(layout="pairs", defaults={"partial_rotary_factor": 0.5, "head_dim": 128})
_GPTJ = Architecture(
    layer_key="n_layer",
    heads_key="n_head",
    width_key="n_embd",
    head_key=None,
    longest_key="n_positions",
    layout="pairs",
    theta_key=None,
    fraction_key=None,
    rotary_key="rotary_dim",
    defaults={"rope_theta": 10_000.0},
    fixed={"rotary": True},
)

_GLM_VL = Architecture(layout="pairs", sections="blocks", axes=(8, 12, 12), elsewhere=("mrope_section",))
_GRANITE_SWA = Architecture(
    only_transformers=True,
    pattern="every",
    every=4,
    offset=0,
    head_key=None,
    bases_key="layer_rope_theta",
    defaults={"sliding_window": 128},
)
_STATE_SPACE = Architecture(pattern="recurrent", rotates="none")
_NESTED = Architecture(pattern="listed", experts=True, theta_key=None, fraction_key=None)
"""Full and sliding layers as layer_types lists them, each with a rotation of its own in rope_parameters."""

ROWS = {
    "afmoe": Architecture(
        pattern="every",
        every=4,
        every_key="global_attn_every_n_layers",
        rotates="sliding",
        needs_window=True,
        experts=True,
        defaults={"head_dim": 128, "sliding_window": 1024},
    ),
    "codegen": _GPTJ,
    "cohere": Architecture(layout="pairs", head_key=None, gguf_name="command-r", gguf=InGGUF()),
    "cohere2": Architecture(
        layout="pairs",
        head_key=None,
        pattern="every",
        every=4,
        every_key="sliding_window_pattern",
        rotates="sliding",
        rotates_without_windows=False,
        defaults={"sliding_window": 4096},
        fixed={
            "rotary_pct": 1.0,
            "position_embedding_type": "rope_gptj",
            "order_of_interleaved_layers": "local_attn_first",
        },
        gguf=InGGUF(),
        vllm=InVLLM(windows="one wider"),
        llama_cpp=InLlamaCpp(windows="built in", fourth_still="layer_types", flags="all"),
        sglang=InSGLang(one_wider=True),
    ),
    "cohere2_moe": Architecture(
        layout="pairs",
        pattern="every",
        every=4,
        every_key="sliding_window_pattern",
        prefix_key="prefix_dense_sliding_window_pattern",
        rotates="sliding",
        rotates_without_windows=False,
        experts=True,
        defaults={"sliding_window": 4096, "head_dim": 128},
    ),
    "dbrx": Architecture(
        only_transformers=True,
        layer_key="n_layers",
        heads_key="n_heads",
        width_key="d_model",
        head_key=None,
        longest_key="max_seq_len",
        theta_in="attn_config",
        experts=True,
        transformers=InTransformers(theta_in_unread_in_5=10_000.0),
    ),
    "ernie4_5": Architecture(layout="pairs", defaults={"head_dim": 128}, gguf=InGGUF()),
    "ernie4_5_moe": Architecture(layout="pairs", experts=True, gguf_name="ernie4_5-moe"),
    "eurobert": Architecture(stack="encoder"),
    "exaone4": replace(_EXAONE4, llama_cpp=InLlamaCpp(windows="at one size", layers=64, flags="all")),
    "exaone_moe": replace(
        _EXAONE4,
        experts=True,
        gguf_name="exaone-moe",
        llama_cpp=InLlamaCpp(windows="written"),
        mlx=InMLX(new_base_alone=True),
    ),
    "falcon": Architecture(
        head_key=None,
        defaults={"rope_theta": 10_000.0, "max_position_embeddings": 2048},
        alibi_key="alibi",
        gguf=InGGUF(),
    ),
    "falcon_h1": Architecture(refusal="falcon_h1 has a state-space branch beside its attention"),
    "falcon_mamba": _STATE_SPACE,
    "flex_olmo": Architecture(head_key=None, experts=True),
    "glm": replace(_GLM, gguf_name="chatglm"),
    "glm4": replace(_GLM, gguf=InGGUF()),
    "glm4_moe": Architecture(defaults={"partial_rotary_factor": 0.5}, experts=True, gguf_name="glm4moe", gguf=InGGUF()),
    "glm4v_moe_text": replace(_GLM_VL, layout="half", experts=True, defaults={"partial_rotary_factor": 0.5}),
    "glm4v_text": _GLM_VL,
    "glm_ocr_text": _GLM_VL,
    "gpt_neox": Architecture(
        theta_key="rotary_emb_base",
        fraction_key="rotary_pct",
        head_key=None,
        defaults={"rotary_pct": 0.25},
        family="gpt_neox",
        gguf_name="gptneox",
        gguf=InGGUF(),
    ),
    "gpt_oss": Architecture(
        pattern="every",
        every=2,
        experts=True,
        defaults={
            "head_dim": 64,
            "sliding_window": 128,
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 32.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 4096,
            },
        },
        inert={"initial_context_length": "the scaling's original_max_position_embeddings says it"},
        gguf_name="gpt-oss",
        gguf=InGGUF(scaling_in_transformers=True),
        vllm=InVLLM(windows="every other", yarn_without_gain=True),
        llama_cpp=InLlamaCpp(windows="built in", flags="file"),
    ),
    "gptj": _GPTJ,
    "granite_swa": _GRANITE_SWA,
    "granitemoe_swa": replace(_GRANITE_SWA, experts=True),
    "granitemoehybrid": Architecture(pattern="linear", experts=True, rotates_if=("position_embedding_type", "rope")),
    "gte": Architecture(stack="encoder"),
    "hrm_text": Architecture(
        defaults={"head_dim": 128},
        inert={"prefix_lm": "that a prompt sees itself both ways is a mask, and not in this plan"},
        refusal="hrm_text applies its layers over and over, and lets a prompt see itself both ways (prefix_lm)",
    ),
    "hunyuan_v1_dense": Architecture(alpha_is_ntk=True),
    "hunyuan_v1_moe": Architecture(alpha_is_ntk=True, experts=True),
    "hy_v3": Architecture(experts=True, defaults={"head_dim": 128}),
    "jamba": Architecture(
        pattern="linear",
        rotates="none",
        experts=True,
        every=8,
        every_key="attn_layer_period",
        offset=4,
        offset_key="attn_layer_offset",
    ),
    "jina_embeddings_v3": Architecture(stack="encoder"),
    "laguna": replace(
        _NESTED,
        defaults={
            "head_dim": 128,
            "sliding_window": 512,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 500_000.0, "partial_rotary_factor": 0.5},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 1.0},
            },
        },
    ),
    "lfm2": Architecture(
        pattern="linear",
        head_key=None,
        fixed={"use_pos_enc": True},
        transformers=InTransformers(reads_gguf_in_5=True),
    ),
    "lfm2_moe": Architecture(pattern="linear", head_key=None, experts=True),
    "mamba": _STATE_SPACE,
    "mamba2": _STATE_SPACE,
    "mellum": replace(
        _NESTED,
        defaults={
            "head_dim": 128,
            "sliding_window": 1024,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 500_000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            },
        },
    ),
    "mimo_v2_flash": Architecture(
        only_transformers=True,
        pattern="every",
        every=6,
        first_full=True,
        past_window_key="sliding_window_size",
        marks_key="hybrid_layer_pattern",
        marks={0: "full_attention", 1: "sliding_attention"},
        local_theta_key="swa_rope_theta",
        experts=True,
        defaults={
            "head_dim": 192,
            "sliding_window": 129,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 5e6, "partial_rotary_factor": 0.334},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.334},
            },
        },
        inert={"attention_chunk_size": "no layer of it is chunked"},
        harmless=("add_full_attention_sink_bias", "add_swa_attention_sink_bias"),
    ),
    "minimax": Architecture(
        pattern="linear", experts=True, rotary_key="rotary_dim", transformers=InTransformers(head_dim_null=(4, 5))
    ),
    "minimax_m2": Architecture(
        experts=True,
        rotary_key="rotary_dim",
        defaults={"head_dim": 128},
        gguf_name="minimax-m2",
        gguf=InGGUF(),
        llama_cpp=InLlamaCpp(flags="all"),
    ),
    "minimax_m3_vl_text": Architecture(
        only_transformers=True,
        pattern="sparse",
        experts=True,
        rotary_key="rotary_dim",
        marks_key="sparse_attention_config.sparse_attention_freq",
        marks={0: "full_attention", 1: "indexed_attention"},
        indexer="half",
        defaults={"head_dim": 128, "rotary_dim": 64, "index_head_dim": 128},
        transformers=InTransformers(rotary_key_unread_in_5=True),
    ),
    "modernbert": Architecture(
        stack="encoder",
        pattern="first",
        every=3,
        every_key="global_attn_every_n_layers",
        window_key="local_attention",
        theta_key="global_rope_theta",
        local_theta_key="local_rope_theta",
        head_key=None,
        defaults={"global_rope_theta": 160_000.0, "local_rope_theta": 10_000.0, "local_attention": 128},
        fixed={"position_embedding_type": "absolute"},
        gguf_name="modern-bert",
        gguf=InGGUF(),
        vllm=InVLLM(windows="stated", windows_unread_in_transformers=True),
        llama_cpp=InLlamaCpp(windows="first", flags="file"),
    ),
    "muse_glimmer_text": Architecture(
        only_transformers=True,
        pattern="every",
        every=4,
        offset=-1,
        rotates="sliding",
        needs_window=True,
        bases_key="layer_rope_theta",
        bases_mark=True,
        defaults={"head_dim": 128, "sliding_window": 2048},
    ),
    "nemotron": Architecture(
        defaults={"partial_rotary_factor": 0.5},
        gguf=InGGUF(),
        transformers=InTransformers(no_scaling_in_4=True),
        mlx=InMLX(takes=("linear",), needs_type=True),
    ),
    "nemotron_h": Architecture(
        pattern="linear",
        rotates="none",
        types_key="layers_block_type",
        marks_key="hybrid_override_pattern",
        marks={"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"},
    ),
    "nomic_bert": Architecture(stack="encoder"),
    "olmo": Architecture(head_key=None, gguf=InGGUF(layout="pairs"), transformers=InTransformers(two_keys_in_4=True)),
    "olmo2": Architecture(
        head_key=None,
        family="olmo2",
        gguf=InGGUF(with_windows="olmo3"),
        transformers=InTransformers(two_keys_in_4=True),
    ),
    "olmo3": Architecture(
        head_key=None,
        pattern="every",
        every=4,
        scales_local=False,
        defaults={"sliding_window": 4096},
        gguf_name="olmo2",
        transformers=InTransformers(sliding_theta_in_5=500_000.0),
        llama_cpp=InLlamaCpp(windows="written", flags="base"),
    ),
    "olmoe": Architecture(head_key=None, experts=True, gguf=InGGUF()),
    "paddleocr_vl_text": Architecture(
        sections="blocks", axes=(16, 24, 24), elsewhere=("mrope_section",), defaults={"head_dim": 128}
    ),
    "persimmon": Architecture(
        head_key=None, defaults={"partial_rotary_factor": 0.5}, sglang=InSGLang(part_at_top=True)
    ),
    "phi": Architecture(
        defaults={"partial_rotary_factor": 0.5}, gguf_name="phi2", gguf=InGGUF(), sglang=InSGLang(part_at_top=True)
    ),
    "phi3": Architecture(
        pattern="window",
        head_key=None,
        yarn_is_longrope=True,
        fixed={"full_attn_mod": 1},
        family="phi3",
        gguf=InGGUF(windows_off=True),
        transformers=InTransformers(
            longrope_alone=True, restarts_cache=True, longrope_in_three_keys_in_4=True, trained_in_4=4096
        ),
        vllm=InVLLM(windows="stated"),
        llama_cpp=InLlamaCpp(windows="off", flags="all"),
        mlx=InMLX(takes=("linear", "longrope"), drops_others=True, needs_type=True),
    ),
    "phimoe": Architecture(
        pattern="window",
        experts=True,
        head_key=None,
        states_gains=True,
        transformers=InTransformers(
            longrope_alone=True, restarts_cache=True, never_long=True, trained_within_in_4=True
        ),
        vllm=InVLLM(windows="stated"),
        llama_cpp=InLlamaCpp(windows="none", graph="its phimoe graph"),
    ),
    "stablelm": Architecture(
        head_key=None, defaults={"partial_rotary_factor": 0.25}, gguf=InGGUF(), sglang=InSGLang(part_at_top=True)
    ),
    "stablelm_epoch": Architecture(head_key=None, fraction_key="rope_pct", code="StableLM's own code"),
    "starcoder2": Architecture(
        pattern="window",
        gguf=InGGUF(),
        llama_cpp=InLlamaCpp(windows="none", graph="its starcoder2 graph", flags="all"),
    ),
    "step3p5": replace(
        _NESTED,
        only_transformers=True,
        theta_key="rope_theta",
        fractions_key="partial_rotary_factors",
        defaults={"rope_theta": 10_000.0, "head_dim": 128},
        fixed={"yarn_only_types": ["full_attention"], "use_rope_layers": []},
    ),
}
