"""Adapters of other libraries: they build, what they offer has the form it should, and known defects are found."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ropewalk.conformance import Target, adapters, find, verify
from ropewalk.conformance.adapters import checkpoint, peer
from ropewalk.conformance.checks import every
from ropewalk.conformance.findings import NotApplicable

LINKS = ("issue", "introduced")
MODULES = {
    "transformers": "transformers",
    "x-transformers": "x_transformers",
    "rotary-embedding-torch": "rotary_embedding_torch",
    "litgpt": "litgpt.model",
    "torchtune": "torchtune.modules",
    "torchtitan": "torchtitan.models.common.rope",
    "llama-cpp": "xllamacpp",
    "mlx-lm": "mlx_lm",
}


def targets(library: str) -> dict[str, Any]:
    pytest.importorskip(MODULES[library], exc_type=ImportError)
    return {target.short: target for target in adapters.targets(library)}


def one(library: str, short: str) -> Any:
    return targets(library)[short]


@pytest.mark.parametrize("library", MODULES)
def test_targets_build_and_answer_in_form(library: str) -> None:
    found = targets(library)
    assert found
    for short, given in found.items():
        target = Target(given)
        assert short.isidentifier()
        assert find(given.name).name == given.name
        assert given.says
        built, spec = target.build(), target.spec
        positions = torch.tensor([[0, 1, 5], [7, 8, 9]])
        if target.has("cos_sin"):
            cos, sin = target.cos_sin(built, positions)
            assert cos.shape == sin.shape == (2, 3, spec.rotary // 2)
        if target.has("rotation"):
            x = torch.randn(2, spec.heads, 3, spec.head_width)
            try:
                assert target.rotate(built, x, positions).shape == x.shape
            except NotApplicable:  # a call takes one stretch of positions
                assert target.rotate(built, x, positions[1:]).shape == x.shape
        if target.has("bias"):
            assert target.bias(built, torch.arange(2, 5), torch.arange(5)).shape == (spec.heads, 3, 5)
        if target.has("forward"):
            logits, cache = target.forward(built, torch.arange(4)[None], torch.arange(4)[None])
            again, _ = target.forward(built, torch.arange(1)[None], torch.tensor([[4]]), cache)
            assert logits.shape[:2] == (1, 4)
            assert again.shape == (1, 1, logits.shape[2])


@pytest.mark.parametrize("library", MODULES)
def test_what_is_expected_names_targets_and_requirements(library: str) -> None:
    causes = adapters.causes(library)
    assert len({cause["id"] for cause in causes}) == len({cause["reason"] for cause in causes}) == len(causes)
    explained = [
        (requirement, target)
        for cause in causes
        for requirement, shorts in cause["explains"].items()
        for target in shorts
    ]
    assert len(set(explained)) == len(explained), "one failure has one cause"
    for cause in causes:
        assert set(cause) <= {"id", "reason", "issue", "introduced", "explains"}
        assert set(cause["explains"]) <= set(every())
        assert cause["reason"].endswith(".")
        assert all(cause.get(key, "https://github.com/").startswith("https://github.com/") for key in LINKS)
        script = adapters.reproduction(library, cause["id"]).read_text(encoding="utf-8")
        assert "ropewalk" not in script
        assert 'print("expected:' in script
        assert 'print("got:' in script
    scripts = {path.stem for path in adapters.reproduction(library, "x").parent.glob("*.py")}
    assert scripts == {cause["id"] for cause in causes}
    assert {target for _, target in explained} <= set(targets(library))


# One process for all, since importing a library takes longer than any of them; ropewalk cannot be imported in it.
RUN = """
import contextlib, io, json, runpy, sys
sys.modules["ropewalk"] = None
said = {}
for path in sys.argv[1:]:
    import torch
    torch.set_default_dtype(torch.float32)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runpy.run_path(path, run_name="__main__")
    said[path] = out.getvalue()
