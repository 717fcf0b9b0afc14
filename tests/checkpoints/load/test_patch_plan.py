"""Another plan in a transformers model: its own numbers are its own logits, and YaRN as numbers is YaRN by config."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers

from ropewalk import patch
from ropewalk.checkpoints.resolve.hf import resolve
from ropewalk.plan import Plan
from tests.hf_models import NAMES, SIZES, made

TOKENS = torch.randint(0, 61, (1, 90), generator=torch.Generator().manual_seed(5))
FAR = torch.arange(90)[None] + 700


def plan_of(model: Any) -> Plan:
    return resolve(model.config.to_dict(), name="small", where="config.json", arithmetic="float32").plan


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    return model(TOKENS, position_ids=FAR, attention_mask=torch.ones_like(TOKENS)).logits


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_put_in_and_taken_out(name: str) -> None:
    plain, yarn = made(name), made(name, yarn=True)
    own, want = logits(plain), logits(yarn)
    assert (own - want).abs().max() > 1e-2
    patch(plain, plan=plan_of(plain)).undo()
    patched = patch(plain, plan=plan_of(plain))
    assert torch.equal(logits(plain), own)
    patched.undo()
    patched = patch(plain, plan=plan_of(yarn))
    assert torch.equal(logits(plain), want)
    assert "4x apart" in str(patched)
    patched.undo()
    assert torch.equal(logits(plain), own)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_modules_that_recompute_their_numbers_keep_those_of_the_plan(kind: str) -> None:
    rope: dict[str, Any] = {"rope_type": kind, "rope_theta": 1e4, "factor": 4.0}
    if kind == "longrope":
        rope |= {"short_factor": [1.0] * 8, "long_factor": [3.0] * 8, "original_max_position_embeddings": 64}
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, max_position_embeddings=256, rope_parameters=rope)
    model, yarn = transformers.LlamaForCausalLM(config).eval(), made("llama", yarn=True)
    yarn.load_state_dict(model.state_dict())
    own = logits(model)
    patched = patch(model, plan=plan_of(yarn))
    assert torch.equal(logits(model), logits(yarn))
    patched.undo()
    assert torch.equal(logits(model), own)


def test_what_cannot_be_put_in_changes_nothing() -> None:
    model, yarn = made("llama"), plan_of(made("llama", yarn=True))
    own = logits(model)
    for plan, says in (
        (replace(yarn, layers=yarn.layers[:2]), "the plan has 2 layers and the model 3"),
        (replace(yarn, layers=(replace(yarn.layers[0], window=8), *yarn.layers[1:])), "the plan has window 8"),
        (plan_of(made("gemma3")), "layer 0"),
    ):
        with pytest.raises(ValueError, match=says):
            patch(model, plan=plan)
    assert torch.equal(logits(model), own)
    patch(model, plan=yarn)
    with pytest.raises(ValueError, match=r"call undo\(\)"):
        patch(model, plan=yarn)
    cast = made("llama").to(torch.bfloat16)
    with pytest.raises(ValueError, match="from_pretrained"):
        patch(cast, plan=yarn)


def test_exact_positions_are_undone_too() -> None:
    model = made("llama")
    own = logits(model)
    patched = patch(model)
    assert not torch.equal(logits(model), own)
    patched.undo()
    assert torch.equal(logits(model), own)
