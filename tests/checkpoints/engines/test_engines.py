"""What each engine is said to compute. transformers 5 is asked itself; llama.cpp's and vLLM's formulas are written out
here from their sources, one frequency at a time, without a line of the library."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import pytest

from ropewalk.checkpoints.engines import ENGINES, NOT_RUN, ratio
from ropewalk.checkpoints.engines.base import Reading
from ropewalk.checkpoints.engines.facts import Facts
from ropewalk.checkpoints.resolve.hf import resolve
from ropewalk.scaling import YaRN as YaRNScaling
from tests.checkpoints.engine_configs import (
    DEEPSEEK,
    GPT_OSS,
    LLAMA,
    LONGROPE,
    PHI3,
    STATIC,
    YARN,
    g,
    llama,
    noted,
    planned,
    read,
    yarn_in_llama_cpp,
)

TRAINED = {"original_max_position_embeddings": 4096}
RUN = [name for name in ENGINES if name not in NOT_RUN]


def of_transformers(config: dict[str, Any], length: int | None = None) -> tuple[list[float], float]:
    """The frequencies and the gain that the installed transformers computes."""
    pytest.importorskip("transformers")
    import torch
    from transformers import AutoConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    made = AutoConfig.for_model(**deepcopy(config))  # which it completes in place
    if config["model_type"] == "deepseek_v3":
        made.head_dim = made.qk_rope_head_dim
    module = LlamaRotaryEmbedding(made)
    if length is not None:
        module(torch.zeros(1), torch.arange(length)[None])
    return module.inv_freq.tolist(), float(module.attention_scaling)


@pytest.mark.parametrize("name", STATIC)
def test_transformers_5_computes_what_is_said(name: str) -> None:
    expected, gain = of_transformers(STATIC[name])
    (layer,) = read(STATIC[name])["transformers5"].layers
    assert layer.frequencies == pytest.approx(expected, rel=2e-6)
    assert layer.stretched == layer.frequencies
    assert layer.rotary_gain == pytest.approx(gain, rel=1e-9)


@pytest.mark.parametrize("config", [PHI3, llama(rope_scaling={"rope_type": "dynamic", "factor": 4.0})])
def test_transformers_5_on_short_and_long_texts(config: dict[str, Any]) -> None:
    subject = next(iter(Facts(resolve(config)).subjects()))
    (layer,) = read(config)["transformers5"].layers
    assert layer.frequencies == pytest.approx(of_transformers(config, 8)[0], rel=2e-6)
    assert layer.stretched == pytest.approx(of_transformers(config, subject.long)[0], rel=2e-6)
    assert layer.rotary_gain == pytest.approx(of_transformers(config)[1])


def test_transformers_5_loses_truncate_in_nested_parameters() -> None:
    """Measured on the installed version by asking for the layer type's frequencies."""
    pytest.importorskip("transformers")
    from transformers import Olmo3Config
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    full = {**YARN, "rope_theta": 500_000.0, "truncate": False}
    config = {
        "model_type": "olmo3",
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "hidden_size": 256,
        "max_position_embeddings": 8192,
        "sliding_window": 1024,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        "rope_parameters": {
            "full_attention": dict(full),
            "sliding_attention": {"rope_type": "default", "rope_theta": 500_000.0},
        },
    }
    found = read(config)
    layer = next(layer for layer in found["transformers5"].layers if layer.numbers == (3,))
    made = Olmo3Config(**{key: value for key, value in config.items() if key != "model_type"})
    expected, _ = ROPE_INIT_FUNCTIONS["yarn"](made, layer_type="full_attention")
    assert layer.frequencies == pytest.approx(expected.tolist(), rel=2e-6)
    assert noted(found["transformers5"], "truncate is false")
    assert noted(found["vllm"], "truncate is false")  # its registry gives OLMo 3 to transformers' modelling code
    assert found["transformers4"].disagrees  # which does not read rope_parameters at all


@pytest.mark.parametrize("name", [name for name in STATIC if name != "gpt-oss"])
def test_vllm_computes_what_transformers_does(name: str) -> None:
    (ours,), (theirs,) = read(STATIC[name])["vllm"].layers, read(STATIC[name])["transformers5"].layers
    assert theirs == ours


