"""x-transformers: its rotary module, ALiBi and T5 biases, and whole decoders with a cache in six encodings."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ropewalk.conformance.adapters.peer import (
    TOLD_NONE,
    VOCABULARY,
    Peer,
    by_name,
    counted,
    float32_weights,
    loudly,
    need,
    only_padding,
    seeded,
)
from ropewalk.conformance.findings import NotApplicable
from ropewalk.conformance.target import Spec
from ropewalk.scaling import NTK, Linear

LIBRARY, DISTRIBUTION, PIP = "x_transformers", "x-transformers", "x-transformers"
HEADS, WIDTH, T5_LONGEST = 4, 64, 1024

ROPES: dict[str, tuple[Any, dict[str, Any], int | None, str]] = {
    "rope": (None, {"dim": WIDTH}, None, "plain RoPE"),
    "partial": (None, {"dim": WIDTH // 2}, WIDTH // 2, "plain RoPE on half of a head"),
    "interpolated": (Linear(factor=4), {"dim": WIDTH, "interpolation_factor": 4.0}, None, "interpolation_factor 4"),
    "rescaled": (NTK(factor=4), {"dim": WIDTH, "base_rescale_factor": 4.0}, None, "base_rescale_factor 4"),
}
"""What it is checked against, its settings, the rotary width, what it is."""

DECODERS: dict[str, tuple[dict[str, Any], bool, str]] = {
    "rotary_decoder": ({"rotary_pos_emb": True}, True, "a decoder with RoPE"),
    "xpos_decoder": ({"rotary_xpos": True}, True, "a decoder with xPos"),
    "alibi_decoder": ({"alibi_pos_bias": True}, True, "a decoder with ALiBi"),
    "t5_decoder": ({"rel_pos_bias": True}, True, "a decoder with T5's bias"),
    "fox_decoder": ({"attn_data_dependent_alibi": True}, True, "a decoder with data-dependent ALiBi"),
    "learned_decoder": ({}, False, "a decoder with a learned table"),
}
"""Settings of its attention layers, whether the wrapper's own table is left out, what it is."""


def targets() -> list[Peer]:
    need("x_transformers", PIP)
    ropes = [_rope(short, *settings) for short, settings in ROPES.items()]
    return [*ropes, _alibi(), *_t5(), *(_decoder(short, *settings) for short, settings in DECODERS.items())]


__getattr__ = by_name(__name__)


def _rope(short: str, scaling: Any, settings: dict[str, Any], rotary: int | None, says: str) -> Peer:
    def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        from x_transformers.x_transformers import RotaryEmbedding

        with torch.device(device):
            return RotaryEmbedding(**settings).to(dtype)

    def rotate(built: Any, x: Tensor, positions: Tensor) -> Tensor:
        from x_transformers.x_transformers import apply_rotary_pos_emb

        return apply_rotary_pos_emb(x, *built(positions))

    spec = Spec(head_width=WIDTH, heads=HEADS, layout="pairs", scaling=scaling, rotary_width=rotary)
    return Peer(LIBRARY, short, spec, build, says, rotate=rotate)


def _alibi() -> Peer:
    heads = 16

    def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        from x_transformers.x_transformers import AlibiPositionalBias

        with torch.device(device):
            return AlibiPositionalBias(heads=heads).to(dtype)

    def bias(built: Any, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        return built.forward_custom_pos(q_positions, k_positions)

    def slopes(heads: int) -> list[float]:
        from x_transformers.x_transformers import AlibiPositionalBias

        made: Any = AlibiPositionalBias(heads=heads)
        return made.slopes.flatten().tolist()

    spec = Spec(kind="alibi", heads=heads, head_width=WIDTH)
    return Peer(LIBRARY, "alibi", spec, build, "ALiBi's bias, positions given", bias=bias, slopes=slopes)


def _t5() -> list[Peer]:
    def of(bidirectional: bool) -> Any:
        def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
            from x_transformers.x_transformers import RelativePositionBias

            with torch.device(device), float32_weights():
                made = seeded(lambda: RelativePositionBias(scale=1.0, causal=not bidirectional, heads=HEADS))
                return made.to(dtype)

        return build

    def bias(built: Any, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """It gives the bias of the last queries of a text on all its keys, of which these are picked."""
        if torch.compiler.is_compiling():
            return built(q_positions.shape[0], k_positions.shape[0])
        keys = int(max(q_positions.max(), k_positions.max())) + 1
        if keys > T5_LONGEST:
            raise NotApplicable(f"no bias of more than {T5_LONGEST:,} tokens is asked for here")
        first = int(q_positions.min())
        return built(keys - first, keys)[:, q_positions - first][..., k_positions]

    return [
        Peer(
            LIBRARY, name,
            Spec(kind="t5", heads=HEADS, head_width=WIDTH, bidirectional=both, longest=T5_LONGEST), of(both), says,
            bias=bias,
        )
        for name, both, says in (
            ("t5_back", False, "T5's relative bias, looking back"),
            ("t5_both", True, "T5's relative bias, both ways"),
        )
    ]  # fmt: skip


def _decoder(short: str, settings: dict[str, Any], without_table: bool, says: str) -> Peer:
    def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        from x_transformers import Decoder, TransformerWrapper

        def make() -> Any:
            layers = Decoder(dim=64, depth=2, heads=HEADS, attn_dim_head=WIDTH, **settings)
            return TransformerWrapper(
                num_tokens=VOCABULARY, max_seq_len=512, attn_layers=layers, use_abs_pos_emb=not without_table
            )

        with torch.device(device), float32_weights():
            return seeded(lambda: loudly(make())).to(dtype)

    def forward(
        built: Any, ids: Tensor, positions: Tensor | None = None, cache: Any = None, documents: Tensor | None = None
    ) -> Any:
        """The whole text is given every time, as its generation does, and what is new of it is counted by cache_age."""
        seen, held, due, starts = (ids[:, :0], None, None, None) if cache is None else cache
        more: dict[str, Any] = {}
        if documents is None:
            due = counted(positions, due, ids.shape[1], "this decoder")
        elif cache is None:
            if not only_padding(documents):
                raise NotApplicable("this decoder is told no documents")
            there = documents >= 0
            if bool(there[:, 0].all()):
                more["mask"] = there
            else:
                starts = there.long().argmax(-1)
        if starts is not None:
            more["seq_start_pos"] = starts
        whole = torch.cat([seen, ids], 1)
        if held is not None:
            more["cache_age"] = ids.shape[1]
        logits, found = built(whole, return_intermediates=True, cache=held, **more)
        return logits[:, -ids.shape[1] :], (whole, found, due, starts)

    return Peer(LIBRARY, short, Spec(heads=HEADS, head_width=WIDTH, **TOLD_NONE), build, says, forward=forward)
