"""A chain in the plan, and what it makes of the model's width."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ropewalk.encodings import Encoding, build
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.plan import Plan
from ropewalk.scaling import Dynamic, YaRN, ladder, turns
from tests.encodings import oracles

HEAT = {"kind": "temperature", "form": "ministral", "trained": 32}
DYNAMIC = {"kind": "rope", "scaling": {"kind": "dynamic", "factor": 2, "trained": 64}}
GAINED = {"factor": 16, "trained": 128, "dialect": "deepseek", "mscale": 1.0, "mscale_all_dim": 1.0}
SMALL: dict[str, Any] = {"vocabulary": 37, "width": 64, "heads": 4, "layers": 2, "tie": False}


def chain(*parts: Any) -> Encoding:
    return build({"kind": "chain", "parts": parts}, width=64, heads=4, head_width=16)


def test_the_plan_has_the_frequencies_and_the_gains() -> None:
    layer = chain({"kind": "rope", "scaling": {"kind": "yarn", **GAINED}}, HEAT).layer_plan(window=7)
    yarn = YaRN(**GAINED)
    assert layer.turns == turns(yarn.frequencies(1e4, 16))
    # DeepSeek's code: softmax_scale * (0.1 mscale_all_dim ln factor + 1)^2
    assert layer.logit_gain == yarn.logit_gain == pytest.approx((0.1 * 2.772588722239781 + 1) ** 2)
    assert (layer.kind, layer.layout, layer.rotary_width, layer.window) == ("chain", "half", 16, 7)
    assert "rope + temperature half 16/16  base 10,000" in str(Plan(layers=(layer,)))


def test_a_length_dependent_part_leaves_the_chain_unresolved() -> None:
    plan = Plan(layers=(chain(DYNAMIC, HEAT).layer_plan(),) * 2)
    assert not plan.resolved
    short, long = plan.for_length(64), plan.for_length(4096)
    assert short.layers[0].turns == turns(ladder(1e4, 16))
    assert long.layers[0].turns == turns(Dynamic(factor=2, trained=64, length=4096).frequencies(1e4, 16))
    assert short.fingerprint != long.fingerprint
    assert Plan.from_dict(long.to_dict()) == long


def test_a_cache_knows_the_limit_its_keys_were_turned_under() -> None:
    model = Transformer(TransformerConfig(**SMALL, encoding={"kind": "chain", "parts": [DYNAMIC, HEAT]}))
    short, long = (model.cache(1, 8, limit=limit).fingerprint for limit in (64, 4096))
    assert short != long


def test_other_parts_are_in_the_fingerprint() -> None:
    every = [chain("rope", HEAT), chain("rope", {**HEAT, "strength": 0.2}), chain("rope"), chain(HEAT)]
    prints = [Plan(layers=(each.layer_plan(),)).fingerprint for each in every]
    assert len(set(prints)) == len(prints)


@pytest.mark.parametrize("parts", [("rope", "rope"), ("rope", HEAT, "xpos")])
def test_two_rotations_are_refused(parts: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"turns queries and keys once, and rope and (rope|xpos) both do; keep one"):
        chain(*parts)


def sines(position: int, width: int) -> list[float]:
    return [oracles.sinusoid(position, feature, width, 1e4) for feature in range(width)]


def beside(share: int | None = None) -> dict[str, Any]:
    return {"kind": "sinusoidal", "combine": "concat", "share": share}


@pytest.mark.parametrize(
    ("parts", "tokens"),
    [
        ((beside(16), beside(8)), 40),
        ((beside(), beside()), 16),
        (("sinusoidal", beside(24)), 40),
        ((beside(24), "sinusoidal"), 40),
        (("alibi", beside(24), HEAT), 40),
    ],
)
def test_parts_that_take_a_share_of_the_width(parts: tuple[Any, ...], tokens: int) -> None:
    encoding, place = chain(*parts), 1021
    assert encoding.token_width == tokens
    x = torch.randn(tokens)
    want = x.tolist()
    for part in parts:
        if isinstance(part, dict) and part.get("combine") == "concat":
            # Half of the width after the part, which is as much again as there was.
            want = want + sines(place, part["share"] or len(want))
        elif part == "sinusoidal":
            want = [a + b for a, b in zip(want, sines(place, len(want)), strict=True)]
    got = encoding.at(torch.tensor([place])).embed(x[None, None])
    assert got.shape == (1, 1, 64)
    torch.testing.assert_close(got[0, 0], torch.tensor(want), rtol=0, atol=2e-6)
    model = Transformer(TransformerConfig(**SMALL, encoding={"kind": "chain", "parts": parts}))
    assert model(torch.zeros(1, 3, dtype=torch.int64)).shape == (1, 3, 37)
