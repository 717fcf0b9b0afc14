"""The attention weights a model gives on request, against a softmax written out in Python's floats."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ropewalk import positions
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.positions import PAD, Positions

H, L = 4, 9


def small(**settings: Any) -> Transformer:
    torch.manual_seed(0)
    given = {"vocabulary": 40, "width": 32, "heads": H, "layers": 2, "std": 0.5, **settings}
    return Transformer(TransformerConfig(**given)).eval()


def by_hand(model: Transformer, tokens: Tensor, at: Positions, *, causal: bool) -> list[list[list[float]]]:
    """The first layer's weights of the first sequence, one query, key and head at a time."""
    config = model.config
    stack = model.encoder if model.decoder is None else model.decoder
    x = model.tokens.weight[tokens[0]]
    x = x / (x.square().mean(-1, keepdim=True) + config.norm.eps).sqrt()  # the norm's weights start at 1
    weight = stack.blocks[0].attention.qkv.weight
    K, G = config.head_width, config.key_heads
    q, k = ((x @ part.T).tolist() for part in weight.split([H * K, G * K, G * K])[:2])
    index, order, segment = (part[0].tolist() for part in at[:3])
    rope, alibi = config.encoding.kind == "rope", config.encoding.kind == "alibi"

    def turned(vector: list[float], place: int) -> list[float]:
        out = list(vector)
        for i in range(K // 2):
            angle = place * 10_000.0 ** (-2 * i / K)
            a, b, cos, sin = vector[i], vector[i + K // 2], math.cos(angle), math.sin(angle)
            out[i], out[i + K // 2] = a * cos - b * sin, b * cos + a * sin
        return out

    every = []
    for h in range(H):
        g = h * G // H
        rows = []
        for i in range(L):
            scores = {}
            for j in range(L):
                seen = segment[i] == segment[j] != PAD and (order[j] <= order[i] or not causal)
                if not seen:
                    continue
                one, other = q[i][h * K : (h + 1) * K], k[j][g * K : (g + 1) * K]
                if rope:
                    one, other = turned(one, index[i]), turned(other, index[j])
                score = sum(a * b for a, b in zip(one, other, strict=True)) / math.sqrt(K)
                scores[j] = score - (2 ** (-8 * (h + 1) / H) * abs(index[i] - index[j]) if alibi else 0)
            top = max(scores.values(), default=0)
            total = sum(math.exp(score - top) for score in scores.values())
            rows.append([math.exp(scores[j] - top) / total if j in scores else 0.0 for j in range(L)])
        every.append(rows)
    return every


@pytest.mark.parametrize("encoding", ["rope", "alibi", "none"])
@pytest.mark.parametrize(
    ("stack", "at"),
    [
        ("decoder", positions.plain(L, start=1000)),
        ("decoder", positions.packed([[4, 3]], width=L)),
        ("encoder", positions.padded([6], width=L, side="left")),
    ],
)
def test_weights_are_the_softmax(encoding: str, stack: str, at: Positions) -> None:
    model = small(encoding=encoding, stack=stack, key_heads=2)
    tokens = torch.randint(40, (1, L), generator=torch.Generator().manual_seed(1))
    first, second = model.attention_weights(tokens, at)
    want = torch.tensor(by_hand(model, tokens, at, causal=stack == "decoder"))
    assert (first[0] - want).abs().max() < 2e-5
    assert first[0].max() > 0.5  # far from uniform, so that a wrong score shows
    assert second.shape == (1, H, L, L)


def test_other_layers_and_values_fit() -> None:
    """The second layer's weights times its values are what its attention gives."""
    model = small(norm="layer", soft_cap=3.0, sink=True, encoding="alibi")
    torch.nn.init.normal_(model.decoder.blocks[1].attention.core.sink)
    tokens = torch.randint(40, (2, L), generator=torch.Generator().manual_seed(2))
    seen: list[Any] = []
    core = model.decoder.blocks[1].attention.core
    hook = core.register_forward_hook(lambda core, given, out: seen.append((given[2], out)))
    weights = model.attention_weights(tokens)[1]
    hook.remove()
    ((values, mixed),) = seen
    assert (weights @ values - mixed).abs().max() < 1e-5
    assert (weights.sum(-1) < 1).all()  # the sink takes its share


def test_cross_attention_and_what_is_not_there() -> None:
    model = small(stack="encoder-decoder")
    tokens, source = torch.zeros(1, 3, dtype=torch.int64), torch.zeros(1, 5, dtype=torch.int64)
    shapes = {
        part: [one.shape for one in model.attention_weights(tokens, source=source, part=part)]
        for part in ("encoder", "decoder", "cross", None)
    }
    assert shapes == {
        "encoder": [(1, H, 5, 5)] * 2,
        "decoder": [(1, H, 3, 3)] * 2,
        "cross": [(1, H, 3, 5)] * 2,
        None: [(1, H, 3, 3)] * 2,
    }
    assert all(not block.attention.core._forward_pre_hooks for block in model.decoder.blocks)
    with pytest.raises(ValueError, match="part='cross' is no attention of this model"):
        small().attention_weights(tokens, part="cross")
    with pytest.raises(ValueError, match=r"model\.eval\(\)"):
        small(dropout={"residual": 0.1}).train().attention_weights(tokens)
