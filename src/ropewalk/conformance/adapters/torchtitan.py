"""torchtitan: its two rotary modules, complex numbers in pairs and cos/sin in halves, plain and scaled.

The gain of YaRN is no part of them: torchtitan's models put it into the scale of the softmax, so 1 is what is required.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ropewalk.conformance.adapters.peer import Peer, by_name, need
from ropewalk.conformance.target import Spec
from ropewalk.scaling import Llama3, YaRN

LIBRARY, DISTRIBUTION, PIP = "torchtitan", "torchtitan", "torchtitan"
HEADS, WIDTH, LONGEST = 4, 64, 16_384
YARN = {"scaling": "yarn", "rope_factor": 8.0, "original_seq_len": 2048}
NO_GAIN = {"factor": 8, "trained": 2048, "attention_factor": 1.0}

ROPES: dict[str, tuple[str, float, Any, dict[str, Any], str]] = {
    "complex": ("ComplexRoPE", 10_000.0, None, {}, "plain RoPE by complex numbers"),
    "complex_llama3": (
        "ComplexRoPE", 500_000.0, Llama3(factor=8, trained=8192, low=1, high=4),
        {"scaling": "llama", "scaling_factor": 8.0}, "the scaling of Llama 3.1",
    ),
    "complex_yarn": ("ComplexRoPE", 10_000.0, YaRN(**NO_GAIN), YARN, "YaRN, as for DeepSeek V3"),
    "cos_sin": ("CosSinRoPE", 10_000.0, None, {}, "plain RoPE by cos and sin"),
    "cos_sin_yarn": (
        "CosSinRoPE", 10_000.0, YaRN(**NO_GAIN, truncate=False), {**YARN, "truncate": False}, "YaRN, as for gpt-oss",
    ),
}  # fmt: skip
"""Class, base, what it is checked against, its settings, what it is."""


def targets() -> list[Peer]:
    need("torchtitan.models.common.rope", PIP)
    return [_rope(short, *settings) for short, settings in ROPES.items()]


__getattr__ = by_name(__name__)


def _rope(short: str, name: str, base: float, scaling: Any, more: dict[str, Any], says: str) -> Peer:
    def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        made = getattr(need("torchtitan.models.common.rope", PIP), name)
        with torch.device(device):
            module = made(made.Config(dim=WIDTH, max_seq_len=LONGEST, theta=base, **more))
        return cast(module, dtype)

    def rotate(built: Any, x: Tensor, positions: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        return built(x, x, positions)[0].transpose(1, 2)

    spec = Spec(
        head_width=WIDTH,
        heads=HEADS,
        base=base,
        layout="pairs" if name == "ComplexRoPE" else "half",
        scaling=scaling,
        longest=LONGEST,
    )
    return Peer(LIBRARY, short, spec, build, f"{name}, {says}", rotate=rotate, cast=cast, refill=refill)


def cast(built: Any, dtype: torch.dtype) -> Any:
    """A complex table has no bfloat16 form: its trainer leaves it alone, and casts the rest."""
    return built if built.cache.is_complex() else built.to(dtype)


def refill(built: Any) -> None:
    built.init_states()
