"""RoPE's own options: axes, scalings, arithmetic; and what it refuses."""

from __future__ import annotations

import inspect
import math

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from ropewalk import positions
from ropewalk.encodings import RoPE
from ropewalk.plan import LayerPlan
from ropewalk.scaling import NTK, Dynamic, Linear, Llama3, LongRoPE, Proportional, YaRN
from tests.closeness import assert_close
from tests.encodings import oracles

FACTOR_ONE = [
    Linear(factor=1),
    NTK(factor=1),
    YaRN(factor=1, trained=2048),
    Llama3(factor=1, trained=2048),
    Dynamic(factor=1, trained=2048, length=2048),
    Proportional(fraction=1, factor=1),
]


@pytest.mark.parametrize("scaling", FACTOR_ONE, ids=lambda s: s.kind)
def test_factor_one_is_the_bitwise_identity(scaling) -> None:
    x = torch.randn(1, 2, 50, 64)
    at = torch.randint(0, 2**30, (50,))
    want, got = RoPE(head_width=64).at(at), RoPE(head_width=64, scaling=scaling).at(at)
    assert all(torch.equal(a, b) for a, b in zip(want.q_table, got.q_table, strict=True))
    assert torch.equal(want.rotate(x, "query"), got.rotate(x, "query"))


def axis_angles(index: list[int], axis_of: list[int], frequencies: list[float]) -> list[float]:
    return [index[axis] * omega for axis, omega in zip(axis_of, frequencies, strict=True)]


@pytest.mark.parametrize(
    ("settings", "axis_of", "frequencies"),
    [
        ({"sections": (2, 3, 3)}, [0, 0, 1, 1, 1, 2, 2, 2], oracles.frequencies(1e4, 16)),
        (
            {"sections": (4, 2, 2), "arrangement": "interleaved"},
            [0, 1, 2, 0, 1, 2, 0, 0],
            oracles.frequencies(1e4, 16),
        ),
        (
            {"sections": (4, 4), "arrangement": "axial"},
            [0] * 4 + [1] * 4,
            oracles.frequencies(1e4, 8) + oracles.frequencies(1e4, 8),
        ),
    ],
    ids=["blocks", "interleaved", "axial"],
)
def test_several_axes_against_the_definition(settings: dict, axis_of: list[int], frequencies: list[float]) -> None:
    rope = RoPE(head_width=16, **settings)
    places = [[0, 0, 0], [3, 700, 41], [1000, 2, 999], [5, 5, 5]]
    places = [place[: len(settings["sections"])] for place in places]
    x = torch.randn(1, 1, 4, 16)
    got = rope.at(torch.tensor([places])).rotate(x, "key")
    want = [
        oracles.rotate(v, axis_angles(place, axis_of, frequencies), "half")
        for v, place in zip(x[0, 0].tolist(), places, strict=True)
    ]
    assert_close("axes", [[want]], got, 1e-6)


@pytest.mark.parametrize("arrangement", ["blocks", "interleaved"])
def test_text_on_three_axes_is_plain_rope(arrangement: str) -> None:
    rope = RoPE(head_width=16, sections=(4, 2, 2), arrangement=arrangement)
    at = positions.interleaved([40])
    x = torch.randn(1, 2, 40, 16)
    assert torch.equal(rope.at(at).rotate(x, "query"), RoPE(head_width=16).at(torch.arange(40)).rotate(x, "query"))


def llama(base: float, width: int, parameters: dict, longest: int) -> LlamaRotaryEmbedding:
    config = LlamaConfig(
        hidden_size=4 * width,
        num_attention_heads=4,
        head_dim=width,
        max_position_embeddings=longest,
        rope_parameters={"rope_theta": base, **parameters},
    )
    return LlamaRotaryEmbedding(config)


