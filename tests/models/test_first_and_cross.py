"""`keep_first` and `cross_encoding` of a config: in the rule, the plan, the cache and the errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ropewalk import positions
from ropewalk.models import Transformer, TransformerConfig, complete
from ropewalk.plan import Plan
from tests.closeness import assert_close

SMALL: dict[str, Any] = {"width": 32, "heads": 4, "vocabulary": 50, "layers": 2, "std": 0.3}
BOTH = {**SMALL, "stack": "encoder-decoder"}


def test_first_tokens_stay_visible_past_the_window() -> None:
    """One layer, so that what the last token sees can be read off the weights: its window, and the first two."""
    model = Transformer(TransformerConfig(**{**SMALL, "layers": 1}, window=4, keep_first=2)).eval()
    tokens, at = torch.randint(50, (1, 12)), positions.packed([[5, 7]])
    seen = (model.attention_weights(tokens, at)[0][0, 0, -1] > 0).nonzero().flatten().tolist()
    assert seen == [5, 6, 8, 9, 10, 11]
    assert str(model.plan).endswith("window 4, the first 2 kept")
    assert Plan.from_dict(model.plan.to_dict()) == model.plan
    other = Transformer(TransformerConfig(**{**SMALL, "layers": 1}, window=4))
    assert other.plan.fingerprint != model.plan.fingerprint
    assert "keep_first" not in other.plan.to_dict()["layers"][0]


def test_decoding_with_a_cache_keeps_the_first() -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(**SMALL, window=4, keep_first=2)).eval()
    prompt = torch.randint(50, (9,)).tolist()
    told = {"max_tokens": 20, "temperature": 0}
    assert complete(model, prompt, **told) == complete(model, prompt, **told, cached=False)


def test_kinds_of_layers_have_the_models_first_where_they_have_a_window() -> None:
    layers = {"count": 3, "pattern": ["near", "far", "bare"]}
    kinds = {"near": {"window": 4}, "far": {}, "bare": {"window": 5, "keep_first": 0}}
    config = TransformerConfig(**{**SMALL, "layers": {**layers, "kinds": kinds}}, keep_first=3)
    assert [(layer.window, layer.keep_first) for layer in config.layer_kinds()] == [(4, 3), (None, 0), (5, 0)]
    assert TransformerConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize("kind", ["rope", "alibi", {"kind": "t5", "bidirectional": True}])
def test_cross_attention_knows_positions(kind: Any) -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(**BOTH, cross_encoding=kind)).eval()
    source, target = torch.randint(50, (1, 8)), torch.randint(50, (1, 5))
    out = model(target, source=source)
    # Both texts moved by as much: nothing changes. Either alone: the scores of cross-attention do.
    far = 2**30
    both = model(target, torch.arange(5) + far, source=source, source_at=torch.arange(8) + far)
    assert_close("both moved", out, both, 1e-4)
    alone = model(target, source=source, source_at=torch.arange(8) + 3)
    assert (alone - out).abs().max().item() > 1e-3
    none = Transformer(TransformerConfig(**BOTH)).eval()
    assert_close("none", none(target, source=source), none(target, source=source, source_at=torch.arange(8) + 3), 2e-5)
    told = {"start": 1, "max_tokens": 8, "temperature": 0}
    assert complete(model, source[0].tolist(), **told) == complete(model, source[0].tolist(), **told, cached=False)


def test_the_plan_and_the_cache_know_the_cross_encoding() -> None:
    model, other = (Transformer(TransformerConfig(**BOTH, cross_encoding=kind)).eval() for kind in ("rope", "none"))
    assert "cross-attention  rope half 8/8  base 10,000" in str(model.plan)
    assert Plan.from_dict(model.plan.to_dict()) == model.plan
    memory = model.encode(torch.randint(50, (1, 8)))
    cache = model.cache(1, 8, limit=8, memory=memory)
    with pytest.raises(ValueError, match="rotated under plan"):
        other(torch.randint(50, (1, 1)), positions.explicit(torch.zeros(1, 1, dtype=torch.int64), 8), cache=cache)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"keep_first": 4}, "no layer has one; write window: 4096"),
        ({"layers": {"count": 1, "pattern": ["a"], "kinds": {"a": {"keep_first": 3}}}}, "a: keep_first 3 keeps tokens"),
        ({"cross_encoding": "rope"}, "the stack is decoder; write stack: encoder-decoder, or none"),
        ({**BOTH, "cross_encoding": "xpos"}, "cross-attention also looks at those after it"),
        ({**BOTH, "cross_encoding": "sinusoidal"}, "sinusoidal changes token vectors"),
        (
            {**BOTH, "cross_encoding": {"kind": "rope", "scaling": {"kind": "dynamic", "factor": 2, "trained": 8}}},
            "rope depends on the length here, and two texts have two",
        ),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        TransformerConfig(**{**SMALL, **settings})
