"""`ropewalk doctor` says what is there, and of what is slow or missing what to type."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import pytest
import torch

from ropewalk.cli import doctor
from ropewalk.cli.output import EXTRAS
from tests.cli.conftest import Ropewalk


@pytest.fixture
def speeds(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """FLOP/s of this machine, by precision."""
    found = {"float32": 200e9, "bfloat16": 300e9}
    monkeypatch.setattr("ropewalk.train.plan.cost.gemm_peak", lambda precision, size: found[precision])
    return found


@pytest.mark.usefixtures("speeds")
def test_facts(ropewalk: Ropewalk) -> None:
    found = ropewalk("doctor", "--json").data
    assert found["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    assert set(found["packages"]) == set(EXTRAS)
    assert found["packages"]["matplotlib"] == importlib.metadata.version("matplotlib")
    answer = ropewalk("doctor")
    assert answer.code == 0
    assert f"torch            {torch.__version__}" in answer.stdout
    assert f"extra plot       matplotlib {found['packages']['matplotlib']}" in answer.stdout


def test_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert set(EXTRAS.values()) == set(extras) - {"all"}
    assert all(package in extras[extra] for package, extra in EXTRAS.items())


def test_what_could_be_better(ropewalk: Ropewalk, speeds: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(doctor.os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(doctor, "EXTRAS", {"no_such_package": "plot"})
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    speeds["bfloat16"] = 20e9
    assert ropewalk("doctor", "--quiet").stdout.splitlines() == [
        "matrix products take 10.0 times as long in bfloat16 as in float32, as usual on CPUs without bfloat16 "
        "instructions: train with train.precision=float32",
        "torch uses 1 of 4 cores; unset OMP_NUM_THREADS",
        "train.compile needs a C++ compiler, and none of g++, clang++, c++ was found",
        'extra plot is not installed: pip install "ropewalk[plot]"',
    ]


def test_a_gpu_needs_no_advice_about_the_cpu(
    ropewalk: Ropewalk, speeds: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "H100")
    speeds["bfloat16"] = 20e9
    answer = ropewalk("doctor")
    assert "cuda:0 H100, cpu" in answer.stdout
    assert "as long in bfloat16" not in answer.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("train deco", ["decoder"]),
        ("estimate llama", ["llama-8b"]),
        ("verify ali", ["alibi"]),
        ("plot wave", ["wavelengths"]),
        ("data fetch en", ["en-zh", "en-de"]),
    ],
)
def test_a_shell_is_offered_values(
    ropewalk: Ropewalk, monkeypatch: pytest.MonkeyPatch, words: str, offered: list[str]
) -> None:
    monkeypatch.setenv("_ROPEWALK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"ropewalk {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    assert ropewalk().stdout.split() == offered
