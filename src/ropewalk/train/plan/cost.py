"""What a step costs in floating-point operations, and how many this machine can do: model FLOPs utilisation.

    forward of a token = 2 x (weights it is multiplied by) + 4 x (keys it sees) x H x K
    a step             = 3 x forward: the backward pass takes twice as many

A causal query sees half the sequence on average, in a window less; counted are the keys that are seen, which is what a
kernel computes that skips the others. Nothing is counted twice where activations are computed again. The peak is
measured: the best of a few products of large square matrices, on this machine, in this precision.
"""

from __future__ import annotations

import time

import torch

from ropewalk.models.config import Layer, TransformerConfig
from ropewalk.nn.activation import GATES


def step_flops(config: TransformerConfig, rows: int, length: int, source_length: int | None = None) -> float:
    """Of one update of `rows` sequences of `length` tokens."""
    return 3.0 * rows * sum(forward_flops(config, length, source_length or length).values())


def forward_flops(
    config: TransformerConfig, length: int, source_length: int, *, windows: bool = True
) -> dict[str, float]:
    """Of one sequence, by part. windows: or as if there were none."""
    D, H, G, K, V = config.width, config.heads, config.key_heads, config.head_width, config.value_width
    attention_weights = D * (H * K + G * K + G * V) + H * V * D
    mlp_weights = (3 if config.activation in GATES else 2) * D * config.hidden
    found = {"projections": 0.0, "feed-forward": 0.0, "scores": 0.0}
    for side in config.sides:
        own = source_length if side == "encoder" and len(config.sides) == 2 else length
        for layer in config.layer_kinds(side):
            layer = layer if windows else layer._replace(window=None, keep_first=0)
            found["scores"] += 2.0 * seen(layer, own, causal=side == "decoder") * H * (K + V)
            found["projections"] += 2.0 * own * attention_weights
            found["feed-forward"] += 2.0 * own * mlp_weights
            if side == "decoder" and len(config.sides) == 2:
                found["scores"] += 2.0 * length * source_length * H * (K + V)
                keys = D * (G * K + G * V)
                found["projections"] += 2.0 * (length * (attention_weights - keys) + source_length * keys)
    found["output map"] = 2.0 * length * D * (config.vocabulary + D * config.output_transform)
    return found


def seen(layer: Layer, length: int, *, causal: bool) -> float:
    """Pairs of a query and a key that it sees, in one sequence."""
    window = min(length, layer.window or length)
    past = length - window
    first = min(layer.keep_first, past)
    before = length * window - window * window / 2
    return before * (1 if causal else 2) + first * past - first * first / 2


def gemm_peak(precision: str, device: torch.device | str = "cpu", size: int | None = None, tries: int = 4) -> float:
    """FLOP/s of a product of square matrices, the best of several; on a GPU large enough that the launch is nothing."""
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    size = size or (1536 if torch.device(device).type == "cpu" else 8192)
    a, b = torch.randn(2, size, size, device=device, dtype=dtype)
    best = float("inf")
    for _ in range(tries):
        began = time.perf_counter()
        a @ b
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    return 2.0 * size**3 / best
