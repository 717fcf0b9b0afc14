"""The plan: what it computes, what its fingerprint is of, how it prints, and that JSON gives it back."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from ropewalk.plan import LayerPlan, Plan, rope_layer
from ropewalk.scaling import (
    NTK,
    Dynamic,
    Linear,
    Llama3,
    LongRoPE,
    Proportional,
    YaRN,
    ladder,
    ladder32,
    turns,
)

READ = (("base", "config.json:rope_theta"), ("factor", "config.json:rope_scaling.factor"))
ALIBI = LayerPlan(kind="alibi", settings='{"heads": 8, "kind": "alibi"}')


def phi(count=32, **settings):
    short, long = ((start,) * count for start in (1.0, 8.0))
    return LongRoPE(short=short, long=long, trained=100, factor=8, **settings)


def qwen(**changes):
    settings = {"scaling": YaRN(factor=4, trained=32_768), "layout": "half", "head_width": 128, "sources": READ}
    return rope_layer(**{"base": 1e6, "width": 128, **settings, **changes})


def test_rope_layer_computes():
    layer = qwen()
    exact = YaRN(factor=4, trained=32_768).frequencies(1e6, 128)
    assert layer.frequencies == tuple(float(x) for x in exact)
    assert layer.turns == turns(exact)
    assert layer.rotary_gain == pytest.approx(1.13862943611)
    assert layer.logit_gain == 1
    assert layer.wavelengths[0] == 2 * math.pi
    assert layer.resolved

    plain = rope_layer(1e4, 64, layout="pairs")
    assert plain.turns == turns(ladder(1e4, 64))
    assert (plain.kind, plain.scaling, plain.rotary_gain, plain.layout) == ("rope", None, 1, "pairs")

    deepseek = YaRN(factor=40, trained=4096, dialect="deepseek", mscale=1, mscale_all_dim=1)
    assert qwen(scaling=deepseek).logit_gain == deepseek.logit_gain > 1


def test_float32_arithmetic():
    layer = rope_layer(5e5, 96, arithmetic="float32", layout="half")
    assert layer.frequencies == ladder32(5e5, 96)
    assert layer.turns == turns(ladder32(5e5, 96))
    scaled = rope_layer(5e5, 96, Llama3(factor=8, trained=8192), "float32", layout="half")
    assert scaled.frequencies == Llama3(factor=8, trained=8192).frequencies32(5e5, 96)


def test_several_ladders():
    image = rope_layer(1e4, 64, layout="half", ladders=(32, 32))
    assert image.frequencies == tuple(float(x) for x in ladder(1e4, 32)) * 2
    later = rope_layer(1e4, 64, phi(16), layout="half", ladders=(32, 32)).for_length(101)
    assert later.frequencies == tuple(float(x) for x in phi(16, length=101).frequencies(1e4, 32)) * 2
    with pytest.raises(ValueError, match=r"add up to 48, the rotary width is 64"):
        rope_layer(1e4, 64, layout="half", ladders=(32, 16))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layout": "quarters"}, "layout 'quarters' is not half or pairs"),
        ({"arithmetic": "bfloat16"}, "arithmetic 'bfloat16' is not exact or float32"),
        ({"window": 0}, "window 0 sees nothing"),
        ({"rotary_gain": 0.0}, "rotary_gain 0.0 is not finite and positive"),
        ({"logit_gain": math.nan}, "logit_gain nan is not finite and positive"),
        ({"turns": (1,)}, "64 frequencies and 1 turns"),
        ({"settings": "[1]"}, r"settings '\[1\]' is not a JSON object"),
        ({"settings": "heads: 8"}, "settings 'heads: 8' is not a JSON object"),
    ],
)
def test_refusals(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(qwen(), **changes)


def test_refuses_a_rotation_wider_than_the_head():
    with pytest.raises(ValueError, match="rotary width 128 is wider than the head, 64"):
        qwen(head_width=64)


def test_frozen_hashable_and_equal():
    plan = Plan(layers=(qwen(), ALIBI))
    assert plan == Plan(layers=(qwen(), ALIBI))
    assert len({plan, Plan(layers=(qwen(), ALIBI)), Plan(layers=(qwen(),))}) == 2
    assert plan != Plan(layers=(qwen(sources=()), ALIBI))
    with pytest.raises(FrozenInstanceError):
        plan.trained = 4
    with pytest.raises(FrozenInstanceError):
        plan.layers[0].base = 1e4


MATTERS = {
    "base": {"base": 1e5},
    "base in its last bit": {"base": math.nextafter(1e6, 2e6)},
    "no scaling": {"scaling": None},
    "factor": {"scaling": YaRN(factor=4.5, trained=32_768)},
    "trained": {"scaling": YaRN(factor=4, trained=16_384)},
    "ramp": {"scaling": YaRN(factor=4, trained=32_768, ramp="paper")},
    "gain": {"scaling": YaRN(factor=4, trained=32_768, attention_factor=1.0)},
    "gain on scores": {"scaling": YaRN(factor=4, trained=32_768, dialect="deepseek", mscale=1, mscale_all_dim=0.1)},
    "layout": {"layout": "pairs"},
    "rotary width": {"width": 64},
    "head width": {"head_width": 256},
    "window": {"window": 4096},
    "arithmetic": {"arithmetic": "float32"},
    "kind": {"kind": "mine"},
    "settings": {"settings": '{"sections": [16, 24, 24]}'},
    "ladders": {"ladders": (64, 64)},
}


@pytest.mark.parametrize("name", MATTERS)
def test_fingerprint_changes_with(name):
    before, after = Plan(layers=(qwen(),)), Plan(layers=(qwen(**MATTERS[name]),))
    assert before.fingerprint != after.fingerprint


@pytest.mark.parametrize("field", ["rotary_gain", "logit_gain"])
def test_fingerprint_changes_with_the_last_bit_of_a_gain(field):
    layer = qwen()
    changed = replace(layer, **{field: math.nextafter(getattr(layer, field), 2)})
    assert Plan(layers=(layer,)).fingerprint != Plan(layers=(changed,)).fingerprint


def test_fingerprint_of_other_encodings_and_of_order():
    def of(*layers):
        return Plan(layers=layers).fingerprint

    other = replace(ALIBI, settings='{"heads": 16, "kind": "alibi"}')
    seen = [of(), of(ALIBI), of(other), of(ALIBI, qwen()), of(qwen(), ALIBI), of(ALIBI, ALIBI), of(qwen(), qwen())]
    assert len(set(seen)) == len(seen)
    spaced = replace(ALIBI, settings='{"kind":"alibi",  "heads":8}')
    assert spaced == ALIBI, "the same settings, written otherwise"
    assert of(spaced) == of(ALIBI)
    assert all(len(one) == 64 and int(one, 16) >= 0 for one in seen)


def test_fingerprint_is_stable():
    """A change of this number makes every stored cache unreadable: change it knowingly."""
    assert Plan(layers=(qwen(),)).fingerprint == "99a13fc3b9ff82f2c4bf14075334cd53cc5c43f7e9c8afa88e1bff8d46cc5f63"


def test_fingerprint_does_not_change_with_what_is_only_told():
    plain = Plan(layers=(qwen(),)).fingerprint
    assert Plan(layers=(qwen(sources=()),)).fingerprint == plain
    told = Plan(layers=(qwen(),), trained=1, extended=2, table=3, sources=(("trained", "config.json"),))
    assert told.fingerprint == plain
    assert told.for_length(10).fingerprint == plain


@pytest.mark.parametrize("arithmetic", ["exact", "float32"])
@pytest.mark.parametrize("scaling", [Dynamic(factor=2, trained=100), phi()], ids=["dynamic", "longrope"])
def test_length_is_decided_by_for_length(scaling, arithmetic):
    layer = rope_layer(1e4, 64, scaling, arithmetic, layout="half", sources=READ)
    assert (layer.frequencies, layer.turns, layer.resolved) == ((), (), False)
    assert layer.rotary_gain == scaling.rotary_gain
    plan = Plan(layers=(layer, ALIBI, layer), trained=100)
    assert not plan.resolved
    with pytest.raises(ValueError, match=r"has no frequencies yet; call plan.for_length\(limit\) first"):
        _ = plan.fingerprint

    within, at, past, further = (plan.for_length(limit) for limit in (1, 100, 101, 200))
    assert (at.length, past.length, plan.length) == (100, 101, None)
    assert at.resolved
    assert at.layers[1] is ALIBI
    assert at.layers[0].sources == READ
    reference = rope_layer(1e4, 64, scaling.for_length(101), arithmetic, layout="half", sources=READ)
    assert past.layers[0] == reference
    assert at.layers[0].turns == rope_layer(1e4, 64, scaling.for_length(100), arithmetic, layout="half").turns
    assert at.fingerprint != past.fingerprint
    assert within.fingerprint == at.fingerprint, "nothing changes up to the trained length"
    same = isinstance(scaling, LongRoPE)
    assert (further.fingerprint == past.fingerprint) is same, "the long list is one list, dynamic moves with the length"
    assert past.for_length(100) == at, "resolving again starts afresh"


def test_for_length_of_a_static_plan_is_itself():
    plan = Plan(layers=(qwen(), ALIBI))
    assert plan.for_length(7) is plan
    assert all(layer.for_length(7) is layer for layer in plan.layers)
    for limit in (0, -1, 2**40 + 1, 1.5, True, None):
        with pytest.raises(ValueError, match=r"is not an integer in \[1, 2\*\*40\]"):
            plan.for_length(limit)


def test_the_length_it_is_for():
    lengths = {"extended": 3, "trained": 2, "stated": 1}
    while lengths:
        assert Plan(layers=(ALIBI,), **lengths).longest == max(lengths.values())
        lengths.pop(next(iter(lengths)))
    assert Plan(layers=(ALIBI,)).longest is None


def test_a_layer_with_another_scaling():
    longer = YaRN(factor=8, trained=32_768)
    assert qwen().scaled(longer) == qwen(scaling=longer)
    with pytest.raises(ValueError, match="this layer's alibi has none"):
        ALIBI.scaled(longer)


def test_wavelengths():
    plan = Plan(layers=(rope_layer(1e6, 64, Proportional(fraction=0.25), layout="half"), ALIBI))
    first, second = plan.wavelengths
    assert second == ()
    assert first[0] == 2 * math.pi
    assert first[7] < math.inf
    assert set(first[8:]) == {math.inf}


EXAMPLES = [
    Plan(
        layers=(qwen(),) * 28,
        trained=32_768,
        extended=131_072,
        sources=(("trained", "config.json:max_position_embeddings"), ("extended", "default")),
    ),
    Plan(
        layers=(
            *(rope_layer(1e4, 256, layout="half", head_width=256, window=1024, sources=READ[:1]),) * 5,
            rope_layer(1e6, 512, Proportional(fraction=0.25), layout="half", head_width=512),
        )
        * 5,
        trained=131_072,
    ),
    Plan(
        layers=(
            rope_layer(1e4, 64, Dynamic(factor=2, trained=2048), layout="pairs", head_width=128),
            LayerPlan(kind="none"),
            rope_layer(
                1e4,
                64,
                YaRN(factor=40, trained=4096, dialect="deepseek", mscale_all_dim=1),
                "float32",
                layout="pairs",
                sources=(("scaling", "rope_scaling"),),
            ),
            LayerPlan(kind="chain", settings=json.dumps({"parts": ["x" * 30] * 4, "kind": "chain"}), window=512),
        ),
        table=512,
    ),
    Plan(layers=(rope_layer(10_000.5, 64, NTK(factor=2), layout="half"),)),
    Plan(layers=(rope_layer(1e4, 64, phi(), layout="half"),) * 2).for_length(101),
]
PRINTED = [
    """\
