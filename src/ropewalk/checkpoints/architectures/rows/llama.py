"""Llama, Mistral and those whose attention is theirs."""

from __future__ import annotations

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.architectures.in_engines import InGGUF, InLlamaCpp, InMLX, InTransformers, InVLLM

_PAIRS = InGGUF(layout="pairs")

ROWS = {
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
        },
        gguf=InGGUF(),
    ),
    "arcee": Architecture(gguf=_PAIRS),
    "bitnet": Architecture(),
    "diffllama": Architecture(refusal="diffllama subtracts two attentions"),
    "dots1": Architecture(
        experts=True,
        pattern="late",
        defaults={"sliding_window": 4096, "max_window_layers": 62},
        llama_cpp=InLlamaCpp(windows="none", graph="its dots1 graph"),
    ),
    "exaone": Architecture(
        code="EXAONE 3's own code",
        class_name="ExaoneForCausalLM",
        layer_key="num_layers",
    ),
    "granite": Architecture(fixed={"position_embedding_type": "rope"}, gguf=_PAIRS),
    "granitemoe": Architecture(experts=True, fixed={"position_embedding_type": "rope"}),
    "granitemoeshared": Architecture(experts=True, fixed={"position_embedding_type": "rope"}, gguf_name="granitemoe"),
    "helium": Architecture(layout="pairs", defaults={"head_dim": 128}),
    "hyperclovax": Architecture(),
    "internlm2": Architecture(
        code="InternLM2's own code",
        class_name="InternLM2ForCausalLM",
        gguf=_PAIRS,
        mlx=InMLX(takes=("linear", "dynamic"), needs_type=True),
    ),
    "internlm3": Architecture(code="InternLM3's own code", class_name="InternLM3ForCausalLM", gguf_name="llama"),
    "jais2": Architecture(),
    "llama": Architecture(
        defaults={"rope_theta": 10_000.0},
        before=(4, 33),
        implied={
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "hidden_size": 4096,
            "max_position_embeddings": 2048,
        },
        family="llama",
        one_rotation=True,
        written_as_gguf=True,
        gguf=InGGUF(layout="pairs", loads=True, divisors=True, to_config=("attention_bias", "mlp_bias")),
        llama_cpp=InLlamaCpp(flags="all"),
    ),
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
        gguf_name="llama4",
        transformers=InTransformers(llama3_alone_in_4=True),
        vllm=InVLLM(windows="stated", temperature="stated"),
        llama_cpp=InLlamaCpp(
            windows="built in", window=8192, fourth_still="no_rope_layers", temperature="built in", flags="file"
        ),
    ),
    "ministral": Architecture(
        pattern="each", defaults={"sliding_window": 4096}, transformers=InTransformers(head_dim_null=(4, 5))
    ),
    "ministral3": Architecture(
        pattern="window",
        temperature="ministral",
        filled_in="YaRN x16 from 16,384 tokens with the base 1,000,000",
        defaults={"head_dim": 128},
        elsewhere=("llama_4_scaling_beta", "max_position_embeddings"),
        gguf_name="mistral3",
        gguf=_PAIRS,
        mlx=InMLX(needs_within=("llama_4_scaling_beta", "original_max_position_embeddings")),
        vllm=InVLLM(windows="stated", temperature="dropped"),
        llama_cpp=InLlamaCpp(
            windows="none",
            graph="its mistral3 graph",
            temperature="written",
            yarn_alone=True,
            reads_betas=True,
            own_gain=True,
        ),
    ),
    "mistral": Architecture(
        pattern="window",
        defaults={"sliding_window": 4096},
        implied={"rope_theta": 10_000.0},
        family="llama",
        one_rotation=True,
        written_as_gguf=True,
        gguf_name="llama",
        transformers=InTransformers(head_dim_null=(4,)),
        vllm=InVLLM(windows="stated"),
        llama_cpp=InLlamaCpp(windows="none", graph="its llama graph, which Mistral is converted to,", flags="all"),
    ),
    "mixtral": Architecture(
        pattern="window",
        experts=True,
        gguf_name="llama",
        transformers=InTransformers(head_dim_null=(4, 5)),
        vllm=InVLLM(windows="stated"),
        llama_cpp=InLlamaCpp(windows="none", graph="its llama graph, which Mixtral is converted to,", flags="all"),
    ),
    "mllama_text_model": Architecture(
        pattern="crossing",
        head_key=None,
        defaults={"cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38]},
        implied={"rope_theta": 500_000.0, "num_hidden_layers": 40, "max_position_embeddings": 131_072},
        transformers=InTransformers(needs_rope_type_in_4=True),
    ),
    "nemotron-nas": Architecture(
        code="NVIDIA's DeciLM code",
        class_name="DeciLMForCausalLM",
        pattern="linear",
        blocks_key="block_configs",
        head_key=None,
    ),
    "seed_oss": Architecture(defaults={"head_dim": 128}, gguf=InGGUF()),
    "smollm3": Architecture(
        pattern="still",
        rotates="listed",
        every=4,
        head_key=None,
        family="smollm3",
        one_rotation=True,
        written_as_gguf=True,
        gguf=InGGUF(
            layout="pairs",
            loads=True,
            to_config=("attention_bias", "mlp_bias", "use_sliding_window", "no_rope_layers"),
        ),
        llama_cpp=InLlamaCpp(windows="none", graph="its smollm3 graph", fourth_still="no_rope_layers", flags="all"),
    ),
}
