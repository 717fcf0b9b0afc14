"""RoPE with frequencies of one's own: exact far from 0, recorded in the plan, and never beside a base or a scaling."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import mpmath
import pytest
import torch
from typer.testing import CliRunner

from ropewalk import positions
from ropewalk.cli.main import app
from ropewalk.conformance import verify
from ropewalk.conformance.adapters.ours import Ours
from ropewalk.encodings import build
from ropewalk.encodings.rope import RoPE
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.plan import Plan

OWN = ("1.1", "0.31830988618379067153776752674502872406891929148091", 0.01, Decimal("1e-9"))
FAR = 2**40 - 5


def test_angles_far_out_are_those_of_the_decimals() -> None:
    """Against mpmath, from the digits: a float64 frequency would be off by 6e-5 rad here."""
    rope = RoPE(head_width=8, frequencies=OWN)
    cos, sin = rope.at(torch.tensor([FAR, FAR + 3])).q_table
    with mpmath.workdps(60):
        exact = [mpmath.mpf(str(Decimal(omega))) for omega in OWN]
        for place, position in enumerate((FAR, FAR + 3)):
            for pair, omega in enumerate(exact):
                assert cos[0, 0, place, pair].item() == pytest.approx(float(mpmath.cos(position * omega)), abs=4e-7)
                assert sin[0, 0, place, pair].item() == pytest.approx(float(mpmath.sin(position * omega)), abs=4e-7)


def test_a_pair_may_stay() -> None:
    cos, sin = RoPE(head_width=4, frequencies=(0, 0.5)).at(torch.tensor([FAR])).q_table
    assert (cos.flatten()[0], sin.flatten()[0]) == (1, 0)


def test_a_ladder_written_out_is_the_base() -> None:
    with mpmath.workdps(60):
        ladder = [mpmath.nstr(mpmath.mpf(10_000) ** (mpmath.mpf(-2 * i) / 16), 55) for i in range(8)]
    x, at = torch.randn(1, 2, 5, 16), positions.explicit(torch.arange(5) + FAR - 10)
    ropes = RoPE(head_width=16), RoPE(head_width=16, frequencies=ladder)
    want, got = (rope.at(at).rotate(x, "query") for rope in ropes)
    assert torch.equal(want, got)


def test_the_plan_says_them_and_reads_back() -> None:
    config = TransformerConfig(width=32, heads=4, layers=2, vocabulary=9, encoding={"kind": "rope", "frequencies": OWN})
    model = Transformer(config)
    assert "4 frequencies of its own, 1.1 to 1e-09" in str(model.plan)
    assert Plan.from_dict(model.plan.to_dict()) == model.plan
    assert TransformerConfig.model_validate_json(config.model_dump_json()) == config
    other = RoPE(head_width=8, frequencies=("1.1", *OWN[1:3], "1.0000000001e-9"))
    assert Plan(layers=(other.layer_plan(),) * 2).fingerprint != model.plan.fingerprint
    chained = build({"kind": "chain", "parts": [config.encoding, {"kind": "temperature", "trained": 8}]}, head_width=8)
    assert chained.layer_plan().turns == model.plan.layers[0].turns


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"frequencies": OWN, "base": 5e5}, r"have no base or scaling or arithmetic, and base=500000.0 was given"),
        ({"frequencies": OWN, "scaling": {"kind": "linear", "factor": 2}}, r"and scaling=Linear"),
        ({"frequencies": OWN, "arithmetic": "float32"}, r"and arithmetic='float32' was given"),
        ({"frequencies": OWN[:3]}, r"3 given, 4 pairs of features turn"),
        ({"frequencies": OWN, "rotary_width": 4}, r"4 given, 2 pairs"),
        ({"frequencies": ("nan", *OWN[1:])}, r"frequency nan is outside \[0, 2 pi\)"),
        ({"frequencies": (-0.1, *OWN[1:])}, r"frequency -0.1 is outside"),
        ({"frequencies": (float("inf"), *OWN[1:])}, r"frequency inf is outside"),
        ({"frequencies": ("6.3", *OWN[1:])}, r"frequency 6.3 is outside"),
        ({"frequencies": ("one", *OWN[1:])}, r"'one' is no decimal"),
        ({"frequencies": (True, *OWN[1:])}, r"a frequency is a number"),
    ],
)
def test_what_is_no_frequency_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        RoPE(head_width=8, **settings)


def test_inspect_says_them_and_knows_no_scaling_for_them(tmp_path: Path) -> None:
    encoding = {"kind": "rope", "frequencies": OWN}
    config = TransformerConfig(width=32, heads=4, layers=2, vocabulary=9, encoding=encoding, window=8, keep_first=2)
    said = {"model_type": "ropewalk", "model": config.model_dump(mode="json"), "trained_length": 64}
    (tmp_path / "config.json").write_text(json.dumps(said))
    answer = CliRunner().invoke(app, ["inspect", str(tmp_path), "--to", "512"])
    shown = " ".join(answer.stdout.split())
    assert "4 frequencies of its own, 1.1 to 1e-09, window 8 and the first 2" in shown
    assert "come from no base, so no scaling applies" in shown
    assert "Nothing rotates" not in shown


def test_conformance_measures_them_against_the_decimals() -> None:
    own = Ours("rope", {"frequencies": [*OWN] * 8})
    report = verify(own, only="N01,N07")
    assert [result.status for result in report.results] == ["passed"] * len(report.results), str(report)
    wrong = Ours("rope", {"frequencies": [*OWN] * 8})
    wrong.spec = wrong.spec.model_copy(update={"frequencies": tuple(Decimal("1.1") for _ in range(32))})
    assert any(result.status == "failed" for result in verify(wrong, only="N01,N07").results)
