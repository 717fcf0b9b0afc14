"""Mistakes of a first hour in Python: each gets one answer, which says what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ropewalk as rw
from ropewalk.models import NormConfig
from ropewalk.overrides import BadConfig

RoPE, ALiBi, Config = rw.encodings.RoPE, rw.encodings.ALiBi, rw.TransformerConfig


@pytest.mark.parametrize(
    ("mistake", "answer"),
    [
        (lambda: RoPE(64), r"write RoPE\(head_width=64\)"),
        (lambda: ALiBi(8), r"write ALiBi\(heads=8\)"),
        (lambda: rw.encodings.Sinusoidal(512), r"write Sinusoidal\(width=512\)"),
        (lambda: rw.encodings.Chain(512), r"write Chain\(parts=\.\.\., head_width=\.\.\.\)"),
        (lambda: rw.encodings.Learned(512), r"write Learned\(longest=\.\.\., width=\.\.\.\)"),
    ],
)
def test_a_size_without_a_name(mistake: Callable[[], object], answer: str) -> None:
    with pytest.raises(TypeError, match=answer):
        mistake()


@pytest.mark.parametrize(
    ("mistake", "key", "answer"),
    [
        (lambda: RoPE(dim=64), "dim", "Did you mean head_width?"),
        (lambda: RoPE(head_dim=64), "head_dim", "Did you mean head_width?"),
        (lambda: ALiBi(num_heads=8), "num_heads", "Did you mean heads?"),
        (lambda: rw.encodings.Chain(num_heads=8), "num_heads", "Did you mean heads?"),
        (lambda: rw.encodings.Chain(dim=8), "dim", "Did you mean head_width?"),
        (lambda: RoPE(head_width=64, theta=5e5), "theta", "Did you mean base?"),
        (lambda: RoPE.Config(rope_theta=5e5), "rope_theta", "Did you mean base?"),
        (lambda: rw.encodings.build({"kind": "rope", "theta": 5e5}, head_width=64), "theta", "Did you mean base?"),
        (lambda: Config(dim=64), "dim", "Did you mean width?"),
        (lambda: Config(d_model=64, heads=4), "d_model", "Did you mean width?"),
        (lambda: Config(encoding="rop"), "encoding", "Did you mean rope?"),
        (lambda: Config(encoding={"kind": "rope", "theta": 5e5}), "encoding.theta", "Did you mean encoding.base?"),
        (lambda: Config(norm="rmss"), "norm.kind", "Did you mean rms?"),
        (lambda: Config(heads="many"), "heads", "valid integer, got 'many'"),
        (lambda: rw.preset("llama", dim=64), "dim", "Did you mean width?"),
        (lambda: rw.scaling.YaRN(factor=4), "trained", "write trained=..."),
        (lambda: rw.scaling.Linear(scale=4, factor=4), "scale", "linear has factor"),
        (lambda: RoPE(head_width=64, scaling="linear"), "scaling.factor", "write scaling.factor=..."),
    ],
)
def test_one_mistake_gets_one_answer(mistake: Callable[[], object], key: str, answer: str) -> None:
    with pytest.raises(BadConfig) as caught:
        mistake()
    ((where, says),) = caught.value.problems
    assert where == key
    assert answer in says
    assert "pydantic" not in str(caught.value)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ({"norm": "layer"}, {"norm": NormConfig(kind="layer")}),
        ({"encoding": "alibi"}, {"encoding": ALiBi.Config()}),
        (
            {"encoding": {"kind": "rope", "scaling": {"kind": "linear", "factor": 2}}},
            {"encoding": RoPE.Config(scaling=rw.scaling.Linear(factor=2))},
        ),
    ],
)
def test_shorthands_of_config_files_are_read_in_python(short: dict[str, Any], long: dict[str, Any]) -> None:
    assert Config(**short) == Config(**long)
