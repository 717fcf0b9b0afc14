"""The Transformers of the articles by name, each with what its paper fixes; sizes are those of its base model.

`preset("gpt2", layers=2, width=64)` is the same model in small.
"""

from __future__ import annotations

from typing import Any

from ropewalk.models.config import TransformerConfig

_LAYER = {"kind": "layer", "eps": 1e-5}

PRESETS: dict[str, dict[str, Any]] = {
    # arXiv:1706.03762: post-norm, ReLU, sinusoids, one table for both texts and the output
    "vaswani2017": {
        "stack": "encoder-decoder",
        "vocabulary": 37_000,
        "layers": 6,
        "norm": {**_LAYER, "placement": "post"},
        "activation": "relu",
        "bias": True,
        "encoding": "sinusoidal",
        "scale_embedding": True,
        "dropout": {"embedding": 0.1, "residual": 0.1},
        "std": None,
    },
    # arXiv:1810.04805: an encoder with learned positions and a norm over the embeddings
    "bert": {
        "stack": "encoder",
        "vocabulary": 30_522,
        "width": 768,
        "heads": 12,
        "layers": 12,
        "norm": {"kind": "layer", "eps": 1e-12, "placement": "post"},
        "activation": "gelu",
        "bias": True,
        "encoding": {"kind": "learned", "longest": 512},
        "embedding_norm": True,
        "dropout": {"embedding": 0.1, "attention": 0.1, "residual": 0.1},
    },
    # GPT-2: pre-norm, learned positions, the tanh form of GELU
    "gpt2": {
        "vocabulary": 50_257,
        "width": 768,
        "heads": 12,
        "layers": 12,
        "norm": {**_LAYER, "placement": "pre"},
        "activation": "gelu-tanh",
        "bias": True,
        "encoding": {"kind": "learned", "longest": 1024},
        "dropout": {"embedding": 0.1, "attention": 0.1, "residual": 0.1},
    },
    # arXiv:1910.10683: bucketed bias shared by the layers of a stack, scores without 1/sqrt(K), RMSNorm without bias
    "t5": {
        "stack": "encoder-decoder",
        "vocabulary": 32_128,
        "width": 512,
        "heads": 8,
        "layers": {
            "encoder": {
                "count": 6,
                "pattern": ["both"],
                "kinds": {"both": {"encoding": {"kind": "t5", "bidirectional": True}}},
            },
            "decoder": 6,
        },
        "norm": {"kind": "rms", "eps": 1e-6, "placement": "pre"},
        "activation": "relu",
        "encoding": "t5",
        "scale": 1.0,
        "scale_output": True,
        "dropout": {"embedding": 0.1, "attention": 0.1, "residual": 0.1},
    },
    # arXiv:2211.05100: ALiBi, a norm over the embeddings
    "bloom": {
        "vocabulary": 250_880,
        "width": 1024,
        "heads": 16,
        "layers": 24,
        "norm": {**_LAYER, "placement": "pre"},
        "activation": "gelu-tanh",
        "bias": True,
        "encoding": "alibi",
        "embedding_norm": True,
    },
    # arXiv:2302.13971, and grouped keys as from Llama 3 on (arXiv:2407.21783)
    "llama": {
        "vocabulary": 128_256,
        "width": 2048,
        "heads": 32,
        "key_heads": 8,
        "layers": 16,
        "hidden": 8192,
        "norm": {"kind": "rms", "eps": 1e-5, "placement": "pre"},
        "activation": "swiglu",
        "encoding": {"kind": "rope", "base": 500_000.0},
    },
    # arXiv:2203.00555: the 2017 model made deep by alpha in the residual and beta at the start
    "deepnet": {
        "stack": "encoder-decoder",
        "vocabulary": 64_000,
        "layers": 100,
        "norm": {**_LAYER, "placement": "deep"},
        "activation": "relu",
        "bias": True,
        "encoding": "sinusoidal",
        "scale_embedding": True,
        "dropout": {"embedding": 0.1, "residual": 0.1},
        "std": None,
    },
}


def preset(name: str, **changes: Any) -> TransformerConfig:
    """The config of a named model, with these keys changed."""
    if name not in PRESETS:
        raise ValueError(f"no preset {name!r}: {', '.join(PRESETS)}")
    return TransformerConfig.model_validate({**PRESETS[name], **changes})
