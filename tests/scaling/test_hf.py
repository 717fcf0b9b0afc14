"""transformers' keys: all of them are used, or the error names the one that is not."""

from __future__ import annotations

import pytest

from ropewalk.scaling import (
    NTK,
    Dynamic,
    HFRope,
    Linear,
    Llama3,
    LongRoPE,
    Proportional,
    YaRN,
    from_hf,
    to_hf,
    to_hf_v4,
)

LLAMA31 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_theta": 500000.0,
}
QWEN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "rope_theta": 1000000}
GPT_OSS = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 4096,
    "truncate": False,
    "rope_theta": 150000,
}
DEEPSEEK = {
    "rope_type": "yarn",
    "factor": 40,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096,
    "rope_theta": 10000,
}
PHI = {
    "type": "longrope",
    "short_factor": [1.0, 1.1],
    "long_factor": [1.0, 60],
    "original_max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}
GEMMA4 = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0}


@pytest.mark.parametrize(
    ("parameters", "longest", "scaling"),
    [
        (LLAMA31, 131_072, Llama3(factor=8, trained=8192)),
        (QWEN, 32_768, YaRN(factor=4, trained=32_768)),
        (GPT_OSS, 131_072, YaRN(factor=32, trained=4096, truncate=False)),
        (DEEPSEEK, 163_840, YaRN(factor=40, trained=4096, mscale=1, mscale_all_dim=1)),
        (PHI, 131_072, LongRoPE(short=(1, 1.1), long=(1, 60), trained=4096, extended=131_072)),
        (GEMMA4, 131_072, Proportional(fraction=0.25)),
        ({"rope_type": "linear", "factor": 8, "rope_theta": 1e6}, None, Linear(factor=8)),
        ({"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e6}, 32_768, Dynamic(factor=2, trained=32_768)),
        ({"rope_type": "default", "rope_theta": 1e6}, None, None),
        ({"rope_theta": 10000.0}, 2048, None),
        ({"rope_theta": 10000.0, "rope_type": "default", "factor": None, "type": None}, None, None),
        ({**QWEN, "beta_fast": None, "attention_factor": None}, None, YaRN(factor=4, trained=32_768)),
        ({**QWEN, "rope_type": "yarn"}, None, YaRN(factor=4, trained=32_768)),
        ({**QWEN, "original_max_position_embeddings": 32768.0}, None, YaRN(factor=4, trained=32_768)),
        ({**QWEN, "factor": None}, 131_072, YaRN(factor=4, trained=32_768)),
    ],
)
def test_real_configs(parameters, longest, scaling):
    read = from_hf(parameters, longest)
    assert read.scaling == scaling
    assert read.base == parameters["rope_theta"]
    assert read.fraction is None


def test_every_value_says_where_it_came_from():
    read = from_hf({**QWEN, "partial_rotary_factor": 0.5}, 131_072)
    assert read == HFRope(
        base=1e6,
        scaling=YaRN(factor=4, trained=32_768),
        fraction=0.5,
        sources=(
            ("base", "rope_theta"),
            ("fraction", "partial_rotary_factor"),
            ("factor", "factor"),
            ("trained", "original_max_position_embeddings"),
        ),
    )
    without = {key: value for key, value in QWEN.items() if key != "original_max_position_embeddings"}
    assert dict(from_hf(without, 32_768).sources)["trained"] == "max_position_embeddings"
    assert dict(from_hf(PHI, 131_072).sources)["extended"] == "max_position_embeddings"
    assert dict(from_hf(GEMMA4).sources)["fraction"] == "partial_rotary_factor"


def test_dialect_is_the_architectures():
    deepseek = from_hf(DEEPSEEK, dialect="deepseek").scaling
    assert deepseek.rotary_gain == 1
    assert deepseek.logit_gain == pytest.approx(1.3688879454**2)
    assert from_hf(DEEPSEEK).scaling.logit_gain == 1
    assert from_hf(LLAMA31, dialect="deepseek").scaling == Llama3(factor=8, trained=8192)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({**GPT_OSS, "beta_fats": 32}, r"no key 'beta_fats' \(did you mean 'beta_fast'\?\)"),
        ({**GPT_OSS, "attn_factor": 1.0}, r"no key 'attn_factor' \(did you mean 'attention_factor'\?\)"),
        ({**GPT_OSS, "finetuned": True}, "no key 'finetuned': correct or remove it"),
        ({**LLAMA31, "alpha": 1, "beta": 2}, "'alpha'.*'beta'.*known are rope_type"),
        ({**PHI, "short_mscale": 1.1}, "no key 'short_mscale'"),
        ({"rope_theta": 1e4, "factor": 4.0}, "plain RoPE: no key 'factor'"),
        ({"rope_theta": 1e4, "mrope_section": [16, 24, 24]}, "no key 'mrope_section'"),
        ({"rope_theta": 1e4, "full_attention": {"rope_theta": 1e6}}, "one layer type: read each such dict by itself"),
        ({**QWEN, "rope_type": "linear"}, "rope_type 'linear' and type 'yarn' contradict"),
        ({**QWEN, "type": "yran"}, r"no rope_type 'yran' in transformers \(did you mean 'yarn'\?\)"),
        ({**QWEN, "type": 3}, "not a name"),
        ({**QWEN, "type": "su"}, "there are default, linear, dynamic, yarn, llama3, longrope, proportional"),
        ({"rope_type": "linear", "factor": 2.0}, r"no rope_theta in rope_parameters \(rope_type, factor\)"),
        ({"rope_type": "linear", "factor": 2.0, "rope_theta": None}, "no default is safe"),
        ({}, r"no rope_theta in rope_parameters \(empty\)"),
        ({"rope_type": "linear", "factor": 2.0, "rope_theta": "1e6"}, r"outside \(1, 1e12\]"),
        ({"rope_type": "linear", "rope_theta": 1e6}, "factor is missing"),
        ({"rope_type": "linear", "factor": None, "rope_theta": 1e6}, "factor is missing"),
        ({"rope_type": "linear", "factor": 0.5, "rope_theta": 1e6}, "factor = 0.5: .*greater than or equal to 1"),
        ({"rope_type": "linear", "factor": 5000, "rope_theta": 1e6}, "factor = 5000: .*less than or equal to 4096"),
        ({"rope_type": "linear", "factor": float("nan"), "rope_theta": 1e6}, "factor = nan: .*finite"),
        ({"rope_type": "linear", "factor": "4", "rope_theta": 1e6}, "factor = '4': .*valid number"),
        ({"rope_type": "linear", "factor": True, "rope_theta": 1e6}, "factor = True: .*valid number"),
        ({**GPT_OSS, "truncate": 1}, "truncate = 1: .*boolean"),
        ({**GPT_OSS, "original_max_position_embeddings": 4096.5}, "original_max_position_embeddings = 4096.5"),
        ({**GPT_OSS, "beta_fast": 1, "beta_slow": 32}, "beta_slow 32 must be below beta_fast 1; swap them"),
        ({**LLAMA31, "low_freq_factor": 5.0}, "low 5 is above high 4"),
        ({**PHI, "long_factor": [1.0]}, "short has 2 divisors and long has 1"),
        ({**PHI, "long_factor": [1.0, 0.0]}, r"long_factor\[1\] = 0.0: .*greater than 0"),
        ({**PHI, "long_factor": 3.0}, "long_factor = 3: .*tuple"),
        (PHI, "the gain needs factor, extended"),
        ({"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e6}, "max_position_embeddings is missing"),
        ({**GEMMA4, "partial_rotary_factor": 1.5}, "partial_rotary_factor = 1.5"),
        ({"rope_type": "proportional", "rope_theta": 1e6}, "partial_rotary_factor is missing"),
        ({**QWEN, "partial_rotary_factor": 0}, r"partial_rotary_factor 0 is outside \(0, 1\]"),
        ({**QWEN, "partial_rotary_factor": True}, "partial_rotary_factor True is outside"),
        ({**QWEN, "partial_rotary_factor": "half"}, "partial_rotary_factor 'half' is outside"),
        (None, "rope_parameters is None, not a dict"),
    ],
)
def test_errors_name_the_key(parameters, message):
    with pytest.raises(ValueError, match=message):
        from_hf(parameters)


def test_keys_that_the_caller_reads():
    mrope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
    assert from_hf(mrope, elsewhere={"mrope_section"}).scaling is None
    with pytest.raises(ValueError, match="elsewhere names factor, which rope_type 'yarn' reads here"):
        from_hf(QWEN, elsewhere={"factor"})


def test_dynamic_refuses_a_length_that_transformers_would_ignore():
    parameters = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e6, "original_max_position_embeddings": 2048}
    with pytest.raises(ValueError, match=r"ignores original_max_position_embeddings = 2048 .* past .* = 8192"):
        from_hf(parameters, 8192)
    assert from_hf(parameters, 2048).scaling == Dynamic(factor=2, trained=2048)


def test_a_class_reads_its_own_type_only():
    assert Llama3.from_hf(LLAMA31) == Llama3(factor=8, trained=8192)
    assert YaRN.from_hf(DEEPSEEK, dialect="deepseek").dialect == "deepseek"
    with pytest.raises(ValueError, match="rope_type 'llama3' is not 'yarn'"):
        YaRN.from_hf(LLAMA31)
    with pytest.raises(ValueError, match="no key 'partial_rotary_factor'"):
        Llama3.from_hf({**LLAMA31, "partial_rotary_factor": 0.5})
    with pytest.raises(ValueError, match="no rope_type for NTK"):
        NTK.from_hf({"rope_type": "default", "rope_theta": 1e4})


def test_writing():
    assert to_hf(None, 10_000) == {"rope_type": "default", "rope_theta": 10_000.0}
    assert to_hf(Llama3(factor=8, trained=8192), 500_000) == LLAMA31
    lists = {"short": (1.0,), "long": (2.0,), "trained": 4096}
    assert to_hf(LongRoPE(**lists, extended=131_072), 1e4)["factor"] == 32
    assert "factor" not in to_hf(LongRoPE(**lists, attention_factor=1.2), 1e4)
    assert to_hf(Proportional(fraction=0.25), 1e6) == {**GEMMA4, "factor": 1.0}
    assert YaRN(factor=4, trained=32_768).to_hf(1e6) == {
        "rope_type": "yarn",
        "rope_theta": 1e6,
        "factor": 4.0,
        "original_max_position_embeddings": 32_768,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": True,
    }
    assert to_hf_v4(None, 10_000) == (None, 10_000.0)
    assert to_hf_v4(Linear(factor=4), 1e6) == ({"rope_type": "linear", "factor": 4.0}, 1e6)
    assert to_hf_v4(NTK(factor=4), 1e4, width=128) == (None, to_hf(NTK(factor=4), 1e4, 128)["rope_theta"])


def test_writing_what_transformers_cannot_say():
    with pytest.raises(ValueError, match=r"depends on the rotary width: to_hf\(base, width=128\)"):
        NTK(factor=4).to_hf(1e4)
    with pytest.raises(ValueError, match="no key for the paper ramp"):
        YaRN(factor=4, trained=4096, ramp="paper").to_hf(1e4)
    with pytest.raises(ValueError, match="transformers 4 has no proportional"):
        to_hf_v4(Proportional(fraction=0.5), 1e4)
    with pytest.raises(ValueError, match=r"outside \(1, 1e12\]"):
        to_hf(Linear(factor=4), 1)


def test_deepseek_gains_survive_in_transformers_own_rule():
    only_one = YaRN(factor=16, trained=4096, dialect="deepseek", mscale=0.707)
    assert only_one.to_hf(1e4)["attention_factor"] == only_one.rotary_gain
    other = YaRN(factor=16, trained=4096, dialect="deepseek", mscale_all_dim=0.707)
    assert "attention_factor" not in other.to_hf(1e4)
    assert other.to_hf(1e4)["mscale"] == 1.0


def test_parameters_are_not_changed():
    before = dict(QWEN)
    from_hf(QWEN, 131_072)
    assert before == QWEN
