"""The lab's arithmetic is the library's: in V8, against the golden vectors and against the library itself."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from typing import Any

import mpmath
import numpy as np
import pytest
import torch

from ropewalk.conformance.places import EDGES
from ropewalk.conformance.vectors.arrays import arrays, facts
from ropewalk.conformance.vectors.cases import BUCKETS, CASES, DISTANCES, SINUSOIDAL
from ropewalk.encodings.alibi import slopes
from ropewalk.encodings.t5 import T5
from ropewalk.phase import cos_sin, phase
from ropewalk.scaling import LongRoPE, YaRN, find, ladder, turns

FREQUENCIES = "(s, base, width) => frequencies(s, base, width).map(toDouble)"
TURNS = "(s, base, width) => frequencies(s, base, width).map(turnOf)"
PHASES = """(s, base, width, positions) => {
  const turns = frequencies(s, base, width).map(turnOf);
  return positions.map((p) => turns.map((turn) => phaseAt(BigInt(p), turn)));
}"""
WAVES = f"(s, base, width, positions) => ({PHASES})(s, base, width, positions).map((row) => row.map(angleOf)).map" + (
    "((row) => [row.map(Math.cos), row.map(Math.sin)])"
)


@pytest.fixture(scope="module")
def golden() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    return arrays(), facts()


def settings(case: dict[str, Any]) -> tuple[dict[str, Any] | None, float, int]:
    """Scaling, base and width of a golden vector, as the lab has them: the length is a field of the scaling."""
    spec = case["spec"]
    scaling = spec["scaling"] and {**spec["scaling"], **({"length": spec["length"]} if "length" in spec else {})}
    return scaling, spec["base"], spec["rotary_width"]


def wrapped(omegas: list[Decimal], position: int) -> list[int]:
    """phase(p) of the decimals in vectors.json, in mpmath, which neither the library nor the lab uses."""
    with mpmath.workprec(400):
        turned = [int(mpmath.nint(mpmath.mpf(str(omega)) * 2**64 / (2 * mpmath.pi))) for omega in omegas]
    return [(position * turn + 2**63) % 2**64 - 2**63 for turn in turned]


@pytest.mark.parametrize("name", CASES)
def test_golden_vectors(name: str, call: Any, golden: Any) -> None:
    case = golden[1]["cases"][name]
    scaling, base, width = settings(case)
    places = [str(p) for p in EDGES]
    assert max(EDGES) == 2**40

    phases = [[int(one) for one in row] for row in call(PHASES, scaling, base, width, places)]
    omegas = [Decimal(omega) for omega in case["frequencies"]]
    assert phases == [wrapped(omegas, p) for p in EDGES]
    exact = phase(torch.tensor(EDGES), turns(omegas))
    assert phases == exact.tolist()

    with localcontext(prec=60):
        for got, omega in zip(call(FREQUENCIES, scaling, base, width), omegas, strict=True):
            assert abs(Decimal(got) - omega) <= Decimal("1e-14") * omega

    shown = np.array(call(WAVES, scaling, base, width, places))
    library = torch.stack(cos_sin(exact, torch.float64), dim=1).numpy()
    assert abs(shown - library).max() <= 1e-15
    gains = [call("rotaryGain", scaling), call("logitGain", scaling)]
    assert gains == pytest.approx(golden[0][f"gains/{name}"].tolist(), rel=1e-15)
    for part, wave in (("cos", shown[:, 0]), ("sin", shown[:, 1])):
        # A turn is rounded to 2^-64, which is p pi / 2^64 rad at position p; a gain adds an ulp of its own.
        allowed = gains[0] * (np.array(EDGES)[:, None] * math.pi / 2**64 + 1e-15)
        assert (abs(gains[0] * wave - golden[0][f"{part}/{name}"]) <= allowed).all()


@pytest.mark.parametrize("layout", ["half", "pairs"])
def test_rotated_vectors(layout: str, call: Any, golden: Any) -> None:
    rotate = f"""(s, base, width, positions, head, layout) => ({PHASES})(s, base, width, positions).map((row) =>
      rotated(inputs(head, head), row.map(angleOf), layout, rotaryGain(s)))"""
    places = [p for p in EDGES if p < 2**32]
    for name, case in golden[1]["cases"].items():
        got = call(rotate, *settings(case), [str(p) for p in places], case["spec"]["head_width"], layout)
        want = golden[0][f"rotated/{layout}/{name}"][: len(places)]
        rounded = np.array(places)[:, None] * math.pi / 2**64
        assert (abs(np.array(got) - want) <= 6 * (rounded + 1e-15)).all(), name


def test_sinusoids(call: Any, golden: Any) -> None:
    for width in SINUSOIDAL:
        waves = np.array(call(WAVES, None, 10_000, width, [str(p) for p in EDGES]))
        want = golden[0][f"sinusoidal/half/{width}"]
        got = np.concatenate([waves[:, 1], waves[:, 0]], axis=1)
        assert (abs(got - want) <= np.array(EDGES)[:, None] * math.pi / 2**64 + 1e-15).all()


def test_float32_products(call: Any) -> None:
    """What the lab calls a float32 product is torch's."""
    at, omegas = torch.tensor([3.0, 131_071, 2**24 + 1, 2**40 - 1], dtype=torch.float64), ladder(500_000, 128)
    single = torch.tensor([float(omega) for omega in omegas], dtype=torch.float32)
    want = (at.float()[:, None] * single).double().tolist()
    shown = "(ps, base, width) => ps.map((p) => ladder(base, width).map(toDouble).map((w) => angle32(p, w)))"
    assert call(shown, at.tolist(), 500_000, 128) == want


