"""Construction, refusal, length, and what the package promises of itself."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

import ropewalk.scaling
from ropewalk.scaling import (
    NTK,
    AnyScaling,
    Dynamic,
    Linear,
    Llama3,
    LongRoPE,
    Proportional,
    YaRN,
    find,
    ladder,
    names,
)


def test_the_file_name_is_the_kind():
    files = {path.stem for path in Path(ropewalk.scaling.__file__).parent.glob("*.py")} - {"__init__", "base", "exact"}
    assert set(names()) == files
    for name in names():
        found = find(name)
        assert found.__module__ == f"ropewalk.scaling.{name}"
        assert found.model_fields["kind"].default == name
        assert found.__module__ in sys.modules
        assert sys.modules[found.__module__].__doc__
    with pytest.raises(ValueError, match=r"no scaling 'yran' \(did you mean 'yarn'\?\); there are linear, ntk"):
        find("yran")


def test_every_field_is_described():
    for name in names():
        for field, info in find(name).model_fields.items():
            assert info.description or field == "kind", (name, field)


def test_deepseeks_scores_are_as_they_are_unless_its_config_says_otherwise():
    settings = {"factor": 40, "trained": 4096, "dialect": "deepseek"}
    assert YaRN(**settings).logit_gain == YaRN(**settings, mscale_all_dim=0).logit_gain == 1
    assert YaRN(**settings, mscale_all_dim=1).logit_gain == pytest.approx((0.1 * math.log(40) + 1) ** 2)


@pytest.mark.parametrize(
    ("scaling", "settings", "message"),
    [
        (Linear, {"factor": 0.99}, "greater than or equal to 1"),
        (Linear, {"factor": 4097}, "less than or equal to 4096"),
        (Linear, {"factor": float("inf")}, "finite"),
        (Linear, {"facter": 2}, "facter"),
        (NTK, {"factor": float("nan")}, "finite"),
        (Dynamic, {"factor": 2, "trained": 0}, "greater than or equal to 2"),
        (Dynamic, {"factor": 2, "trained": 2**41}, "less than or equal to 1099511627776"),
        (YaRN, {"factor": 2}, "trained"),
        (YaRN, {"factor": 2, "trained": 2048, "beta_slow": 0}, "greater than 0"),
        (YaRN, {"factor": 2, "trained": 2048, "beta_slow": 33}, "beta_slow 33 must be below beta_fast 32"),
        (
            YaRN,
            {"factor": 2, "trained": 2048, "beta_slow": 32, "ramp": "paper"},
            "beta_slow 32 must be below beta_fast 32",
        ),
        (YaRN, {"factor": 2, "trained": 2048, "ramp": "curve"}, "code or paper, got 'curve'"),
        (YaRN, {"factor": 2, "trained": 2048, "ramp": "paper", "truncate": False}, "no meaning on the paper ramp"),
        (YaRN, {"factor": 2, "trained": 2048, "attention_factor": 0}, "greater than 0"),
        (YaRN, {"factor": 2, "trained": 2048, "mscale": -1}, "greater than or equal to 0"),
        (YaRN, {"factor": 2, "trained": 2048, "dialect": "paper", "mscale": 1}, "mscale is not in the paper"),
        (YaRN, {"factor": 2, "trained": 2048, "dialect": "paper", "attention_factor": 1}, "attention_factor is not"),
        (Llama3, {"factor": 2, "trained": 2048, "low": 5}, "low 5 is above high 4"),
        (LongRoPE, {"short": (), "long": (), "trained": 9, "factor": 1}, "short +needs at least 1 entry, has 0"),
        (LongRoPE, {"short": (1,), "long": (1, 1), "trained": 9, "factor": 1}, "short has 1 divisors and long has 2"),
        (LongRoPE, {"short": (1,), "long": (-1,), "trained": 9, "factor": 1}, "greater than 0"),
        (LongRoPE, {"short": (1,), "long": (1,), "trained": 9}, "give one"),
        (LongRoPE, {"short": (1,), "long": (1,), "trained": 9, "factor": 2, "extended": 18}, "say the same thing"),
        (
            LongRoPE,
            {"short": (1,), "long": (1,), "trained": 9, "extended": 8},
            "extended 8 is not 1 to 4096 times trained 9",
        ),
        (Proportional, {"fraction": 0}, "greater than 0"),
        (Proportional, {"fraction": 1.01}, "less than or equal to 1"),
    ],
)
def test_refusals(scaling, settings, message):
    with pytest.raises(ValueError, match=message):
        scaling(**settings)


def test_refusals_at_use():
    with pytest.raises(ValueError, match="has 2 divisors, a rotary width of 64 needs 32; give lists of 32 or rotate"):
        LongRoPE(short=(1, 1), long=(1, 1), trained=9, factor=2, length=9).frequencies(1e4, 64)
    with pytest.raises(ValueError, match=r"turns no pair; raise it to 0\.0625 or more"):
        Proportional(fraction=0.01).frequencies(1e4, 32)
    for scaling in (NTK(factor=2), Dynamic(factor=2, trained=9, length=9)):
        for use in (scaling.frequencies, scaling.frequencies32):
            with pytest.raises(ValueError, match=r"even integer in \[4,"):
                use(1e4, 2)
    for name in names():
        settings = {
            "factor": 2,
            "trained": 4096,
            "length": 5,
            "fraction": 1.0,
            "short": (1,) * 32,
            "long": (1,) * 32,
        }
        scaling = find(name)(**{k: v for k, v in settings.items() if k in find(name).model_fields})
        for use in (scaling.frequencies, scaling.frequencies32):
            with pytest.raises(ValueError, match=r"outside \(1, 1e12\]"):
                use(1.0, 64)
            with pytest.raises(ValueError, match="not an even integer"):
                use(1e4, 63)


@pytest.mark.parametrize(("trained", "base"), [(3, 1e4), (2**30, 2.0)])
def test_yarn_refuses_an_empty_ramp(trained, base):
    """Too short a length: shipped code scales nothing. Too long for the base: it divides what it should keep."""
    scaling = YaRN(factor=4, trained=trained)
    for use in (scaling.frequencies, scaling.frequencies32):
        with pytest.raises(ValueError, match="ends before it starts"):
            use(base, 64)
    assert len(YaRN(factor=4, trained=trained, ramp="paper").frequencies(base, 64)) == 32


def test_yarn_ramp_of_no_length():
    """trained = 6 rounds both ends to index 0: one frequency is kept, all others are divided."""
    found, plain = YaRN(factor=4, trained=6).frequencies(1e4, 64), ladder(1e4, 64)
    assert found[0] == plain[0]
    assert [float(x) for x in found[1:]] == pytest.approx([float(x) / 4 for x in plain[1:]], rel=1e-15)


@pytest.mark.parametrize("arithmetic", ["frequencies", "frequencies32"])
def test_length_is_decided_once(arithmetic):
    phi = LongRoPE(short=(1,) * 32, long=(8,) * 32, trained=100, factor=8)
    for scaling in (phi, Dynamic(factor=2, trained=100)):
        assert scaling.length_dependent
        with pytest.raises(ValueError, match=r"call for_length\(limit\) first"):
            getattr(scaling, arithmetic)(1e4, 64)
        at, past = scaling.for_length(100), scaling.for_length(101)
        assert (at.length, past.length) == (100, 101)
        assert scaling.length is None
        assert past.for_length(100) == at
        first, second = getattr(at, arithmetic)(1e4, 64), getattr(past, arithmetic)(1e4, 64)
        assert first != second
        assert getattr(scaling.for_length(1), arithmetic)(1e4, 64) == first
        with pytest.raises(ValueError, match="greater than or equal to 1"):
            scaling.for_length(0)
    for scaling in (Linear(factor=2), NTK(factor=2), YaRN(factor=2, trained=100), Llama3(factor=2, trained=100)):
        assert not scaling.length_dependent
        assert scaling.for_length(10) is scaling


def test_frozen_hashable_and_equal():
    yarn = YaRN(factor=4, trained=8192)
    with pytest.raises(ValidationError, match="frozen"):
        yarn.factor = 8
    assert {yarn: 1}[YaRN(factor=4.0, trained=8192)] == 1
    assert yarn != YaRN(factor=4, trained=8192, truncate=False)


def test_kind_picks_the_class_in_a_config():
    class Config(BaseModel):
        scaling: AnyScaling | None = None

    phi = {"kind": "longrope", "short": [1], "long": [2], "trained": 9, "factor": 2}
    read = Config.model_validate({"scaling": phi})
    assert read.scaling == LongRoPE(short=(1,), long=(2,), trained=9, factor=2)
    assert Config.model_validate_json(read.model_dump_json()) == read
    with pytest.raises(ValidationError, match="'linear', 'ntk', 'dynamic', 'yarn'"):
        Config.model_validate({"scaling": {"kind": "yran"}})


@pytest.mark.parametrize(
    ("scaling", "printed"),
    [
        (Linear(factor=4), "linear x4"),
        (NTK(factor=2.5), "ntk x2.5"),
        (Dynamic(factor=2, trained=32_768), "dynamic x2 past 32,768"),
        (Dynamic(factor=2, trained=32_768, length=65_536), "dynamic x2 past 32,768, at 65,536"),
        (YaRN(factor=4, trained=32_768), "yarn x4 from 32,768"),
        (YaRN(factor=32, trained=4096, truncate=False), "yarn x32 from 4,096, truncate False"),
        (YaRN(factor=4, trained=4096, ramp="paper"), "yarn x4 from 4,096, ramp paper"),
        (Llama3(factor=8, trained=8192), "llama3 x8 from 8,192"),
        (Llama3(factor=8, trained=8192, high=8), "llama3 x8 from 8,192, low 1, high 8"),
        (LongRoPE(short=(1,), long=(2,), trained=4096, extended=131_072), "longrope x32 from 4,096"),
        (LongRoPE(short=(1,), long=(2,), trained=4096, factor=32, length=4097), "longrope x32 from 4,096, long list"),
        (Proportional(fraction=0.25), "proportional 0.25"),
        (Proportional(fraction=0.25, factor=8), "proportional 0.25 x8"),
    ],
)
def test_prints_as_what_it_is(scaling, printed):
    assert str(scaling) == printed


def test_needs_no_torch():
    code = (
        "import sys; from ropewalk.scaling import YaRN, from_hf, turns;"
        "turns(YaRN(factor=4, trained=4096).frequencies(1e4, 64)); from_hf({'rope_theta': 1e4});"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    source = str(Path(__file__).parents[2] / "src")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment)
