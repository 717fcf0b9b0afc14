"""Operations counted by formula against torch's own counter on the real passes."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ropewalk import positions
from ropewalk.attention.rule import Rule
from ropewalk.models import Transformer, preset
from ropewalk.train.plan.cost import forward_flops, gemm_peak, step_flops


@pytest.mark.parametrize("name", ["llama", "bert", "gpt2", "vaswani2017"])
def test_forward(name: str) -> None:
    config = preset(name, vocabulary=64, width=64, heads=4, key_heads=2, head_width=16, hidden=96, layers=2)
    model = Transformer(config).eval()
    rows, length = 2, 48
    tokens = torch.randint(0, 64, (rows, length))
    inputs = {"source": tokens[:, :32]} if config.stack == "encoder-decoder" else {}
    # Torch counts a causal product whole.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(tokens, **inputs)
    said = forward_flops(config, length, 32)
    causal = "decoder" in config.stack
    extra = 0.0
    if causal:
        layers = len(config.layer_kinds("decoder"))
        extra = layers * 2.0 * (length * length / 2) * config.heads * 2 * config.head_width
    assert counter.get_total_flops() == pytest.approx(rows * (sum(said.values()) + extra), rel=1e-3)
    assert step_flops(config, rows, length, 32) == 3 * rows * sum(said.values())


@pytest.mark.parametrize("name", ["llama", "bert"])
@pytest.mark.parametrize("window", [None, 64, 128, 512, 768, 1023, 1024, 5000])
@pytest.mark.parametrize("first", [0, 4, 300])
def test_pairs_that_are_seen(name: str, window: int | None, first: int) -> None:
    """As many as the mask has."""
    kept = first if window is not None and name == "llama" else 0
    config = preset(name, layers=1, window=window, keep_first=kept)
    causal = config.stack == "decoder"
    at = positions.plain(1024)
    pairs = int(Rule(causal=causal, window=window, keep_first=kept).mask(at, at).sum())
    each = 2 * config.heads * (config.head_width + config.value_width)
    assert forward_flops(config, 1024, 1024)["scores"] == pytest.approx(pairs * each, rel=0.01)


def test_the_peak_is_a_speed() -> None:
    assert 1e8 < gemm_peak("float32", size=256) < 1e15