SCALED = {
    "default": (None, {"rope_type": "default"}),
    "linear": (Linear(factor=4), {"rope_type": "linear", "factor": 4.0}),
    "yarn": (
        YaRN(factor=4, trained=1024),
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
    ),
    "llama3": (
        Llama3(factor=8, trained=1024, low=1, high=4),
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 1024,
        },
    ),
}


@pytest.mark.parametrize("name", SCALED)
def test_a_loaded_checkpoint_rotates_as_transformers_does(name: str) -> None:
    """Same frequencies to the bit; what is left is the rounding of transformers' own float32 product."""
    scaling, parameters = SCALED[name]
    theirs = llama(500_000.0, 64, parameters, 4096)
    rope = RoPE(head_width=64, base=500_000, scaling=scaling, arithmetic="float32")
    plan = rope.layer_plan()
    assert list(plan.frequencies) == theirs.inv_freq.tolist()
    assert plan.rotary_gain == pytest.approx(theirs.attention_scaling, rel=1e-12)
    q, k = torch.randn(2, 1, 4, 200, 64)
    at = torch.arange(3900, 4100)[None]
    signal = rope.at(at)
    cos, sin = theirs(q, at)
    want_q, want_k = apply_rotary_pos_emb(q, k, cos, sin)
    # Half an ulp of an angle near 4,096 is 1.2e-4; times the largest feature.
    bound = 2.5e-4 * q.abs().max().item()
    assert_close("query", want_q, signal.rotate(q, "query"), bound)
    assert_close("key", want_k, signal.rotate(k, "key"), bound)


def test_longrope_and_dynamic_take_the_length_from_the_limit() -> None:
    longrope = LongRoPE(short=(1.0,) * 8, long=(4.0,) * 8, trained=64, factor=4)
    rope = RoPE(head_width=16, scaling=longrope)
    gain = math.sqrt(1 + math.log(4) / math.log(64))
    for limit, divided in ((64, 1.0), (65, 4.0), (1024, 4.0)):
        at = torch.tensor([7, limit - 1])
        cos, sin = rope.at(at, limit=limit).q_table
        for row, place in enumerate(at.tolist()):
            for i, omega in enumerate(oracles.frequencies(1e4, 16)):
                angle = place * omega / divided
                assert float(cos[0, 0, row, i]) == pytest.approx(gain * math.cos(angle), abs=2e-6)
                assert float(sin[0, 0, row, i]) == pytest.approx(gain * math.sin(angle), abs=2e-6)
    with pytest.raises(ValueError, match="depends on the length"):
        rope.at(torch.tensor([7]))
    with pytest.raises(ValueError, match="queries have 64, keys 128"):
        rope.at(positions.plain(2, limit=64), positions.plain(2, limit=128))


@pytest.mark.parametrize("gain", [0.5, 1.0, 2.0])
def test_a_rotation_has_the_length_of_its_gain(gain: float) -> None:
    scaling = {"kind": "yarn", "factor": 4, "trained": 4096, "attention_factor": gain}
    cos, sin = RoPE(head_width=32, scaling=scaling).at(torch.arange(90_000, 90_008), limit=2**17).q_table
    assert torch.allclose(torch.hypot(cos, sin), torch.tensor(gain), rtol=1e-6, atol=0)


def test_no_longer_batch_mate_changes_a_row() -> None:
    """Dynamic scaling by the limit, not by what happens to be in the batch."""
    rope = RoPE(head_width=16, scaling=Dynamic(factor=2, trained=32))
    x = torch.randn(2, 1, 5, 16)
    short = positions.explicit(torch.tensor([[1, 2, 3, 4, 5]]), limit=64)
    both = positions.explicit(torch.tensor([[1, 2, 3, 4, 5], [50, 51, 52, 53, 54]]), limit=64)
    assert torch.equal(rope.at(short).rotate(x[:1], "key"), rope.at(both).rotate(x, "key")[:1])


