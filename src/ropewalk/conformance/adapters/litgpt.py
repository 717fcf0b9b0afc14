"""LitGPT: the rope tables of its GPT in every scaling it has, and a whole model with its KV cache."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ropewalk.conformance.adapters.peer import TOLD_NONE, VOCABULARY, Peer, by_name, counted, loudly, need, seeded
from ropewalk.conformance.target import Spec
from ropewalk.scaling import Linear, Llama3, YaRN

LIBRARY, DISTRIBUTION, PIP = "litgpt", "litgpt", "litgpt"
HEADS, WIDTH, LONGEST = 4, 64, 16_384
YARN = {"factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "original_max_seq_len": 2048}

ROPES: dict[str, tuple[float, Any, dict[str, Any] | None, str]] = {
    "rope": (10_000.0, None, None, "plain RoPE"),
    "linear": (10_000.0, Linear(factor=8), {"factor": 8.0}, "linear scaling"),
    # mscale 1 asks for the gain of the paper; without it rope_adjustments has none, by its documentation.
    "yarn": (10_000.0, YaRN(factor=8, trained=2048), {**YARN, "mscale": 1.0}, "YaRN"),
    "llama3": (
        500_000.0, Llama3(factor=8, trained=8192, low=1, high=4),
        {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_seq_len": 8192},
        "the scaling of Llama 3.1",
    ),
}  # fmt: skip
"""Base, what it is checked against, its rope_adjustments, what it is."""


def targets() -> list[Peer]:
    library = need("litgpt.model", PIP)
    return [*(_rope(library, short, *settings) for short, settings in ROPES.items()), _decoder()]


__getattr__ = by_name(__name__)


def gpt(dtype: torch.dtype, device: str, block_size: int, **settings: Any) -> Any:
    config = need("litgpt.config", PIP).Config(
        block_size=block_size, n_layer=2, n_embd=64, n_head=HEADS, head_size=WIDTH, n_query_groups=2,
        vocab_size=VOCABULARY, padded_vocab_size=VOCABULARY, rotary_percentage=1.0, parallel_residual=False,
        bias=False, norm_class_name="RMSNorm", mlp_class_name="LLaMAMLP", intermediate_size=64, **settings,
    )  # fmt: skip
    with torch.device(device):
        return seeded(lambda: loudly(need("litgpt.model", PIP).GPT(config))).to(dtype)


def _rope(library: Any, short: str, base: float, scaling: Any, adjustments: dict[str, Any] | None, says: str) -> Peer:
    def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        return gpt(dtype, device, LONGEST, rope_base=int(base), rope_adjustments=adjustments)

    def rows(built: Any, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Of its tables, as its forward picks them."""
        cos, sin = (library.batched_index_select(table, 0, positions) for table in (built.cos, built.sin))
        return cos, sin

    def cos_sin(built: Any, positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = rows(built, positions)
        return cos[..., : WIDTH // 2], sin[..., : WIDTH // 2]

    def rotate(built: Any, x: Tensor, positions: Tensor) -> Tensor:
        return library.apply_rope(x, *rows(built, positions))

    spec = Spec(head_width=WIDTH, heads=HEADS, base=base, layout="half", scaling=scaling, longest=LONGEST)
    return Peer(LIBRARY, short, spec, build, says, cos_sin=cos_sin, rotate=rotate, refill=refill)


def refill(built: Any) -> None:
    built.reset_parameters()


def _decoder() -> Peer:
    def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        return gpt(dtype, device, 512)

    def forward(built: Any, ids: Tensor, positions: Tensor | None = None, cache: Any = None) -> Any:
        """A full pass is one without the cache; the cache is filled beside it. Rows of its cache are positions."""
        filled, due = (0, None) if cache is None else cache
        due = counted(positions, due, ids.shape[1], "the KV cache of LitGPT")
        where = torch.arange(filled, filled + ids.shape[1])
        if cache is None:
            logits = built(ids)
            built.set_kv_cache(batch_size=len(ids))
            built(ids, input_pos=where)
        else:
            logits = built(ids, input_pos=where)
        return logits, (filled + ids.shape[1], due)

    spec = Spec(heads=HEADS, head_width=WIDTH, **TOLD_NONE)
    return Peer(LIBRARY, "decoder", spec, build, "a whole model, plain RoPE", forward=forward, refill=refill)