print(json.dumps(said))
"""


def test_reproductions_run_without_ropewalk_and_show_a_difference() -> None:
    """Those of the libraries that every environment of ours has."""
    here = [name for name in ("transformers", "x-transformers", "rotary-embedding-torch") if importable(MODULES[name])]
    paths = [str(adapters.reproduction(name, cause["id"])) for name in here for cause in adapters.causes(name)]
    assert len(paths) >= 10 or len(here) < 3
    done = subprocess.run(
        [sys.executable, "-I", "-c", RUN, *paths], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    for path, text in json.loads(done.stdout.splitlines()[-1]).items():
        expected, got = (line.partition(":")[2] for line in text.splitlines()[:2])
        assert text.startswith("expected:"), path
        assert "\ngot:" in text, path
        assert expected.strip() != got.strip(), path


def importable(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def test_every_list_belongs_to_an_adapter() -> None:
    lists = {path.stem for path in (Path(adapters.__file__).parent / "expected").glob("*.json")}
    assert lists
    assert lists <= {name.replace("-", "_") for name in adapters.names()}
    assert set(MODULES) == set(adapters.names())


DEFECTS = [
    ("transformers", "llama", "N06", "bfloat16"),
    ("transformers", "llama_dynamic", "C08", "longer call"),
    ("transformers", "llama_dynamic", "C15", "cached before"),
    ("transformers", "llama_longrope", "C15", "cached before"),
    ("transformers", "gemma3_yarn", "N07", "truncate=False was not read"),
    ("transformers", "bloom_alibi", "N06", "bfloat16"),
    ("x-transformers", "fox_decoder", "C12", "fed alone"),
    ("rotary-embedding-torch", "rope", "N06", "bfloat16"),
    ("rotary-embedding-torch", "xpos", "C12", "fed alone"),
    ("litgpt", "yarn", "N07", "upside down"),
    ("mlx-lm", "rope", "N07", "float32 powers"),
    ("mlx-lm", "dynamic", "C15", "cached before"),
]


@pytest.mark.parametrize(("library", "short", "id", "why"), DEFECTS)
def test_known_defects_are_found(library: str, short: str, id: str, why: str) -> None:
    """Where a release has fixed one, this fails, and the list of expected failures is to be shortened."""
    target, known = one(library, short), adapters.expected(library)
    found = verify(target, only=id)[id]
    assert found.status == "failed"
    assert why in str(found.why)
    assert found.reproduction
    again = verify(target, only=id, expected=known[short])[id]
    assert again.status == "expected"
    assert again.issue == known[short][id].get("issue")


HELD = [
    ("transformers", "llama", "N04,N07,N08,N10,C01,C12,C13,C14,C16,C17,C18,C27"),
    ("transformers", "llama_yarn", "N07,N08,C07"),
    ("transformers", "mpt_alibi", "N09,C23,C24,C26"),
    ("transformers", "t5_encoder", "C25,C26"),
    ("transformers", "bloom_model", "C12,C13,C16,C17"),
    ("x-transformers", "rotary_decoder", "C12,C13,C16,C17"),
    ("x-transformers", "partial", "N07,C01,C02"),
    ("rotary-embedding-torch", "rescaled", "N07,C01,C08"),
    ("litgpt", "llama3", "N07,N08,C01,C27"),
    ("torchtune", "llama3", "N06,N07,C01,C03,C27"),
    ("torchtitan", "cos_sin_yarn", "N06,N07,N08,C01,C27"),
    ("llama-cpp", "llama", "C12,C13,C19"),
    ("mlx-lm", "llama3", "N06,N07,N08,N10,C01"),
    ("mlx-lm", "decoder_yarn", "C12,C13"),
]


@pytest.mark.parametrize(("library", "short", "ids"), HELD)
def test_what_is_right_is_not_blamed(library: str, short: str, ids: str) -> None:
    report = verify(one(library, short), only=ids)
    assert [result.id for result in report.results if result.status != "passed"] == []


def test_a_missing_library_says_how_to_get_it() -> None:
    with pytest.raises(ImportError, match="pip install no-such-thing"):
        peer.need("no_such_module", "no-such-thing")
    module = importlib.import_module("ropewalk.conformance.adapters.transformers")
    pytest.importorskip("transformers")
    with pytest.raises(AttributeError, match="its targets are llama,"):
        module.no_such_target  # noqa: B018


def test_counting_models_refuse_gaps() -> None:
    assert peer.counted(torch.tensor([[1000, 1001]]), None, 2, "it") == 1002
    assert peer.counted(torch.tensor([[1002]]), 1002, 1, "it") == 1003
    assert peer.counted(None, None, 2, "it") is None
    for gap in (torch.tensor([[0, 2]]), torch.tensor([[0, 1], [5, 6]])):
        with pytest.raises(NotApplicable, match="counts tokens"):
            peer.counted(gap, None, 2, "it")
    with pytest.raises(NotApplicable):
        peer.counted(torch.tensor([[7]]), 2, 1, "it")


def test_stretches_of_positions() -> None:
    assert peer.runs(torch.tensor([3, 4, 5, 9, 10, 2])) == [(0, 3, 3), (3, 5, 9), (5, 6, 2)]
    assert peer.runs(torch.tensor([7])) == [(0, 1, 7)]


def test_a_bias_by_key_as_a_relative_one() -> None:
    slopes = torch.tensor([0.5, 0.25])
    by_key = slopes[:, None] * torch.arange(6.0)
    found = peer.key_form(by_key, torch.tensor([4, 5]), torch.arange(6))
    want = -slopes[:, None, None] * (torch.tensor([4.0, 5.0])[:, None] - torch.arange(6.0)).abs()
    assert torch.equal(found, want)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory, by the writer of the llama.cpp adapter."""
    save_file = pytest.importorskip("safetensors.torch").save_file
    made = importlib.import_module("ropewalk.conformance.adapters.llama_cpp")
    place = tmp_path_factory.mktemp("model")
    save_file(made.weights(), place / "model.safetensors", metadata={"format": "pt"})
    (place / "config.json").write_text(json.dumps(made.config(made.YARN)))
    return place


@pytest.mark.parametrize("engine", checkpoint.ENGINES)
def test_a_checkpoint(directory: Path, engine: str) -> None:
    if engine == "transformers":
        pytest.importorskip("transformers")
    target = checkpoint.target(directory, engine)
    assert target.spec.kind == "rope"
    assert target.spec.scaling is not None
    assert target.spec.scaling.kind == "yarn"
    report = verify(target, only="N07,N08,C12,C13,C16,C18,C31")
    failed = [result.id for result in report.failed]
    assert failed == []
    assert report["C31"].status == ("passed" if engine == "ropewalk" else "float32")
    built, other = target.build(), target.build()
    built.to(torch.bfloat16)
    assert all(p.dtype == torch.float32 for p in other.parameters())
    assert all(p.dtype == torch.float32 for p in target.build().parameters())


def test_a_checkpoint_names_its_engines(directory: Path) -> None:
    with pytest.raises(ValueError, match="ropewalk or transformers"):
        checkpoint.target(directory, "vllm")
    source = checkpoint.target(directory).source
    assert source.endswith(f"checkpoint.target({str(directory)!r}, 'ropewalk')")
