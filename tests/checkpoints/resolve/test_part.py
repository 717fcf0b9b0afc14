"""Which part of a config is read, and what is said where none can be: no remedy that would load wrong weights."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from transformers import CONFIG_MAPPING

from ropewalk.checkpoints.architectures.table import nearest
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.inspect.report import inspect
from ropewalk.checkpoints.resolve.hf import resolve
from tests.checkpoints import published
from tests.checkpoints.transformers_oracle import Theirs, compare

TEXT = published.config("qwen3-8b")
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768, "rope_theta": 1e6}


@pytest.mark.parametrize("path", ["text_config", "llm_config", "language_config", "thinker_config.text_config"])
def test_a_text_part_is_read_whatever_stands_around_it(path: str, tmp_path: Path) -> None:
    new = {key: value for key, value in TEXT.items() if key not in ("rope_theta", "rope_scaling")}
    inner = {**new, "rope_parameters": YARN}
    for step in reversed(path.split(".")):
        inner = {step: inner}
    found = resolve({"model_type": "something_vl", **inner, "vision_config": {"depth": 3}})
    alone = resolve({**new, "rope_parameters": YARN}).plan
    assert found.plan.fingerprint == alone.fingerprint
    assert (found.plan.trained, found.plan.extended) == (alone.trained, alone.extended) == (32_768, 131_072)
    assert found.refusal is not None
    assert f"text part ({path}, qwen3)" in found.refusal
    # Every engine's rule finds the part too: transformers 4 reads no rope_parameters, so it is at odds.
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llava_next", **inner}))
    report = inspect(tmp_path)
    assert report.rows["transformers5"].reading.length == TEXT["max_position_embeddings"]
    assert report.rows["transformers4"].apart > 1.5


@pytest.mark.parametrize(("key", "told"), [("text_config", True), ("llm_config", False)])
def test_what_to_paste_goes_into_the_part(key: str, told: bool, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llava_next", key: TEXT}))
    reach = inspect(tmp_path, to=262_144).reach
    assert reach is not None
    for stretch in reach.stretches:
        texts = [one.text for one in stretch.overrides if one.engine.startswith(("transformers", "vLLM")) and one.text]
        assert bool(texts) == (told and stretch.scaling != "none")
        assert all('{"text_config": ' in text for text in texts if text.startswith("vllm"))


@pytest.mark.parametrize("name", ["paligemma", "internvl", "smolvlm", "llava_next", "idefics3", "got_ocr2"])
def test_a_text_part_has_the_defaults_of_transformers(name: str) -> None:
    """Published ones leave out what is their class's default."""
    made = CONFIG_MAPPING[name]()
    inner = made.get_text_config()
    config = {"model_type": name, "text_config": {"model_type": inner.model_type}}
    compare(resolve(config, arithmetic="float32").plan, Theirs(config))


@pytest.mark.parametrize(
    "name", ["zamba2", "bamba", "pegasus", "aria", "mistral_large4", "recurrent_gemma", "olmo_hybrid", "muse_spark"]
)
def test_another_architecture_is_no_misspelling(name: str) -> None:
    assert nearest(name) == ""
    with pytest.raises(BadInput) as error:
        resolve({"model_type": name, "rope_theta": 1e4})
    assert "did you mean" not in str(error.value)
    assert "set model_type" not in str(error.value)
    assert "ropewalk list architectures" in error.value.remedy
    assert len(str(error.value)) < 300


def test_a_misspelling_is() -> None:
    assert nearest("lama") == " (did you mean 'llama'?)"
    assert nearest("gpt_noex") == " (did you mean 'gpt_neox'?)"


@pytest.mark.parametrize(("name", "kind"), [("bert-base-uncased", "alibi"), ("roberta-base", "rotary")])
def test_weights_of_another_encoding_are_not_to_be_loaded_as_a_table(name: str, kind: str) -> None:
    """jina-embeddings v2 and v3, whose own code computes ALiBi and RoPE."""
    config = {**published.config(name), "position_embedding_type": kind, "auto_map": {"AutoModel": "x.Model"}}
    with pytest.raises(BadInput) as error:
        resolve(config)
    assert "trained with it" in error.value.problem
    assert "absolute" not in str(error.value)
    assert "never run" in error.value.remedy


def test_the_widest_head_takes_no_time(tmp_path: Path) -> None:
    wide = {**published.config("llama-3-8b"), "num_hidden_layers": 2}
    with pytest.raises(BadInput, match="from 2 to 4,096"):
        resolve({**wide, "head_dim": 65_536})
    (tmp_path / "config.json").write_text(json.dumps({**wide, "head_dim": 4096}))
    start = time.process_time()
    inspect(tmp_path, to=16_384)
    assert time.process_time() - start < 2.0