@pytest.mark.parametrize(
    ("name", "base", "factor", "trained", "differs"),
    [
        ("yarn", 1e4, 4.0, 2048, ()),
        ("yarn, its gain given", 1e4, 4.0, 2048, ("multiplies cos and sin by 1.1386",)),
        ("yarn, both mscales", 1e4, 4.0, 2048, ("multiplies cos and sin",)),
        ("yarn, other betas", 1e4, 4.0, 2048, ("ramps from 32 to 1",)),
        ("yarn, not truncated", 1e4, 4.0, 2048, ("rounds the ends",)),
        ("gpt-oss", 150_000.0, 32.0, 4096, ("rounds the ends",)),
    ],
)
def test_llama_cpp_on_yarn(name: str, base: float, factor: float, trained: int, differs: tuple[str, ...]) -> None:
    reading = read(STATIC[name])["llama.cpp"]
    (layer,) = reading.layers
    width = 2 * len(layer.frequencies)
    expected = [yarn_in_llama_cpp(i, base, width, factor, trained) for i in range(width // 2)]
    assert layer.frequencies == pytest.approx(expected, rel=1e-12)
    assert layer.rotary_gain == pytest.approx(g(factor))
    assert len(reading.notes) == len(differs)
    assert all(noted(reading, words) for words in differs)


def test_vllm_reads_the_gain_and_older_versions_are_spoken_of() -> None:
    found = read(STATIC["yarn, its gain given"])["vllm"]
    assert found.layers[0].rotary_gain == 1.0
    assert not found.disagrees
    (note,) = found.notes
    assert "older versions by 1.1386" in note.what
    assert "vllm#48351" in note.issue
    assert read(STATIC["yarn"])["vllm"].notes == ()


def test_the_known_disagreement_of_gpt_oss_has_its_known_size() -> None:
    """floor 8.09 -> 8 and ceil 17.40 -> 18: the range vllm#28244 prints unrounded."""
    found = read(GPT_OSS)
    (plan,) = planned(GPT_OSS)
    assert ratio(plan.frequencies, found["llama.cpp"].layers[0].frequencies) == pytest.approx(1.763, abs=2e-3)
    assert [name for name in RUN if found[name].disagrees] == ["llama.cpp", "mlx"]
    assert "27722" in found["llama.cpp"].notes[0].issue
    assert found["paper"].layers[0].rotary_gain == pytest.approx(g(32.0))
    assert ratio(plan.frequencies, found["paper"].layers[0].frequencies) == pytest.approx(3.68, abs=5e-3)


def test_deepseek_has_a_gain_on_scores_everywhere_but_where_it_was_left_out() -> None:
    found = read(DEEPSEEK)
    for name in RUN:
        (layer,) = found[name].layers
        assert layer.rotary_gain == pytest.approx(1.0)
        assert layer.logit_gain == pytest.approx(g(40.0) ** 2)  # 1.8739
        assert not found[name].disagrees
    second = {**DEEPSEEK, "model_type": "deepseek_v2", "q_lora_rank": None}
    second["rope_scaling"] = {**DEEPSEEK["rope_scaling"], "mscale": 0.707, "mscale_all_dim": 0.707}
    found = read(second)
    assert found["transformers5"].layers[0].logit_gain == pytest.approx(g(40.0, 0.707) ** 2)
    assert found["transformers4"].layers[0].logit_gain == 1.0
    assert noted(found["transformers4"], "gain on the scores")
    assert found["llama.cpp"].layers[0].logit_gain == pytest.approx(g(40.0, 0.707) ** 2)


def test_vllm_and_sglang_take_every_scaling_of_deepseek_for_yarn() -> None:
    """Their layers write deepseek_yarn over the rope type (deepseek_v2.py of vLLM 0.32.0 and of SGLang 0.5.23)."""

    def with_scaling(**block: Any) -> dict[str, Reading]:
        return read({**DEEPSEEK, "rope_scaling": block})

    ramp = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    found = with_scaling(rope_type="llama3", factor=16.0, original_max_position_embeddings=4096, **ramp)
    yarn = YaRNScaling(factor=16.0, trained=4096).frequencies(10_000.0, 64)
    for name in ("vllm", "sglang"):
        (layer,) = found[name].layers
        assert layer.frequencies == pytest.approx([float(omega) for omega in yarn])
        assert layer.rotary_gain == pytest.approx(g(16.0))
        assert noted(found[name], "in place of llama3")
    assert not found["transformers5"].disagrees
    found = with_scaling(rope_type="linear", factor=16.0)
    assert "original_max_position_embeddings is missing" in (found["vllm"].refusal or "")
    assert noted(found["sglang"], "in place of linear")  # from a length that is there: max_position_embeddings
    pieces = {"short_factor": [2.0] * 32, "long_factor": [2.0] * 32, "original_max_position_embeddings": 4096}
    found = with_scaling(rope_type="longrope", factor=16.0, attention_factor=1.0, **pieces)
    assert found["vllm"].layers[0].logit_gain == 1.0
    assert noted(found["vllm"], "in place of longrope")


def test_vllms_gpt_oss_computes_yarn_alone() -> None:
    assert read(GPT_OSS)["vllm"].refusal is None
    without = {key: value for key, value in GPT_OSS["rope_scaling"].items() if key != "beta_fast"}
    for block in (without, {"rope_type": "linear", "factor": 2.0}):
        refusal = read({**GPT_OSS, "rope_scaling": block})["vllm"].refusal or ""
        assert refusal.startswith("its gpt_oss computes YaRN alone, and needs ")


def test_vllms_longrope_turns_halves_alone() -> None:
    listed = {"rope_type": "longrope", "factor": 2.0, "original_max_position_embeddings": 1024}
    listed |= {"short_factor": [2.0] * 16, "long_factor": [2.0] * 16}
    glm = {
        "model_type": "glm4", "architectures": ["Glm4ForCausalLM"], "num_hidden_layers": 2, "num_attention_heads": 8,
        "hidden_size": 512, "head_dim": 64, "partial_rotary_factor": 0.5, "rope_theta": 10_000.0,
        "max_position_embeddings": 2048, "rope_scaling": listed,
    }  # fmt: skip
    assert "turns halves of a head" in (read(glm)["vllm"].refusal or "")


def test_one_mscale_alone_is_read_in_three_ways() -> None:
    """0.707 at x16 is 1.2773 by transformers' rule and 1.1960 by DeepSeek's."""
    config = {**DEEPSEEK, "max_position_embeddings": 65_536}
    config["rope_scaling"] = {"type": "yarn", "factor": 16, "original_max_position_embeddings": 4096, "mscale": 0.707}
    found = read(config)
    assert found["transformers5"].layers[0].rotary_gain == pytest.approx(1.2773, abs=1e-4)
    assert found["vllm"].layers[0].rotary_gain == pytest.approx(1.1960, abs=1e-4)
    assert found["llama.cpp"].layers[0].logit_gain == pytest.approx(g(16.0) ** 2)
    assert [name for name in RUN if found[name].disagrees] == ["transformers5", "transformers4", "llama.cpp"]


def test_dynamic_ntk() -> None:
    config = llama(rope_scaling={"rope_type": "dynamic", "factor": 4.0})
    found = read(config)
    (plan,) = planned(config)
    assert all(found[name].disagrees for name in RUN)
    assert "longest text seen" in found["transformers5"].switch
    for name in ("vllm", "llama.cpp"):
        (layer,) = found[name].layers
        assert layer.stretched == layer.frequencies == plan.frequencies
    assert found["vllm"].length == 4 * 8192
    assert found["llama.cpp"].length == 8192


def test_longrope_is_chosen_at_three_moments() -> None:
    found = read(PHI3)
    (plan,) = planned(PHI3)
    assert "every call" in found["transformers5"].switch
    assert "max_model_len" in found["vllm"].switch
    assert "context size" in found["llama.cpp"].switch
    assert found["vllm"].length == 4096
    assert found["vllm"].layers[0].frequencies == plan.frequencies
    assert found["llama.cpp"].layers[0].frequencies == plan.stretched
    scale = math.sqrt(1 + math.log(32) / math.log(4096))
    assert {round(found[name].layers[0].rotary_gain, 9) for name in RUN} == {round(scale, 9)}
    # A choice in every call is what Phi-3's own code does; one list for all texts is not, where both are served.
    assert {name for name in RUN if found[name].disagrees} == {"llama.cpp", "sglang", "mlx"}
    longer = read({**PHI3, "original_max_position_embeddings": None, "rope_scaling": {**LONGROPE, **TRAINED}})["vllm"]
    assert longer.length == 131_072
    assert longer.disagrees
    assert longer.layers[0].frequencies == plan.stretched


def test_longrope_outside_phi3_is_lost_in_conversion() -> None:
    lists = {**LONGROPE, "short_factor": [1.0] * 32, "long_factor": [3.0] * 32, "factor": 4.0}
    config = llama(rope_scaling={**lists, "original_max_position_embeddings": 2048})
    found = read(config)
    assert noted(found["llama.cpp"], "without longrope")
    assert found["llama.cpp"].layers[0].rotary_gain == 1.0
    assert noted(found["transformers5"], "anew in every call")  # and outside Phi-3 nothing throws the cache away
    # Version 4 looks for the trained length at the top of the config, and takes the longest for it.
    assert noted(found["transformers4"], "takes 8,192 for the trained length")


def test_transformers_4_does_not_read_rope_parameters() -> None:
    config = llama(rope_theta=None, rope_parameters={**YARN, "rope_theta": 500_000.0})
    found = read(config)
    (layer,) = found["transformers4"].layers
    assert layer.frequencies == pytest.approx([1e4 ** (-2 * i / 64) for i in range(32)], rel=1e-12)
    assert noted(found["transformers4"], "theta 10,000 instead of 500,000 and no yarn")
    assert found["transformers4"].ignored == ("rope_parameters",)
    assert not found["transformers5"].disagrees
    # A default that happens to be right is no disagreement.
    plain = llama(rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 10_000.0})
    assert not read(plain)["transformers4"].disagrees


def test_partial_rotation_by_a_key_that_the_model_does_not_read() -> None:
    found = read(llama(partial_rotary_factor=0.5))
    for name in ("transformers5", "transformers4", "llama.cpp"):
        assert noted(found[name], "rotates all 64 features of a head instead of 32")
        assert len(found[name].layers[0].frequencies) == 32
    assert not found["vllm"].disagrees
    glm = {
        **LLAMA,
        "model_type": "glm4",
        "architectures": ["Glm4ForCausalLM"],
        "partial_rotary_factor": 0.5,
        "head_dim": 64,
    }
    assert not any(found.disagrees for name, found in read(glm).items())


def test_the_factor_of_proportional_rope() -> None:
    parameters = {
        "full_attention": {
            "rope_type": "proportional",
            "partial_rotary_factor": 0.25,
            "rope_theta": 1e6,
            "factor": 8.0,
        },
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    config = {
        "model_type": "gemma4_text",
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "hidden_size": 512,
        "head_dim": 64,
        "global_head_dim": 128,
        "sliding_window": 512,
        "max_position_embeddings": 131_072,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        "rope_parameters": parameters,
    }
    found = read(config)
    full = next(layer for layer in found["transformers5"].layers if layer.numbers == (5,))
    assert full.frequencies[:16] == pytest.approx([1e6 ** (-2 * i / 128) / 8 for i in range(16)])
    assert set(full.frequencies[16:]) == {0.0}
    for name in ("vllm", "llama.cpp"):
        assert noted(found[name], "does not divide the frequencies by 8")
    assert found["transformers4"].refusal is not None


def test_llama_cpp_reads_the_scaling_of_full_layers_alone() -> None:
    config = {
        "model_type": "olmo3",
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "hidden_size": 256,
        "max_position_embeddings": 8192,
        "sliding_window": 1024,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        "rope_parameters": {
            "full_attention": {**YARN, "rope_theta": 500_000.0},
            "sliding_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10_000.0},
        },
    }
    found = read(config)["llama.cpp"]
    assert noted(found, "uses plain RoPE on sliding layers, without linear")
    sliding = next(layer for layer in found.layers if layer.numbers == (0, 1, 2))
    assert sliding.frequencies == pytest.approx([1e4 ** (-2 * i / 64) for i in range(32)], rel=1e-12)
    assert not read(
        {
            **config,
            "rope_parameters": {
                **config["rope_parameters"],
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            },
        }
    )["llama.cpp"].disagrees


def test_an_engine_that_cannot_read_a_checkpoint_says_so_and_does_not_disagree() -> None:
    found = read({**LLAMA, "model_type": "minimax_m2", "architectures": ["MiniMaxM2ForCausalLM"], "rotary_dim": 32})
    assert found["transformers4"].refusal == "no model type 'minimax_m2' without remote code"
    assert not found["transformers4"].disagrees
    integer = read(llama(rope_scaling={"rope_type": "linear", "factor": 4}))
    assert "4.0" in str(integer["vllm"].refusal)


def test_every_engine_names_the_version_it_was_read_in() -> None:
    found = read(llama(rope_scaling=YARN))
    assert {name: reading.version for name, reading in found.items()} == {
        "transformers5": "5.22.2",
        "transformers4": "4.57.1",
        "vllm": "0.32.0",
        "llama.cpp": "of llama-cpp-python 0.3.36",
        "sglang": "0.5.23",
        "mlx": "0.32.2",
        "paper": "arXiv 2309.00071",
    }
