"""torchtune: its four rotary modules, which keep a table of cos and sin for the positions they are made for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ropewalk.conformance.adapters.peer import Peer, by_name, need
from ropewalk.conformance.target import Spec
from ropewalk.scaling import Llama3

LIBRARY, DISTRIBUTION, PIP = "torchtune", "torchtune", "torchtune torchao"
HEADS, WIDTH, LONGEST = 4, 64, 16_384

ROPES: dict[str, tuple[str, str, str, float, Any, dict[str, Any], str]] = {
    "rope": ("torchtune.modules", "RotaryPositionalEmbeddings", "pairs", 10_000.0, None, {}, "Llama 2 and Mistral"),
    "llama3": (
        "torchtune.models.llama3_1", "Llama3ScaledRoPE", "pairs", 500_000.0,
        Llama3(factor=8, trained=8192, low=1, high=4), {"scale_factor": 8, "old_context_len": 8192}, "Llama 3.1",
    ),
    "phi3": ("torchtune.models.phi3", "Phi3RotaryPositionalEmbeddings", "half", 10_000.0, None, {}, "Phi-3"),
    "qwen2": ("torchtune.models.qwen2", "Qwen2RotaryPositionalEmbeddings", "half", 1_000_000.0, None, {}, "Qwen 2"),
}  # fmt: skip
"""Module, class, layout, base, what it is checked against, its settings, whose it is."""


def targets() -> list[Peer]:
    need("torchtune.modules", PIP)
    return [_rope(short, *settings) for short, settings in ROPES.items()]


__getattr__ = by_name(__name__)


def _rope(
    short: str, module: str, name: str, layout: Any, base: float, scaling: Any, more: dict[str, Any], whose: str
) -> Peer:
    def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        made = getattr(need(module, PIP), name)
        with torch.device(device):
            return made(dim=WIDTH, max_seq_len=LONGEST, base=int(base), **more).to(dtype)

    def rotate(built: Any, x: Tensor, positions: Tensor) -> Tensor:
        return built(x.transpose(1, 2), input_pos=positions).transpose(1, 2)

    spec = Spec(head_width=WIDTH, heads=HEADS, base=base, layout=layout, scaling=scaling, longest=LONGEST)
    says = f"{name}, of {whose}"
    return Peer(LIBRARY, short, spec, build, says, rotate=rotate, refill=refill)


def refill(built: Any) -> None:
    built.rope_init()