28 layers, trained 32,768 [config.json:max_position_embeddings], extended 131,072
layers 0-27  rope half 128/128  base 1,000,000 [config.json:rope_theta]
             yarn x4 from 32,768 [config.json:rope_scaling.factor]  gain 1.1386""",
    """\
30 layers, trained 131,072
layers 0-4,6-10.. (25)  rope half 256/256  base 10,000 [config.json:rope_theta]  window 1,024
layers 5,11..29         rope half 512/512  base 1,000,000
                        proportional 0.25""",
    """\
4 layers, table 512
layers 0  rope pairs 64/128  base 10,000
          dynamic x2 past 2,048  not resolved: for_length(limit)
layers 1  none
layers 2  rope pairs 64  base 10,000
          yarn x40 from 4,096, dialect deepseek [rope_scaling]  gain on scores 1.8739  in float32
layers 3  chain  parts ['xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx', 'xxxxxxxxxxxxxxx...  window 512""",
    """\
1 layer
layer 0  rope half 64  base 10,000.5
         ntk x2""",
    """\
2 layers, length 101
layers 0-1  rope half 64  base 10,000
            longrope x8 from 100, long list  gain 1.2048""",
]


@pytest.mark.parametrize(("plan", "printed"), list(zip(EXAMPLES, PRINTED, strict=True)))
def test_prints_what_a_reader_needs(plan, printed):
    assert str(plan) == printed
    assert max(map(len, str(plan).splitlines())) <= 110


