"""Hugging Face transformers: Llama in every scaling, parameters nested by layer type, ALiBi three times, T5.

`built` is a whole small model, loaded by from_pretrained with a dtype, as the documentation has it; what
`model.to(dtype)` does to its frequencies is asked for apart, by N06. Positions end where
the config's max_position_embeddings does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ropewalk.conformance.adapters._transformers_biases import HEADS, LIBRARY, WIDTH, biases, made
from ropewalk.conformance.adapters.peer import VOCABULARY, Peer, by_name, need, only_padding
from ropewalk.conformance.target import Spec
from ropewalk.scaling import Dynamic, Linear, Llama3, LongRoPE, YaRN

DISTRIBUTION, PIP = "transformers", "transformers"
TRAINED, LONGEST = 64, 2048
"""Of the scalings that depend on the length, short enough for a whole model to be taken across it."""
SHORT, LONG = [1.0 + i / 16 for i in range(WIDTH // 2)], [1.0 + i / 2 for i in range(WIDTH // 2)]

ROPES: dict[str, tuple[float, Any, dict[str, Any], int | None, str]] = {
    "llama": (10_000.0, None, {"rope_type": "default"}, None, "Llama, plain RoPE"),
    "llama_theta": (500_000.0, None, {"rope_type": "default"}, None, "Llama, plain RoPE of base 500,000"),
    "llama_linear": (
        10_000.0, Linear(factor=8), {"rope_type": "linear", "factor": 8.0}, None, "Llama, linear scaling",
    ),
    "llama_dynamic": (
        10_000.0, Dynamic(factor=4, trained=TRAINED), {"rope_type": "dynamic", "factor": 4.0}, LONGEST,
        "Llama, dynamic NTK from 64 to 2,048",
    ),
    "llama_yarn": (
        10_000.0, YaRN(factor=8, trained=2048),
        {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 2048}, None, "Llama, YaRN",
    ),
    "llama_longrope": (
        10_000.0, LongRoPE(factor=32, trained=TRAINED, short=tuple(SHORT), long=tuple(LONG)),
        {"rope_type": "longrope", "factor": 32.0, "original_max_position_embeddings": TRAINED, "short_factor": SHORT,
         "long_factor": LONG}, LONGEST, "Llama, LongRoPE from 64 to 2,048",
    ),
    "llama_llama3": (
        500_000.0, Llama3(factor=8, trained=8192, low=1, high=4),
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 8192}, None, "Llama, the scaling of Llama 3.1",
    ),
}  # fmt: skip
"""Base, what it is checked against, the config's own words, where positions end, what it is."""


def targets() -> list[Peer]:
    need("transformers", PIP)
    rope = [_llama(short, *settings) for short, settings in ROPES.items()]
    return [*rope, _nested(), *biases()]


__getattr__ = by_name(__name__)


def small(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": HEADS, "num_key_value_heads": 2, "head_dim": WIDTH, **more,
    }  # fmt: skip


def _llama(short: str, base: float, scaling: Any, words: dict[str, Any], longest: int | None, says: str) -> Peer:
    # Dynamic scaling takes max_position_embeddings for the trained length.
    trained = getattr(scaling, "trained", None) or 2048
    reach = trained if words["rope_type"] == "dynamic" else longest or 8 * trained
    spec = Spec(
        head_width=WIDTH, heads=HEADS, base=base, layout="half", scaling=scaling, longest=longest or reach,
        per_call=longest is not None, vocabulary=VOCABULARY,
    )  # fmt: skip

    def config(parameters: dict[str, Any], **more: Any) -> Any:
        from transformers import LlamaConfig

        return LlamaConfig(**small(**{"max_position_embeddings": reach, **more}), rope_parameters=parameters)

    def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        return made(config({"rope_theta": base, **words}), "Llama", dtype, device)

    def frequencies(given: dict[str, Any]) -> tuple[list[float], float]:
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        outside = {key: given.pop(key) for key in ("head_dim", "max_position_embeddings") if key in given}
        rotary = LlamaRotaryEmbedding(config(given, **outside))
        return rotary.inv_freq.tolist(), rotary.attention_scaling

    offers: dict[str, Any] = {"cos_sin": llama_cos_sin, "rotate": llama_rotate, "forward": llama_forward}
    if longest is None:
        offers["frequencies"] = frequencies
    return Peer(LIBRARY, short, spec, build, says, **offers)


