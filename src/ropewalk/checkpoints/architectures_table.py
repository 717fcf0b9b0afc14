"""The architectures that can be read, from the configuration_*.py and modeling_*.py of transformers 5.22.2.

A base (`rope_theta`) stands in `defaults` only where published checkpoints leave it out; where they state it, a config
without one has lost it, and 10,000 would be a guess that works for a thousand tokens.
"""

from __future__ import annotations

from dataclasses import replace

from ropewalk.checkpoints.architectures import Architecture

_FOR_PEOPLE = "a length, which changes no position"

ANYWHERE = {
    "max_seq_length": _FOR_PEOPLE,
    "max_sequence_length": _FOR_PEOPLE,
    "model_max_length": _FOR_PEOPLE,
    "tokenizer_model_max_length": _FOR_PEOPLE,
    "seq_length": _FOR_PEOPLE,
    "max_seq_len": _FOR_PEOPLE,
    "rope_ratio": "ChatGLM's key, folded into rope_theta by the conversion",
}
"""Keys that mean nothing on any architecture unless it reads them."""

REPEATS = {"sliding_window_size": "sliding_window", "n_ctx": "n_positions", "_sliding_window_pattern": "layer_types"}
"""Keys that say again what another one says: equal to it, or an error."""

_LLAMA = Architecture(
    defaults={"rope_theta": 10_000.0},
    before=(4, 33),
    implied={"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096, "max_position_embeddings": 2048},
)
_MISTRAL = Architecture(pattern="window", defaults={"sliding_window": 4096}, implied={"rope_theta": 10_000.0})
_QWEN2 = Architecture(pattern="late", defaults={"sliding_window": 4096, "max_window_layers": 28})
_GEMMA = Architecture(defaults={"head_dim": 256})
_GEMMA3 = Architecture(
    pattern="every",
    every=6,
    every_key="sliding_window_pattern",
    local_theta_key="rope_local_base_freq",
    scales_local=False,
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
)
_GEMMA4 = Architecture(
    pattern="every",
    every=6,
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
)
_GLM = Architecture(layout="pairs", defaults={"partial_rotary_factor": 0.5, "head_dim": 128})
_PHI = Architecture(defaults={"partial_rotary_factor": 0.5})
_LATENT = Architecture(
    layout="pairs",
    latent=True,
    gain_on_scores=True,
    experts=True,
    head_key=None,
    inert={"head_dim": "the head is qk_nope_head_dim + qk_rope_head_dim"},
)
_DEEPSEEK_V3 = replace(_LATENT, defaults={"rope_interleave": True, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64})
_NEXT = Architecture(
    pattern="linear",
    every=4,
    every_key="full_attention_interval",
    defaults={"partial_rotary_factor": 0.25, "head_dim": 256},
)
_VL = Architecture(
    pattern="late",
    sections="blocks",
    axes=(16, 24, 24),
    defaults={"sliding_window": 4096, "max_window_layers": 80},
    implied={"rope_theta": 1e6, "max_position_embeddings": 32_768},
    elsewhere=("mrope_section",),
)
_VL3 = Architecture(
    sections="interleaved",
    axes=(24, 20, 20),
    defaults={"head_dim": 128},
    implied={"rope_theta": 500_000.0, "max_position_embeddings": 128_000},
    elsewhere=("mrope_section", "mrope_interleaved"),
)
_NEXT_VL = replace(_NEXT, sections="interleaved", axes=(11, 11, 10), elsewhere=("mrope_section", "mrope_interleaved"))
_COHERE2 = Architecture(
    layout="pairs",
    head_key=None,
    pattern="every",
    every=4,
    every_key="sliding_window_pattern",
    rotates="sliding",
    defaults={"sliding_window": 4096},
    fixed={
        "rotary_pct": 1.0,
        "position_embedding_type": "rope_gptj",
        "order_of_interleaved_layers": "local_attn_first",
    },
)
_EXAONE4 = Architecture(
    pattern="every",
    every=4,
    every_key="sliding_window_pattern",
    rotates="sliding",
    defaults={"sliding_window": 4096},
)
_LEARNED = Architecture(kind="learned", stack="encoder", head_key=None)
_ROBERTA = replace(_LEARNED, first_row="pad")
_GPT2 = Architecture(
    kind="learned",
    layer_key="n_layer",
    heads_key="n_head",
    width_key="n_embd",
    head_key=None,
    longest_key="n_positions",
)
_GPTJ = replace(
    _GPT2,
    kind="rope",
    layout="pairs",
    theta_key=None,
    fraction_key=None,
    rotary_key="rotary_dim",
    defaults={"rope_theta": 10_000.0},
    fixed={"rotary": True},
)
_T5 = Architecture(
    kind="t5",
    stack="encoder-decoder",
    layer_key="num_layers",
    heads_key="num_heads",
    width_key="d_model",
    head_key="d_kv",
    longest_key="n_positions",
    defaults={"relative_attention_max_distance": 128, "relative_attention_num_buckets": 32},
)

TABLE: dict[str, Architecture] = {
    "apertus": Architecture(
        defaults={
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 12_000_000.0,
                "factor": 8.0,
                "original_max_position_embeddings": 8192,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
            }
        }
    ),
    "arcee": Architecture(),
    "bert": _LEARNED,
    "bitnet": Architecture(),
    "bloom": Architecture(
        kind="alibi",
        layer_key="n_layer",
        heads_key="n_head",
        head_key=None,
        longest_key="seq_length",
        inert={"offset_alibi": "a constant added to every key's score, which softmax takes out"},
    ),
    "camembert": _ROBERTA,
    "codegen": _GPTJ,
    "cohere": Architecture(layout="pairs", head_key=None),
    "cohere2": _COHERE2,
    "deepseek_v2": replace(_LATENT, defaults={"qk_nope_head_dim": 128, "qk_rope_head_dim": 64}),
    "deepseek_v3": _DEEPSEEK_V3,
    "diffllama": Architecture(refusal="diffllama subtracts two attentions"),
    "distilbert": replace(_LEARNED, layer_key="n_layers", heads_key="n_heads", width_key="dim"),
    "dots1": Architecture(experts=True, pattern="late", defaults={"sliding_window": 4096, "max_window_layers": 62}),
    "electra": _LEARNED,
    "ernie4_5": Architecture(layout="pairs", defaults={"head_dim": 128}),
    "ernie4_5_moe": Architecture(layout="pairs", experts=True),
    "exaone4": _EXAONE4,
    "exaone_moe": replace(_EXAONE4, experts=True),
    "falcon": Architecture(head_key=None, defaults={"rope_theta": 10_000.0, "max_position_embeddings": 2048}),
    "flex_olmo": Architecture(head_key=None, experts=True),
    "gemma": _GEMMA,
    "gemma2": Architecture(pattern="every", every=2, defaults={"head_dim": 256, "sliding_window": 4096}),
    "gemma3_text": _GEMMA3,
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
    ),
    "gemma4_text": _GEMMA4,
    "glm": _GLM,
    "glm4": _GLM,
    "glm4_moe": Architecture(defaults={"partial_rotary_factor": 0.5}, experts=True),
    "glm4_moe_lite": replace(_DEEPSEEK_V3, defaults={**_DEEPSEEK_V3.defaults, "qk_nope_head_dim": 192}),
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "gpt_neox": Architecture(
        theta_key="rotary_emb_base", fraction_key="rotary_pct", head_key=None, defaults={"rotary_pct": 0.25}
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
    ),
    "gptj": _GPTJ,
    "granite": Architecture(fixed={"position_embedding_type": "rope"}),
    "granitemoe": Architecture(experts=True, fixed={"position_embedding_type": "rope"}),
    "granitemoeshared": Architecture(experts=True, fixed={"position_embedding_type": "rope"}),
    "helium": Architecture(layout="pairs", defaults={"head_dim": 128}),
    "hyperclovax": Architecture(),
    "internlm2": Architecture(code="InternLM2's own code"),
    "internlm3": Architecture(code="InternLM3's own code"),
    "jais2": Architecture(),
    "kimi_k2": replace(_DEEPSEEK_V3, code="the DeepSeek V3 code that Kimi K2 ships"),
    "lfm2": Architecture(pattern="linear", head_key=None, fixed={"use_pos_enc": True}),
    "llama": _LLAMA,
    "llama4_text": Architecture(
        layout="pairs",
        pattern="chunked",
        rotates="listed",
        every=4,
        experts=True,
        temperature="llama4",
        window_key="attention_chunk_size",
        defaults={"head_dim": 128, "attention_chunk_size": 8192, "num_attention_heads": 40, "hidden_size": 5120},
        implied={"rope_theta": 500_000.0, "num_hidden_layers": 48, "max_position_embeddings": 131_072},
    ),
    "marian": Architecture(
        kind="sinusoidal",
        stack="encoder-decoder",
        layer_key="encoder_layers",
        heads_key="encoder_attention_heads",
        width_key="d_model",
        head_key=None,
        fixed={"static_position_embeddings": True},
        inert={"extra_pos_embeddings": "of BART, whose config Marian grew from"},
    ),
    "minimax": Architecture(pattern="linear", experts=True, rotary_key="rotary_dim"),
    "minimax_m2": Architecture(experts=True, rotary_key="rotary_dim", defaults={"head_dim": 128}),
    "ministral": Architecture(pattern="each", defaults={"sliding_window": 4096}),
    "ministral3": Architecture(
        pattern="window",
        temperature="ministral",
        defaults={"head_dim": 128},
        elsewhere=("llama_4_scaling_beta", "max_position_embeddings"),
    ),
    "mistral": _MISTRAL,
    "mistral4": replace(
        _LATENT,
        temperature="ministral",
        defaults={"rope_interleave": True, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64},
        elsewhere=("llama_4_scaling_beta", "max_position_embeddings"),
    ),
    "mixtral": Architecture(pattern="window", experts=True),
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
    ),
    "mpnet": Architecture(
        kind="mpnet",
        stack="encoder",
        head_key=None,
        first_row="pad",
        defaults={"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128},
    ),
    "mpt": Architecture(
        kind="alibi",
        layer_key="n_layers",
        heads_key="n_heads",
        width_key="d_model",
        head_key=None,
        longest_key="max_seq_len",
        inert={"learned_pos_emb": "its code has no such table"},
    ),
    "mt5": _T5,
    "nemotron": Architecture(defaults={"partial_rotary_factor": 0.5}),
    "olmo": Architecture(head_key=None),
    "olmo2": Architecture(head_key=None),
    "olmo3": Architecture(
        head_key=None, pattern="every", every=4, scales_local=False, defaults={"sliding_window": 4096}
    ),
    "olmoe": Architecture(head_key=None, experts=True),
    "opt": replace(_LEARNED, stack="decoder", first_row=2, rows_beside=True),
    "persimmon": Architecture(head_key=None, defaults={"partial_rotary_factor": 0.5}),
    "phi": _PHI,
    "phi3": Architecture(pattern="window", head_key=None, fixed={"full_attn_mod": 1}),
    "phimoe": Architecture(pattern="window", experts=True, head_key=None),
    "qwen2": _QWEN2,
    "qwen2_5_vl_text": _VL,
    "qwen2_moe": replace(_QWEN2, pattern="odd", experts=True),
    "qwen2_vl_text": _VL,
    "qwen3": replace(_QWEN2, defaults={**_QWEN2.defaults, "head_dim": 128}),
    "qwen3_5_moe_text": replace(_NEXT_VL, experts=True),
    "qwen3_5_text": _NEXT_VL,
    "qwen3_moe": Architecture(
        pattern="used",
        experts=True,
        defaults={"sliding_window": 4096},
        inert={"max_window_layers": "Qwen3-MoE has one window for all layers, or none"},
    ),
    "qwen3_next": replace(_NEXT, experts=True),
    "qwen3_vl_moe_text": replace(_VL3, experts=True, defaults={}),
    "qwen3_vl_text": _VL3,
    "roberta": _ROBERTA,
    "seed_oss": Architecture(defaults={"head_dim": 128}),
    "smollm3": Architecture(pattern="still", rotates="listed", every=4, head_key=None),
    "stablelm": Architecture(head_key=None, defaults={"partial_rotary_factor": 0.25}),
    "stablelm_epoch": Architecture(head_key=None, fraction_key="rope_pct", code="StableLM's own code"),
    "starcoder2": Architecture(pattern="window"),
    "t5": _T5,
    "umt5": replace(_T5, refusal="UMT5 has a bias table of its own in every layer"),
    "vaultgemma": Architecture(pattern="every", every=2, defaults={"head_dim": 256, "sliding_window": 4096}),
    "xlm-roberta": _ROBERTA,
}
