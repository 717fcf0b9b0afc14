"""Small models that are right in every byte: what the mutants are made from, and what must not be refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import gguf
import numpy as np
import tokenizers
from safetensors.numpy import save
from safetensors.torch import save as save_torch

from tests.checkpoints import file_bytes
from tests.checkpoints.bad.bad_files import CONFIG, MODEL, TOKENIZER, WEIGHTS, Case
from tests.checkpoints.file_bytes import Raw, Tensor

WIDTH, HEADS, GROUPS, HIDDEN, LAYERS, VOCABULARY = 32, 2, 1, 64, 2, 40

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": GROUPS,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "llama 3.1": LLAMA | {"rope_scaling": LLAMA3, "rope_theta": 500000.0},
    "llama, linear": LLAMA | {"rope_scaling": {"type": "linear", "factor": 2.0}},
    "llama, dynamic": LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
    "llama, version 5": {key: value for key, value in LLAMA.items() if key != "rope_theta"}
    | {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "transformers_version": "5.0.0"},
    "qwen2, yarn": LLAMA | {"model_type": "qwen2", "rope_scaling": YARN, "use_sliding_window": False},
    "mistral": LLAMA | {"model_type": "mistral", "sliding_window": 64},
    "phi3": LLAMA
    | {
        "model_type": "phi3",
        "original_max_position_embeddings": 128,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [1.5] * 8},
        "pad_token_id": 0,
    },
    "gpt-neox": {
        "model_type": "gpt_neox",
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "max_position_embeddings": 256,
        "rotary_pct": 0.25,
        "rotary_emb_base": 10000,
        "vocab_size": VOCABULARY,
    },
    "gpt2": {"model_type": "gpt2", "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 64},
    "bert": {
        "model_type": "bert",
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "max_position_embeddings": 64,
    },
    "t5": {
        "model_type": "t5",
        "d_model": WIDTH,
        "d_kv": 16,
        "num_layers": LAYERS,
        "num_heads": HEADS,
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
    },
}


def text(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode()


@cache
def llama() -> dict[str, np.ndarray]:
    """A Llama's tensors under the names transformers gives them."""
    rng = np.random.default_rng(0)

    def matrix(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.05).astype(np.float32)

    key = WIDTH // HEADS * GROUPS
    tensors = {"model.embed_tokens.weight": matrix(VOCABULARY, WIDTH), "lm_head.weight": matrix(VOCABULARY, WIDTH)}
    for layer in range(LAYERS):
        tensors |= {
            f"model.layers.{layer}.self_attn.q_proj.weight": matrix(WIDTH, WIDTH),
            f"model.layers.{layer}.self_attn.k_proj.weight": matrix(key, WIDTH),
            f"model.layers.{layer}.self_attn.v_proj.weight": matrix(key, WIDTH),
            f"model.layers.{layer}.self_attn.o_proj.weight": matrix(WIDTH, WIDTH),
            f"model.layers.{layer}.mlp.gate_proj.weight": matrix(HIDDEN, WIDTH),
            f"model.layers.{layer}.mlp.up_proj.weight": matrix(HIDDEN, WIDTH),
            f"model.layers.{layer}.mlp.down_proj.weight": matrix(WIDTH, HIDDEN),
            f"model.layers.{layer}.input_layernorm.weight": matrix(WIDTH) + 1,
            f"model.layers.{layer}.post_attention_layernorm.weight": matrix(WIDTH) + 1,
        }
    return tensors | {"model.norm.weight": matrix(WIDTH) + 1}


SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def sharded() -> dict[str, bytes]:
    """The Llama in two shards, with their index."""
    names = list(llama())
    halves = dict(zip(SHARDS, (names[:9], names[9:]), strict=True))
    place = {name: shard for shard, part in halves.items() for name in part}
    index = {"metadata": {"total_size": sum(w.nbytes for w in llama().values())}, "weight_map": place}
    files = {shard: save({name: llama()[name] for name in part}) for shard, part in halves.items()}
    return {**files, "model.safetensors.index.json": text(index)}


def as_bfloat16() -> bytes:
    import torch

    tensors = {name: torch.from_numpy(w).bfloat16() for name, w in llama().items()}
    return save_torch(tensors, metadata={"format": "pt"})


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "lm_head": "output",
    "model.norm": "output_norm",
    "model.layers.": "blk.",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