def test_partial_rotation_passes_the_rest_through() -> None:
    x: Tensor = torch.randn(2, 3, 40, 32)
    for layout in ("half", "pairs"):
        got = RoPE(head_width=32, rotary_width=8, layout=layout).at(torch.arange(40) + 10**6).rotate(x, "query")
        assert torch.equal(got[..., 8:], x[..., 8:])
        assert not torch.equal(got[..., :8], x[..., :8])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"head_width": 7}, "rotary_width=7 must be even"),
        ({"head_width": 8, "rotary_width": 10}, "at most head_width=8"),
        ({"head_width": 16, "sections": (2, 2)}, r"add up to 4, the head has 8"),
        ({"head_width": 16, "arrangement": "axial"}, "give sections"),
        ({"head_width": 16, "sections": (4, 4), "arrangement": "interleaved"}, "three axes"),
        ({"head_width": 16, "base": 0.5}, "greater than 1"),
        ({"head_width": 16, "theta": 1e4}, "theta   no such key. Did you mean base"),
        ({}, r"RoPE needs head_width: RoPE\(head_width=...\)"),
    ],
)
def test_refused_with_the_value_and_the_way_out(settings: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RoPE(**settings)


def test_help_names_its_settings() -> None:
    named = list(inspect.signature(RoPE).parameters)
    assert named[:5] == ["config", "width", "heads", "head_width", "base"]
    assert "kind" not in named


def test_moving_on_several_axes_or_by_an_unknown_length_is_refused() -> None:
    k, delta = torch.randn(1, 1, 2, 16), torch.zeros(1, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match="several axes"):
        RoPE(head_width=16, sections=(4, 4), arrangement="axial").move(k, delta)
    with pytest.raises(ValueError, match="length-dependent"):
        RoPE(head_width=16, scaling=Dynamic(factor=2, trained=32)).move(k, delta)


def test_a_config_or_its_settings_not_both() -> None:
    with pytest.raises(ValueError, match="not both"):
        RoPE(RoPE.Config(), head_width=16, base=5e5)


def test_keys_are_moved_in_the_precision_of_the_tables() -> None:
    rope = RoPE(head_width=16, precision="float64")
    k = torch.randn(1, 1, 3, 16, dtype=torch.float64)
    near, far = torch.tensor([[5, 77, 1000]]), torch.tensor([[100_005, 123_456, 99_000]])
    moved = rope.move(rope.at(near).rotate(k, "key"), far - near)
    torch.testing.assert_close(moved, rope.at(far).rotate(k, "key"), rtol=0, atol=1e-14)


def test_a_length_is_resolved_once_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """With exact arithmetic, which takes milliseconds."""
    rope, resolved = RoPE(head_width=16, scaling=Dynamic(factor=2, trained=32)), []
    once = LayerPlan.for_length
    monkeypatch.setattr(LayerPlan, "for_length", lambda plan, limit: resolved.append(limit) or once(plan, limit))
    rope.at(torch.arange(5), limit=100)
    assert resolved == [100]


def test_a_length_dependent_scaling_is_resolved_once_for_each_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in every pass, and not in the module, which keeps no state: the numbers are those of the limit asked for."""
    asked, frequencies, place = [], Dynamic.frequencies, torch.tensor([[7]])
    rope = RoPE(head_width=16, scaling=Dynamic(factor=3.5, trained=1234))

    def counted(self: Dynamic, base: float, width: int) -> tuple:
        asked.append(self.length)
        return frequencies(self, base, width)

    with monkeypatch.context() as patch:
        patch.setattr(Dynamic, "frequencies", counted)
        found = [(limit, rope.at(place, limit=limit).q_table[1]) for limit in (3001, 6002, 3001, 6002)]
    assert sorted(asked) == [3001, 6002]
    for limit, sin in found:
        fixed = RoPE(head_width=16, scaling=Dynamic(factor=3.5, trained=1234).for_length(limit))
        assert torch.equal(fixed.at(place).q_table[1], sin)
