"""Every stack, placement and activation learns to reverse a sequence; an encoder without positions cannot."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ropewalk.models import Transformer, TransformerConfig

STACKS = ["encoder", "decoder", "encoder-decoder"]
PLACEMENTS = ["post", "deep", "pre", "sandwich", "output", "parallel"]
ACTIVATIONS = ["relu", "swish", "gelu", "gelu-tanh", "glu", "reglu", "swiglu", "geglu", "geglu-tanh"]
LENGTH, STEPS = 8, 160


def config(stack: str, **changes: object) -> TransformerConfig:
    small = {
        "stack": stack,
        "vocabulary": 11,
        "width": 48,
        "heads": 4,
        "layers": 2,
        "hidden": 96,
        "norm": {"kind": "layer", "placement": "pre"},
        "activation": "relu",
        "bias": True,
        "tie": False,
        "std": None,
        "encoding": {"kind": "learned", "longest": 32, "std": 0.3},
    }
    return TransformerConfig.model_validate({**small, **changes})


def loss_and_accuracy(model: Transformer, x: Tensor) -> tuple[Tensor, Tensor]:
    """Token 0 begins the answer; the encoder answers in place, the decoder after its prompt."""
    y, start = x.flip(1), torch.zeros_like(x[:, :1])
    if model.config.stack == "encoder":
        logits = model(x)
    elif model.config.stack == "decoder":
        logits = model(torch.cat([x, start, y[:, :-1]], dim=1))[:, LENGTH:]
    else:
        logits = model(torch.cat([start, y[:, :-1]], dim=1), source=x)
    return F.cross_entropy(logits.flatten(0, 1), y.flatten()), (logits.argmax(-1) == y).float().mean()


def accuracy_after_training(chosen: TransformerConfig) -> float:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = Transformer(chosen)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3, betas=(0.9, 0.98), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / 30, 1.0) * (1 - s / STEPS) ** 0.5)
    for _ in range(STEPS):
        loss, _ = loss_and_accuracy(model, torch.randint(1, 11, (64, LENGTH), generator=generator))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        _, accuracy = loss_and_accuracy(model, torch.randint(1, 11, (256, LENGTH), generator=generator))
    return float(accuracy)


@pytest.mark.no_poison
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("stack", STACKS)
def test_every_placement_learns_to_reverse(stack: str, placement: str) -> None:
    if stack == "encoder-decoder" and placement == "parallel":
        with pytest.raises(ValueError, match="a parallel block has no cross-attention"):
            Transformer(config(stack, norm={"placement": "parallel"}))
        return
    assert accuracy_after_training(config(stack, norm={"kind": "layer", "placement": placement})) > 0.99


@pytest.mark.no_poison
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("stack", STACKS)
def test_every_activation_learns_to_reverse(stack: str, activation: str) -> None:
    assert accuracy_after_training(config(stack, activation=activation, norm={"kind": "rms"})) > 0.99


@pytest.mark.no_poison
def test_an_encoder_without_positions_cannot() -> None:
    """It sees a bag of tokens: it may know which there are, never which comes first."""
    assert accuracy_after_training(config("encoder", encoding="none")) < 0.5