def llama_cos_sin(built: Any, positions: Tensor) -> tuple[Tensor, Tensor]:
    rotary = built.model.rotary_emb
    cos, sin = rotary(torch.zeros(1, dtype=built.dtype), positions)
    return cos[..., : WIDTH // 2], sin[..., : WIDTH // 2]


def llama_rotate(built: Any, x: Tensor, positions: Tensor) -> Tensor:
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    return apply_rotary_pos_emb(x, x, *built.model.rotary_emb(x, positions))[0]


def llama_forward(
    built: Any, ids: Tensor, positions: Tensor | None = None, cache: Any = None, documents: Tensor | None = None
) -> Any:
    """Padding is told by the attention mask, packing by positions that start again, as its data collators do."""
    from transformers import DynamicCache

    held, mask = (DynamicCache(config=built.config), None) if cache is None else cache
    more: dict[str, Any] = {}
    if documents is not None and (only_padding(documents) or mask is not None):
        mask = torch.cat([mask, documents >= 0], 1) if mask is not None else documents >= 0
        more["attention_mask"] = mask.long()
    elif documents is not None:
        out = built(ids, position_ids=positions, use_cache=False)
        return out.logits, None
    out = built(ids, position_ids=positions, past_key_values=held, use_cache=True, **more)
    return out.logits, (out.past_key_values, mask)


def _nested() -> Peer:
    """Gemma 3 holds rope parameters for each type of layer; the keys of the full-attention layers are looked at."""
    base, yarn = 10_000.0, YaRN(factor=8, trained=2048, truncate=False)
    words = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 2048, "truncate": False}
    spec = Spec(head_width=WIDTH, heads=HEADS, base=base, layout="half", scaling=yarn, longest=16_384)

    def config(parameters: dict[str, Any], **more: Any) -> Any:
        from transformers import Gemma3TextConfig

        return Gemma3TextConfig(
            **small(**{"max_position_embeddings": 16_384, **more}),
            layer_types=["sliding_attention", "full_attention"],
            rope_parameters={
                "sliding_attention": {"rope_type": "default", "rope_theta": base},
                "full_attention": parameters,
            },
        )

    def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        return made(config({"rope_theta": base, **words}), "Gemma3", dtype, device)

    def cos_sin(built: Any, positions: Tensor) -> tuple[Tensor, Tensor]:
        nothing = torch.zeros(1, dtype=built.dtype)
        cos, sin = built.model.rotary_emb(nothing, positions, layer_type="full_attention")
        return cos[..., : WIDTH // 2], sin[..., : WIDTH // 2]

    def rotate(built: Any, x: Tensor, positions: Tensor) -> Tensor:
        from transformers.models.gemma3.modeling_gemma3 import apply_rotary_pos_emb

        return apply_rotary_pos_emb(x, x, *built.model.rotary_emb(x, positions, layer_type="full_attention"))[0]

    def frequencies(given: dict[str, Any]) -> tuple[list[float], float]:
        from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding

        outside = {key: given.pop(key) for key in ("head_dim", "max_position_embeddings") if key in given}
        built: Any = Gemma3RotaryEmbedding(config(given, **outside))
        return built.full_attention_inv_freq.tolist(), built.full_attention_attention_scaling

    offers: dict[str, Any] = {"cos_sin": cos_sin, "rotate": rotate, "frequencies": frequencies}
    says = "Gemma 3, YaRN without truncation, nested by layer type"
    return Peer(LIBRARY, "gemma3_yarn", spec, build, says, **offers)
