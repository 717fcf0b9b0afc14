"""Likelihoods by transformers' models through our attention and their rotary modules, against transformers alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.nn import functional as F

from ropewalk.checkpoints.engines.facts import Facts
from ropewalk.checkpoints.resolve.hf import resolve
from ropewalk.evaluate.engines.hf import HF
from ropewalk.evaluate.engines.ours import Ours
from ropewalk.evaluate.passage import Passage
from ropewalk.scaling import Linear, YaRN
from tests.hf_models import FACTOR, NAMES, SIZES, TRAINED, made

TOKENS = np.random.default_rng(3).integers(0, 61, 120)
GAPPED = np.concatenate([np.arange(50), np.arange(400, 470)])
YARN = YaRN(factor=FACTOR, trained=TRAINED)


def engine(model: Any) -> HF:
    resolved = resolve(model.config.to_dict(), name="small", where="config.json", arithmetic="float32")
    return HF(model, model="small", facts=Facts(resolved))


def wanted(model: Any, tokens: np.ndarray, positions: np.ndarray, scored: int) -> np.ndarray:
    """By transformers alone, eager. The mask of ones keeps a gap from being taken for another document."""
    model.set_attn_implementation("eager")
    given = torch.from_numpy(tokens)[None]
    with torch.no_grad():
        where = torch.from_numpy(positions)[None]
        logits = model(given, position_ids=where, attention_mask=torch.ones_like(given)).logits[0].double()
    return F.cross_entropy(logits[:-1], given[0, 1:], reduction="none")[-scored:].numpy()


@pytest.mark.parametrize("name", NAMES)
def test_as_it_is_and_with_a_gap(name: str) -> None:
    for positions in (np.arange(120), GAPPED):
        got = engine(made(name)).nats(Passage(TOKENS, positions, 70))
        np.testing.assert_allclose(got, wanted(made(name), TOKENS, positions, 70), atol=2e-4)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("deepseek")])
def test_a_scaling_is_that_of_a_config_and_is_undone(name: str) -> None:
    plain, passage = engine(made(name)), Passage.plain(TOKENS, 70)
    before = plain.nats(passage)
    want = wanted(made(name, yarn=True), TOKENS, np.arange(120), 70)
    assert np.abs(before - want).max() > 1e-2
    for _ in range(2):
        np.testing.assert_allclose(plain.nats(passage, YARN), want, atol=2e-4)
        assert np.abs(plain.nats(passage, Linear(factor=2)) - want).max() > 1e-3
    np.testing.assert_array_equal(plain.nats(passage), before)


def test_two_models_in_one_process() -> None:
    one, other = engine(made("gpt_oss")), engine(made("gemma3"))
    passage = Passage(TOKENS, GAPPED, 70)
    first = one.nats(passage, YARN)
    other.nats(passage, YARN)
    np.testing.assert_array_equal(one.nats(passage, YARN), first)


def test_candidates_are_the_same_numbers() -> None:
    found, passage = engine(made("gemma2")), Passage.plain(TOKENS, 30)
    assert not found.alone, "Gemma 2 caps its last logits"
    every = found.choices(passage, np.arange(61))
    np.testing.assert_allclose(np.exp(-every).sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(every[np.arange(30), TOKENS[-30:]], found.nats(passage), atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gemma3"])
def test_our_engine_scales_the_layers_that_a_config_would(name: str, tmp_path: Path) -> None:
    """gemma2 has windows and one set of parameters: YaRN reaches every layer, as it does in its config."""
    from ropewalk.evaluate.checkpoint import opened

    made(name).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(TOKENIZER, encoding="utf-8")
    ours, _ = opened(tmp_path)
    theirs, _ = opened(tmp_path, engine="transformers")
    assert isinstance(ours, Ours)
    assert theirs.name.startswith("transformers")
    want = wanted(made(name, yarn=True), TOKENS, np.arange(120), 70)
    for one in (ours, theirs):
        np.testing.assert_allclose(one.nats(Passage.plain(TOKENS, 70), YARN), want, atol=3e-4)


def test_a_base_that_grew_does_not_stay(tmp_path: Path) -> None:
    """transformers keeps the base of dynamic NTK for the next text: each is measured as if it were the first."""
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            **SIZES, max_position_embeddings=TRAINED,
            rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
        )
    ).eval()  # fmt: skip
    found, short, long = engine(model), Passage.plain(TOKENS[:TRAINED], 20), Passage.plain(TOKENS, 20)
    first = found.nats(short)
    grown = found.nats(long)
    np.testing.assert_array_equal(found.nats(short), first)
    np.testing.assert_array_equal(found.nats(long), grown)


TOKENIZER = '{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}}'


def test_a_file_and_an_unknown_engine_are_refused(tmp_path: Path) -> None:
    from ropewalk.evaluate.checkpoint import opened

    with pytest.raises(ValueError, match="no engine 'vlm'"):
        opened(tmp_path, engine="vlm")


@pytest.mark.parametrize("name", ["Qwen2Moe", "Phimoe", "Mistral"])
def test_a_window_that_only_a_mask_has(name: str) -> None:
    """Longer than the probe; of these, only Mistral tells its attention function of it."""
    window = {"sliding_window": 24, "max_position_embeddings": 512}
    if name == "Qwen2Moe":
        window |= {"use_sliding_window": True, "max_window_layers": 0, "layer_types": ["sliding_attention"] * 3}
    experts = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    config = getattr(transformers, f"{name}Config")(**SIZES, **window, **({} if name == "Mistral" else experts))
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    got = engine(model).nats(Passage.plain(TOKENS, 20))
    assert model.config._attn_implementation == ("ropewalk" if name == "Mistral" else "eager")
    np.testing.assert_allclose(got, wanted(model, TOKENS, np.arange(120), 20), atol=2e-4)


@pytest.mark.parametrize("name", NAMES)
def test_windows_that_attention_is_told_need_no_quadratic_memory(name: str) -> None:
    model = made(name)
    engine(model)
    assert model.config._attn_implementation == "ropewalk"
