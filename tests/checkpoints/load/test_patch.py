"""A transformers model with our positions: the same model near zero, the right one far away and after any cast."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    CohereConfig,
    CohereForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    Phi3Config,
    Phi3ForCausalLM,
)

from ropewalk.checkpoints.load.patch import ExactRotary, patch

SMALL = {"vocab_size": 61, "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 2048}
SHORT, LONG = [1.0 + 0.05 * i for i in range(8)], [1.0 + 2.0 * i for i in range(8)]
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": SHORT,
    "long_factor": LONG,
    "original_max_position_embeddings": 4096,
}


def made(name: str) -> Any:
    torch.manual_seed(0)
    if name == "llama":
        return LlamaForCausalLM(LlamaConfig(**SMALL, num_key_value_heads=2, max_position_embeddings=131_072))
    if name == "yarn":
        return LlamaForCausalLM(LlamaConfig(**SMALL, rope_parameters=YARN, max_position_embeddings=8192))
    if name == "neox":
        return GPTNeoXForCausalLM(GPTNeoXConfig(**SMALL))
    if name == "cohere":
        return CohereForCausalLM(CohereConfig(**SMALL))
    if name == "phi3":
        return Phi3ForCausalLM(
            Phi3Config(
                **SMALL,
                num_key_value_heads=2,
                rope_parameters=LONGROPE,
                max_position_embeddings=16_384,
                original_max_position_embeddings=4096,
                pad_token_id=0,
            )
        )
    return Gemma3ForCausalLM(
        Gemma3TextConfig(**SMALL, num_key_value_heads=2, head_dim=16, sliding_window=8, sliding_window_pattern=3)
    )


@pytest.mark.parametrize("name", ["llama", "yarn", "neox", "gemma3", "cohere"])
def test_near_zero_the_model_is_the_same(name: str) -> None:
    model = made(name).eval()
    tokens = torch.randint(0, 61, (2, 33))
    with torch.no_grad():
        before = model(tokens).logits
        patched = patch(model)
        after = model(tokens).logits
    assert patched.changes
    assert (after - before).abs().max() < 2e-5
    assert not any("inv_freq" in key for key, _ in model.named_buffers())


def test_far_away_angles_are_exact() -> None:
    model = made("llama")
    change = patch(model).changes[0]
    assert 1e-3 < change.error < 2e-2  # what float32 loses at 131,071
    cos, sin = model.model.rotary_emb(torch.zeros(1, dtype=torch.float64), torch.tensor([[131_071]]))
    for i in range(8):
        # The frequency is transformers' own float32 number; its product with the position is exact.
        omega = float(1.0 / 10000.0 ** (torch.tensor(2.0 * i) / 16))
        angle = math.fmod(131_071 * omega, 2 * math.pi)
        assert abs(float(cos[0, 0, i]) - math.cos(angle)) < 3e-7
        assert abs(float(sin[0, 0, i]) - math.sin(angle)) < 3e-7


def test_a_cast_model_is_fixed() -> None:
    """`.bfloat16()` rounds transformers' frequencies; the patched model has none to round."""
    whole, cast = made("llama").eval(), made("llama").eval().bfloat16().float()
    cast.load_state_dict(whole.state_dict())
    tokens, at = torch.randint(0, 61, (1, 40)), 50 * torch.arange(40)[None]
    with torch.no_grad():
        want = whole(tokens, position_ids=at).logits
        cast_error = (cast(tokens, position_ids=at).logits - want).abs().max()
        change = patch(cast).changes[0]
        patched_error = (cast(tokens, position_ids=at).logits - want).abs().max()
        cast.bfloat16().float()
        cast.load_state_dict(whole.state_dict())
        still = (cast(tokens, position_ids=at).logits - want).abs().max()
    assert change.error > 1
    assert patched_error < 2e-4 < cast_error
    assert still == patched_error


def test_a_scaling_that_depends_on_the_length_is_fixed_once() -> None:
    model = made("phi3").eval()
    with pytest.raises(ValueError, match=r"patch\(model, length=N\)"):
        patch(model)
    patched = patch(model, length=8192)
    rotary = model.model.rotary_emb
    assert isinstance(rotary, ExactRotary)
    with pytest.raises(ValueError, match="is already patched"):
        patch(model, length=8192)
    short = rotary(torch.zeros(1), torch.tensor([[5]]))
    rotary(torch.zeros(1), torch.tensor([[8000]]))
    again = rotary(torch.zeros(1), torch.tensor([[5]]))
    assert torch.equal(short[0], again[0])  # transformers' own changes with the longest position it has seen
    assert patched.plan.length == 8192
    angle = math.fmod(5 / LONG[0], 2 * math.pi)
    assert abs(float(short[0][0, 0, 0]) - math.cos(angle) * patched.plan.layers[0].rotary_gain) < 1e-5


def test_models_without_rotary_modules_are_refused() -> None:
    with pytest.raises(ValueError, match="no rotary module"):
        patch(BertModel(BertConfig(**SMALL)))
    with pytest.raises(ValueError, match="no transformers config"):
        patch(torch.nn.Linear(2, 2))


def test_the_rotation_of_a_vision_part_is_left_alone() -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**sizes, "vocab_size": 99, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 64}
    vision = {**sizes, "image_size": 28, "patch_size": 14, "model_type": "pixtral"}
    parts = {"vision_config": vision, "text_config": {**text, "model_type": "mistral"}}
    model = Mistral3ForConditionalGeneration(Mistral3Config(**parts, image_token_index=98))
    tokens = torch.randint(3, 90, (1, 40))
    with torch.no_grad():
        before = model.eval()(input_ids=tokens).logits
        done = patch(model)
        after = model(input_ids=tokens).logits
    assert [change.name for change in done.changes] == ["model.language_model.rotary_emb"]
    assert (before - after).abs().max() < 1e-4