def test_alibi_slopes(call: Any, golden: Any) -> None:
    for heads in range(1, 129):
        got = call("slopes", heads)
        assert got == golden[0]["alibi/slopes"][heads - 1, :heads].tolist()
        assert torch.tensor(got, dtype=torch.float32).equal(torch.tensor(slopes(heads), dtype=torch.float32))


def test_t5_buckets(call: Any, golden: Any) -> None:
    every = "(list, buckets, farthest, both) => { const edges = bucketEdges(both ? buckets / 2 : buckets, farthest); "
    every += "return list.map((d) => bucketOf(d, edges, both)); }"
    for buckets, farthest in BUCKETS:
        for both, way in ((False, "one_way"), (True, "two_way")):
            got = call(every, list(DISTANCES), buckets, farthest, both)
            assert got == golden[0][f"t5/{way}/{buckets}_{farthest}"].tolist()
            t5 = T5(heads=1, buckets=buckets, farthest=farthest, bidirectional=both)
            assert got == t5.bucket(torch.tensor(DISTANCES)).tolist()


AWKWARD = [
    ({"kind": "yarn", "factor": 64.0, "trained": 4096, "beta_fast": 4.0}, 1e6, 128),
    ({"kind": "yarn", "factor": 32.0, "trained": 4096, "beta_fast": 1.0, "dialect": "deepseek"}, 5e4, 64),
    ({"kind": "yarn", "factor": 32.0, "trained": 4096, "truncate": False}, 150_000, 64),
    ({"kind": "yarn", "factor": 1.0, "trained": 4096, "ramp": "paper"}, 1e12, 16),
    ({"kind": "yarn", "factor": 2.5, "trained": 2**20}, 1e6, 64),
    ({"kind": "llama3", "factor": 16.0, "trained": 8192, "low": 1.0, "high": 1.0}, 5e5, 128),
    ({"kind": "ntk", "factor": 1.7}, 999_999.4420358813, 4),
    ({"kind": "dynamic", "factor": 1.0, "trained": 2047, "length": 2**40}, 1.5, 96),
    ({"kind": "proportional", "fraction": 0.3, "factor": 3.3}, 1e6, 512),
    ({"kind": "linear", "factor": 4095.9}, 1e12, 4096),
]


@pytest.mark.parametrize(("scaling", "base", "width"), AWKWARD)
def test_turns_of_awkward_settings(scaling: dict[str, Any], base: float, width: int, call: Any) -> None:
    made = find(scaling["kind"]).model_validate(scaling)
    assert [int(turn) for turn in call(TURNS, scaling, base, width)] == list(turns(made.frequencies(base, width)))
    assert call("rotaryGain", scaling) == pytest.approx(made.rotary_gain, rel=1e-15)
    assert call("logitGain", scaling) == pytest.approx(made.logit_gain, rel=1e-15)


def test_gains_by_their_settings(call: Any) -> None:
    lists = {"short": [1.0], "long": [2.0], "trained": 4096}
    for made in (
        LongRoPE(**lists, extended=131_072),
        LongRoPE(**lists, factor=1.0),
        LongRoPE(**lists, attention_factor=1.25),
        YaRN(factor=40, trained=4096, dialect="deepseek", mscale=0.5),
        YaRN(factor=40, trained=4096, mscale=0.5),
        YaRN(factor=40, trained=4096, dialect="paper"),
    ):
        given = made.model_dump(exclude_none=True)
        assert call("rotaryGain", given) == pytest.approx(made.rotary_gain, rel=1e-15)
        assert call("logitGain", given) == pytest.approx(made.logit_gain, rel=1e-15)


def test_a_ramp_that_has_no_length_is_refused(call: Any) -> None:
    """As the library refuses it."""
    with pytest.raises(Exception, match="ramp ends before it starts"):
        call(FREQUENCIES, {"kind": "yarn", "factor": 4, "trained": 2}, 10_000, 64)
    with pytest.raises(ValueError, match="ramp ends before it starts"):
        YaRN(factor=4, trained=2).frequencies(10_000, 64)
