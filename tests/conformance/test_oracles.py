"""The oracles: compared with another arithmetic (mpmath), against numbers worked out elsewhere, and kept apart."""

from __future__ import annotations

import ast
import math
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.conformance import Spec, oracles
from ropewalk.conformance import target as target_module
from ropewalk.scaling import YaRN, ladder

mpmath.mp.prec = 400

# D = 64, base 10,000, trained 2,048, factor 8; pairs 0, 8, 12, 16, 20, 24, 31.
GOLDEN = {
    "plain": (None, "1.000000e+00 1.000000e-01 3.162278e-02 1.000000e-02 3.162278e-03 1.000000e-03 1.333521e-04"),
    "linear": (
        {"kind": "linear", "factor": 8},
        "1.250000e-01 1.250000e-02 3.952847e-03 1.250000e-03 3.952847e-04 1.250000e-04 1.666902e-05",
    ),
    "ntk": (
        {"kind": "ntk", "factor": 8},
        "1.000000e+00 5.847154e-02 1.413894e-02 3.418921e-03 8.267254e-04 1.999096e-04 1.666902e-05",
    ),
    "yarn": (
        {"kind": "yarn", "factor": 8, "trained": 2048},
        "1.000000e+00 1.000000e-01 2.310895e-02 4.615385e-03 6.081303e-04 1.250000e-04 1.666902e-05",
    ),
    "yarn, not truncated": (
        {"kind": "yarn", "factor": 8, "trained": 2048, "truncate": False},
        "1.000000e+00 1.000000e-01 2.257809e-02 4.233133e-03 4.194592e-04 1.250000e-04 1.666902e-05",
    ),
    "yarn, as published": (
        {"kind": "yarn", "factor": 8, "trained": 2048, "ramp": "paper"},
        "1.000000e+00 1.000000e-01 1.226045e-02 1.887760e-03 3.980287e-04 1.250000e-04 1.666902e-05",
    ),
    "llama3": (
        {"kind": "llama3", "factor": 8, "trained": 2048},
        "1.000000e+00 1.000000e-01 3.162278e-02 7.840189e-03 4.236393e-04 1.250000e-04 1.666902e-05",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_frequencies_are_the_published_ones(name: str) -> None:
    scaling, text = GOLDEN[name]
    found = oracles.frequencies(Spec(head_width=64, scaling=scaling))
    assert " ".join(f"{float(found[i]):e}" for i in (0, 8, 12, 16, 20, 24, 31)) == text


def test_gains_and_the_dynamic_base_are_the_published_ones() -> None:
    yarn = Spec(scaling={"kind": "yarn", "factor": 8, "trained": 2048})
    assert oracles.gains(yarn)[0] == pytest.approx(1.2079441542, abs=1e-10)
    lists = {"short": [1.0] * 32, "long": [2.0] * 32}
    longrope = Spec(scaling={"kind": "longrope", "trained": 2048, "factor": 8, **lists}, longest=4096)
    assert oracles.gains(longrope)[0] == pytest.approx(1.1281521496, abs=1e-10)
    dynamic = Spec(scaling={"kind": "dynamic", "factor": 8, "trained": 2048}, longest=16384)
    want = oracles.ladder(649405.526, 64)
    for got, other in zip(oracles.frequencies(dynamic), want, strict=True):
        assert float(got) == pytest.approx(float(other), rel=1e-8)


def test_deepseek_gains_are_in_two_places() -> None:
    settings = {"kind": "yarn", "factor": 40, "trained": 4096, "dialect": "deepseek", "mscale": 0.707}
    spec = Spec(scaling={**settings, "mscale_all_dim": 0.707})
    rotary, logit = oracles.gains(spec)
    assert rotary == 1
    assert logit == pytest.approx((0.0707 * math.log(40) + 1) ** 2)


@pytest.mark.parametrize("digits", [75])
def test_pi(digits: int) -> None:
    assert str(oracles.pi())[:digits] == mpmath.nstr(mpmath.pi, digits + 5)[:digits]


@given(st.integers(0, 2**40), st.floats(2, 1e12), st.sampled_from([2, 4, 64, 128]))
def test_angles_are_those_of_another_arithmetic(position: int, base: float, width: int) -> None:
    got = oracles.angles([position], oracles.ladder(base, width))[0]
    for i in {0, width // 4, width // 2 - 1}:
        want = mpmath.mpf(position) * mpmath.power(mpmath.mpf(base), mpmath.mpf(-2 * i) / width)
        assert float(mpmath.cos(want)) == pytest.approx(math.cos(got[i]), abs=2e-15)
        assert float(mpmath.sin(want)) == pytest.approx(math.sin(got[i]), abs=2e-15)


@given(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40))
def test_rotations_compose(m: int, n: int) -> None:
    spec = Spec(head_width=8, heads=1, layout="pairs", arithmetic="exact")
    x = torch.arange(1.0, 9.0).view(1, 1, 1, 8)
    once = oracles.rotate(oracles.rotate(x, torch.tensor([[m]]), spec), torch.tensor([[n]]), spec)
    assert torch.allclose(once, oracles.rotate(x, torch.tensor([[m + n]]), spec), atol=1e-13, rtol=0)


@pytest.mark.parametrize("kind", ["plain", "linear", "yarn", "llama3"])
def test_float32_frequencies_are_those_of_transformers(kind: str) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    scaling = {
        "plain": None,
        "linear": {"kind": "linear", "factor": 4.0},
        "yarn": {"kind": "yarn", "factor": 4.0, "trained": 2048},
        "llama3": {"kind": "llama3", "factor": 8.0, "trained": 2048},
    }[kind]
    spec = Spec(head_width=64, base=500_000.0, scaling=scaling)
    parameters = {"rope_type": "default", "rope_theta": 500_000.0}
    if spec.scaling is not None:
        parameters = spec.scaling.to_hf(500_000.0)
    sizes = {"hidden_size": 128, "num_attention_heads": 2, "max_position_embeddings": 2048}
    want = LlamaRotaryEmbedding(LlamaConfig(rope_parameters=parameters, **sizes)).inv_freq
    assert [float(omega) for omega in oracles.frequencies32(spec)] == want.tolist()


@pytest.mark.parametrize(("arrangement", "sections"), [("blocks", (16, 24, 24)), ("interleaved", (24, 20, 20))])
def test_axes_are_those_of_transformers(arrangement: str, sections: tuple[int, int, int]) -> None:
    """Qwen2-VL and Qwen3-VL, by what their own code takes from each axis."""
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding

    own = Qwen2VLRotaryEmbedding if arrangement == "blocks" else Qwen3VLTextRotaryEmbedding
    marked = torch.arange(3.0)[:, None, None, None].repeat(1, 1, 1, 64)  # each axis has its number for an angle
    got = own.recomposition_frequencies(SimpleNamespace(mrope_section=list(sections)), marked)[0, 0, :64]
    assert got.long().tolist() == oracles.axis_of(Spec(head_width=128, sections=sections, arrangement=arrangement))


def test_an_axial_arrangement_has_a_ladder_for_each_axis() -> None:
    spec = Spec(head_width=16, sections=(2, 6), arrangement="axial")
    want = [10_000 ** (-2 * i / 4) for i in range(2)] + [10_000 ** (-2 * i / 12) for i in range(6)]
    assert [float(omega) for omega in oracles.frequencies(spec)] == pytest.approx(want)
    assert [float(omega) for omega in oracles.frequencies32(spec)] == pytest.approx(want, rel=1e-6)
    assert oracles.axis_of(spec) == [0, 0, 1, 1, 1, 1, 1, 1]


def test_temperatures_are_those_of_transformers() -> None:
    """Llama 4's and Ministral 3's factors, as their attention computes them."""
    from transformers.models.ministral3.modeling_ministral3 import get_llama_4_attn_scale

    positions = torch.tensor([0, 1, 8190, 8191, 8192, 16_383, 16_384, 1_000_000])
    spec = Spec(temperature={"form": "ministral", "trained": 8192, "strength": 0.1})
    want = get_llama_4_attn_scale(positions[None], 0.1, 8192).flatten()
    assert oracles.temperature(positions, spec).tolist() == pytest.approx(want.tolist(), rel=1e-6)
    # modeling_llama4.py: log1p(floor((cache_position + 1) / floor_scale)) * attn_scale + 1
    want = torch.log1p(torch.floor((positions.float() + 1.0) / 8192)) * 0.1 + 1.0
    spec = Spec(temperature={"form": "llama4", "trained": 8192, "strength": 0.1})
    assert oracles.temperature(positions, spec).tolist() == pytest.approx(want.tolist(), rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sections": (1, 2)}, "must add up to the 32 frequencies"),
        ({"sections": (16, 16), "arrangement": "interleaved"}, "defined on three axes"),
        ({"arrangement": "axial"}, "give sections"),
        ({"sections": (16, 16), "arrangement": "axial", "scaling": {"kind": "linear", "factor": 2}}, "plain ladder"),
        ({"sections": (16, 16), "temperature": {"trained": 64}}, "declare one of them"),
    ],
)
def test_axes_that_cannot_be_are_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Spec(head_width=64, **settings)


def test_slopes_are_the_authors() -> None:
    assert oracles.slopes(8) == [2.0**-n for n in range(1, 9)]
    assert oracles.slopes(12) == pytest.approx([*oracles.slopes(8), *(2 ** -(n / 2) for n in (1, 3, 5, 7))])
    assert [len(oracles.slopes(n)) for n in range(1, 129)] == list(range(1, 129))


@given(st.integers(-5000, 5000), st.booleans())
def test_buckets_are_those_of_logarithms_where_these_do_not_round(ahead: int, two_way: bool) -> None:
    buckets, farthest = 32, 128
    count, start = (16, 16 * (ahead > 0)) if two_way else (32, 0)
    apart, exact = (abs(ahead) if two_way else max(-ahead, 0)), count // 2
    if apart < exact:
        want = start + apart
    else:
        share = mpmath.log(mpmath.mpf(apart) / exact) / mpmath.log(mpmath.mpf(farthest) / exact) * (count - exact)
        if abs(share - mpmath.nint(share)) < 1e-30:
            share = mpmath.nint(share)
        want = start + min(exact + int(mpmath.floor(share)), count - 1)
    assert oracles.bucket(ahead, buckets, farthest, two_way) == want


def test_it_agrees_with_the_library_it_judges() -> None:
    """Two ways to one number: neither was written from the other."""
    yarn = YaRN(factor=4, trained=8192)
    spec = Spec(head_width=128, base=500_000.0, scaling=yarn, arithmetic="exact")
    for got, want in zip(oracles.frequencies(spec), yarn.frequencies(500_000.0, 128), strict=True):
        assert abs(got - want) < want * Decimal(10) ** -55
    for got, want in zip(oracles.ladder(10_000.0, 64), ladder(10_000.0, 64), strict=True):
        assert abs(got - want) < want * Decimal(10) ** -55


def test_the_truth_is_not_the_library() -> None:
    """What judges may read settings, and may not compute by the code that is judged."""
    source = Path(oracles.__file__).parent
    judges = ["oracles.py", "surround.py", "diagnose.py", "places.py", "findings.py", "run.py"]
    files = [source / name for name in judges] + sorted((source / "checks").glob("*.py"))
    barred = ("ropewalk.phase", "ropewalk.attention", "ropewalk.encodings", "ropewalk.plan", "ropewalk.scaling")
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name.startswith(barred)], f"{file.name}: {names}"
    text = Path(target_module.__file__).read_text(encoding="utf-8")
    assert text.count("ropewalk.scaling") == 1, "the target's spec holds a scaling's settings and calls nothing of it"