def test_layer_numbers_print_short():
    layers = [ALIBI if number in (0, 3, 7) else qwen() for number in range(9)]
    assert "layers 0,3,7      alibi" in str(Plan(layers=tuple(layers)))
    assert "layers 1-2,4-6,8  rope" in str(Plan(layers=tuple(layers)))
    assert str(Plan(layers=())) == "0 layers"


@pytest.mark.parametrize("plan", EXAMPLES)
def test_json_round_trip(plan):
    text = json.dumps(plan.to_dict(), allow_nan=False)
    again = Plan.from_dict(json.loads(text))
    assert again == plan
    assert hash(again) == hash(plan)
    assert again.resolved == plan.resolved
    if plan.resolved:
        assert again.fingerprint == plan.fingerprint
    # Numbers that a double cannot hold are text.
    assert all(isinstance(turn, str) for layer in plan.to_dict()["layers"] for turn in layer["turns"])


def test_bad_json_is_refused():
    data = Plan(layers=(qwen(), ALIBI, qwen()), trained=5).to_dict()

    def changed(**layer):
        return {**data, "layers": [{**data["layers"][0], **layer}, data["layers"][1]]}

    for bad, message in (
        ({**data, "traind": 4}, r"plan: no key 'traind' \(did you mean 'trained'\?\)"),
        (changed(bass=4), r"one layer: no key 'bass' \(did you mean 'base'\?\)"),
        (changed(numbers=[0, 1]), "layer 1 is described twice"),
        (changed(numbers=[0, 3]), r"layers \[0, 1, 3\] leave gaps; describe 0 to 2"),
        (changed(rotary_gain=1.5), "do not give the fingerprint"),
        (changed(turns=["1"] * 64), "do not give the fingerprint"),
        ({"trained": 5}, "layers is missing"),
        ({"layers": [{"kind": "rope"}]}, "no numbers"),
        ({**data, "layers": [data["layers"][0], {"kind": "alibi"}]}, "no numbers"),
        (changed(scaling={"kind": "yran"}), r"no scaling 'yran' \(did you mean 'yarn'\?\)"),
        (changed(scaling={"kind": "yarn", "factor": 4}), "trained"),
    ):
        with pytest.raises(ValueError, match=message):
            Plan.from_dict(bad)


def test_needs_no_torch():
    code = (
        "import sys; from ropewalk.plan import Plan, rope_layer; from ropewalk.scaling import Dynamic;"
        "plan = Plan(layers=(rope_layer(1e4, 64, Dynamic(factor=2, trained=9), layout='half'),)).for_length(20);"
        "print(plan, plan.fingerprint); Plan.from_dict(plan.to_dict());"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    source = str(Path(__file__).parents[1] / "src")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, env=environment)


def test_factor_one_turns_like_no_scaling():
    plain = rope_layer(1e4, 64, layout="half")
    for scaling in (Linear(factor=1), NTK(factor=1), YaRN(factor=1, trained=4096), Llama3(factor=1, trained=4096)):
        assert rope_layer(1e4, 64, scaling, layout="half").turns == plain.turns