GGUF_KEYS: tuple[tuple[str, Any], ...] = (
    ("general.architecture", "llama"),
    ("general.name", "small"),
    ("llama.block_count", LAYERS),
    ("llama.context_length", 256),
    ("llama.embedding_length", WIDTH),
    ("llama.feed_forward_length", HIDDEN),
    ("llama.attention.head_count", HEADS),
    ("llama.attention.head_count_kv", GROUPS),
    ("llama.attention.layer_norm_rms_epsilon", 1e-5),
    ("llama.rope.dimension_count", WIDTH // HEADS),
    ("llama.rope.freq_base", 10000.0),
    ("llama.vocab_size", VOCABULARY),
    ("tokenizer.ggml.model", "gpt2"),
    ("tokenizer.ggml.pre", "smollm"),
    ("tokenizer.ggml.tokens", [chr(97 + n) if n < 26 else "ab" if n == 26 else f"ab{n}" for n in range(VOCABULARY)]),
    (
        "tokenizer.ggml.token_type",
        Raw(9, np.array([5], "<u4").tobytes() + np.array([40], "<u8").tobytes() + b"\1\0\0\0" * 40),
    ),
    ("tokenizer.ggml.merges", ["a b"]),
    ("tokenizer.ggml.bos_token_id", 0),
    ("tokenizer.ggml.eos_token_id", 1),
    ("tokenizer.ggml.add_bos_token", False),
)


def gguf_model(kind: gguf.GGMLQuantizationType, keys: tuple[tuple[str, Any], ...] = GGUF_KEYS, **changes: Any) -> bytes:
    """The Llama as GGUF: matrices of this type, vectors in float32."""
    tensors, data = [], b""
    for name, values in llama().items():
        for ours, theirs in GGUF_NAMES.items():
            name = name.replace(ours, theirs)
        matrix = values.ndim == 2
        stored = gguf.quants.quantize(values, kind).tobytes() if matrix else values.tobytes()
        tensors.append(Tensor(name, values.shape[::-1], int(kind) if matrix else 0, len(data)))
        data += stored + b"\0" * (-len(stored) % 32)
    return file_bytes.gguf(keys, tensors, data, **changes)


def blocks() -> bytes:
    """Tensors of the types that the package can only read."""
    kinds = [gguf.GGMLQuantizationType[name] for name in ("Q4_K", "Q6_K", "IQ2_XXS", "IQ4_NL", "TQ1_0")]
    tensors, data = [], b""
    for kind in kinds:
        block, width = gguf.GGML_QUANT_SIZES[kind]
        tensors.append(Tensor(kind.name.lower(), (block, 2), int(kind), len(data)))
        data += b"\1" * (2 * width)
        data += b"\0" * (-len(data) % 32)
    return file_bytes.gguf(tensors=tensors, data=data)


def many_dtypes() -> bytes:
    kinds = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
    return save({kind: np.arange(6).reshape(2, 3).astype(kind) for kind in kinds}, metadata={"format": "pt"})


WORDS = {"bos_token": "a", "eos_token": "b", "pad_token": "c", "chat_template": "{{ messages[0]['content'] }}"}


def spoken() -> dict[str, bytes]:
    """What a directory says in words: its tokenizer, a chat template, a model card, and defaults."""
    inner = tokenizers.Tokenizer(tokenizers.models.BPE({chr(97 + n): n for n in range(26)} | {"ab": 26}, [("a", "b")]))
    return {
        "config.json": text(LLAMA),
        "tokenizer.json": inner.to_str().encode(),
        "tokenizer_config.json": text(WORDS),
        "generation_config.json": text({"eos_token_id": [1, 2], "do_sample": True, "temperature": 0.7, "top_k": 40}),
        "README.md": b"---\nlicense: mit\nlanguage: [en, de]\nbase_model: a/b\n---\n# A model\n",
    }


def cases() -> Iterator[Case]:
    from tests.checkpoints.bad.bad_own import valid

    config = text(LLAMA)
    yarn = text(LLAMA | {"rope_scaling": YARN})
    single = save(llama())
    Q = gguf.GGMLQuantizationType
    yield Case("valid: llama", {"config.json": config, "model.safetensors": single}, "valid", "", MODEL)
    yield Case("valid: llama, yarn", {"config.json": yarn, "model.safetensors": single}, "valid", "", MODEL)
    yield Case(
        "valid: llama, bfloat16", {"config.json": config, "model.safetensors": as_bfloat16()}, "valid", "", MODEL
    )
    yield Case("valid: llama, sharded", {"config.json": config, **sharded()}, "valid", "", MODEL)
    for kind in (Q.F32, Q.F16, Q.BF16, Q.Q8_0, Q.Q4_0, Q.Q5_1):
        yield Case(f"valid: gguf {kind.name}", {"a.gguf": gguf_model(kind)}, "valid", "a.gguf", (*MODEL, *TOKENIZER))
    yield Case("valid: words", spoken(), "valid", "", TOKENIZER)
    old = gguf_model(Q.F32, version=b"\2\0\0\0")
    yield Case("valid: gguf version 2", {"a.gguf": old}, "valid", "a.gguf", MODEL)
    yield Case("valid: gguf blocks", {"a.gguf": blocks()}, "valid", "a.gguf", WEIGHTS)
    yield Case("valid: dtypes", {"a.safetensors": many_dtypes()}, "valid", "a.safetensors", WEIGHTS)
    yield Case("valid: one tensor", {"a.safetensors": save({"w": np.ones(1)})}, "valid", "a.safetensors", WEIGHTS)
    yield from valid()
    for name, given in CONFIGS.items():
        yield Case(f"valid: config {name}", {"config.json": text(given)}, "valid", "config.json", CONFIG)
