"""What `inspect --to` prints is what engines then compute: transformers' own modules, llama.cpp's own numbers."""

from __future__ import annotations

import json
import math
import shlex
import struct
from pathlib import Path
from typing import Any

import pytest

from ropewalk.checkpoints.architectures.table import PARTS
from ropewalk.checkpoints.engines import readings
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.inspect.pasted import Override
from ropewalk.checkpoints.inspect.report import inspect
from ropewalk.checkpoints.resolve.hf import resolve
from ropewalk.checkpoints.resolve.read import read
from ropewalk.cli.inspect import to as inspect_to
from tests.checkpoints import published
from tests.checkpoints.engine_configs import DEEPSEEK, LLAMA, PHI3, YARN, llama, yarn_in_llama_cpp


@pytest.fixture
def saved(tmp_path: Path):
    def save(config: dict[str, Any], name: str = "model") -> Path:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return tmp_path / name

    return save


def told(path: Path, to: int) -> dict[str, dict[str, Override]]:
    """By scaling, then by engine."""
    reach = inspect(path, to=to).reach
    assert reach is not None
    return {one.scaling: {override.engine: override for override in one.overrides} for one in reach.stretches}


def pasted(config: dict[str, Any], override: Override) -> dict[str, Any]:
    """The config with the printed keys in the object that is named, null for a key that goes."""
    assert override.text is not None
    assert override.into is not None
    keys = json.loads(override.text)
    if override.into.startswith("text_config in "):
        inner = {**config["text_config"], **keys}
        return {**config, "text_config": {key: value for key, value in inner.items() if value is not None}}
    return {key: value for key, value in {**config, **keys}.items() if value is not None}


def formula(scaling: str, i: int, base: float, width: int, trained: int, factor: float) -> float:
    """Each scaling's frequency, from its paper or its code, in float64."""
    omega = base ** (-2 * i / width)
    rotations = trained * omega / (2 * math.pi)
    if scaling == "linear":
        return omega / factor
    if scaling == "ntk":
        return omega * factor ** (-2 * i / (width - 2))
    if scaling == "dynamic":
        return omega * (factor * factor - factor + 1) ** (-2 * i / (width - 2))
    if scaling == "yarn":
        return yarn_in_llama_cpp(i, base, width, factor, trained)
    assert scaling == "llama3"
    kept = min(1.0, max(0.0, (rotations - 1) / 3))
    return omega / factor * (1 - kept) + omega * kept


def gain(scaling: str, factor: float) -> float:
    return 0.1 * math.log(factor) + 1 if scaling == "yarn" else 1.0


OWN_RAMP = ("deepseek", "kimi", "ministral", "devstral", "gpt-oss", "olmo-3", "yarn")
"""Parts of names whose YaRN has betas, gains or a ramp of its own, which stay; so do the ends of Llama 4's ramp."""


OWN_LOCAL = ("gemma3", "olmo3", "modernbert")
"""Model types whose sliding layers have parameters of their own."""


@pytest.fixture(scope="module")
def reaches() -> dict[str, Any]:
    """Of every published config that rotates and says how long it was trained, four times as far."""
    found = {}
    for name in published.names():
        path = published.path(name)
        try:
            plan = inspect(path).resolved.plan
        except BadInput:
            continue
        reach = inspect(path, to=4 * (plan.trained or plan.longest or 2048)).reach
        assert reach is not None
        if reach.stretches:
            found[name] = (plan, reach)
        else:
            assert reach.words
    assert len(found) > 70
    return found


def test_transformers_computes_what_is_pasted(reaches: dict[str, Any]) -> None:
    """Its own rotation module, for every published config and every scaling; sliding layers with parameters of their
    own stay as they were."""
    torch = pytest.importorskip("torch")
    from tests.checkpoints.transformers_oracle import Theirs

    compared = 0
    for name, (plan, reach) in reaches.items():
        config = published.config(name)
        if name == "falcon-h1-0.5b":  # transformers 5.22.2 refuses the heads of its state-space branch
            continue
        for one in reach.stretches:
            engines = [override for override in one.overrides if "transformers" in override.engine and override.text]
            override = next((each for each in engines if "5" in each.engine), None)
            if override is None:
                continue
            theirs = Theirs(pasted(config, override))
            types = theirs.types(len(plan.layers))
            for number in {kind: number for number, kind in enumerate(types)}.values():
                layer, kind = plan.layers[number], types[number]
                if layer.base is None:
                    continue
                width, trained = layer.rotary_width, round(reach.to / one.factor)
                local = kind == "sliding_attention" and config["model_type"].startswith(OWN_LOCAL)
                if one.scaling == "dynamic":
                    assert theirs.rotary is not None
                    far = torch.tensor([[reach.to - 1]])
                    nested = f"{kind}_inv_freq" in dict(theirs.rotary.named_buffers())
                    far = far if layer.settings == "{}" or "sections" not in layer.settings else far.expand(3, 1, 1)
                    theirs.rotary(torch.zeros(1), far, *([kind] if nested else []))
                frequencies, factor_on = theirs.frequencies(kind)
                if (one.scaling == "yarn" and any(part in name for part in OWN_RAMP)) or name == "llama-4-scout":
                    continue
                expected = [
                    layer.base ** (-2 * i / width)
                    if local
                    else formula(one.scaling, i, layer.base, width, trained, one.factor)
                    for i in range(width // 2)
                ]
                assert frequencies == pytest.approx(expected, rel=2e-5), (name, one.scaling, kind)
                assert factor_on == pytest.approx(1.0 if local else gain(one.scaling, one.factor)), (name, one.scaling)
                compared += 1
    assert compared > 350


def test_overrides_for_vllm_read_back_as_what_was_meant(reaches: dict[str, Any]) -> None:
    """The shell's words, the JSON, and the object it belongs into: an override beside text_config changes nothing."""
    given = 0
    for name, (plan, reach) in reaches.items():
        config = published.config(name)
        for one in reach.stretches:
            override = next((each for each in one.overrides if each.engine == "vLLM"), None)
            if override is None or override.text is None or one.scaling == "longrope":
                continue
            command, verb, model, option, value, limit, length = shlex.split(override.text)
            assert (command, verb, model, option) == ("vllm", "serve", "MODEL", "--hf-overrides")
            assert (limit, int(length)) == ("--max-model-len", reach.to)
            keys = json.loads(value)
            assert ("text_config" in keys) == ("text_config" in config or config["model_type"] in PARTS), name
            block = keys.get("text_config", keys)["rope_parameters"]
            block = block.get("full_attention", block)
            base = next(
                layer.base for layer in plan.layers if (layer.base is not None and layer.window is None) or layer.base
            )
            if one.scaling == "ntk":
                assert block["rope_theta"] > base
                assert block["rope_type"] == "default"
            else:
                assert block["rope_type"] == one.scaling
                assert block["factor"] == pytest.approx(one.factor)
            given += 1
    assert given > 250


def test_overrides_for_sglang_name_the_object_that_it_reads(reaches: dict[str, Any]) -> None:
    """Its models read the top or text_config, so both are given: engines/test_rotations.py has its own answers."""
    given = 0
    for name, (_, reach) in reaches.items():
        config = published.config(name)
        for one in reach.stretches:
            override = next((each for each in one.overrides if each.engine == "SGLang"), None)
            if override is None or override.text is None or one.scaling == "longrope":
                continue
            *command, path, model, option, value, limit, length = shlex.split(override.text)
            assert command == ["python", "-m", "sglang.launch_server"]
            assert (path, model, option) == ("--model-path", "MODEL", "--json-model-override-args")
            assert (limit, int(length)) == ("--context-length", reach.to)
            keys = json.loads(value)
            within = "text_config" in config or config["model_type"] in PARTS
            assert ("text_config" in keys) == within, name
            assert not within or keys["text_config"] == {key: keys[key] for key in keys if key != "text_config"}
            assert any("sglang#27974" in note for note in override.notes) == within, name
            given += 1
    assert given > 150


def test_sglang_keeps_nothing_of_a_scaling_that_is_replaced(saved) -> None:
    """At the top it merges rope_parameters with those that are there, unless rope_scaling was set to null before."""
    ramp = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 2048}
    config = llama(rope_scaling={"rope_type": "llama3", "factor": 4.0, **ramp})
    words = shlex.split(told(saved(config), 32_768)["linear"]["SGLang"].text or "")
    keys = json.loads(words[words.index("--json-model-override-args") + 1])
    assert list(keys)[-2:] == ["rope_scaling", "rope_parameters"]
    assert keys["rope_scaling"] is None
    assert "low_freq_factor" not in keys["rope_parameters"]


def test_mlx_reads_what_is_pasted_or_says_why_not(saved) -> None:
    found = told(published.path("qwen3-vl-8b"), 1_048_576)
    assert found["yarn"]["MLX-LM"].into == "text_config in qwen3-vl-8b.json"
    assert "passes no scaling" not in (found["yarn"]["MLX-LM"].why or "")
    assert told(published.path("qwen3-30b-a3b"), 131_072)["yarn"]["MLX-LM"].text is None  # its file has no scaling
    new = told(published.path("ministral-3-8b"), 1_048_576)["yarn"]["MLX-LM"]
    assert "rope_parameters" in (new.text or "")  # its file has no rope_scaling


def test_the_flags_of_llama_cpp_are_its_own(reaches: dict[str, Any]) -> None:
    """Names of arguments stand in the library itself, which is built with llama-server's parser."""
    engine: Any = pytest.importorskip("xllamacpp")
    (library,) = Path(engine.__file__).parent.glob("xllamacpp*.so")
    held = library.read_bytes()
    seen: set[str] = set()
    for _, reach in reaches.values():
        for one in reach.stretches:
            for override in one.overrides:
                if override.engine == "llama.cpp" and override.text is not None:
                    seen |= {word for word in shlex.split(override.text) if word.startswith("-")}
    assert seen == {
        "-m",
        "-c",
        "--rope-scaling",
        "--rope-scale",
        "--rope-freq-base",
        "--yarn-orig-ctx",
        "--override-kv",
    }
    for flag in seen:
        assert b"\0" + flag.encode() + b"\0" in held, flag


def arguments(text: str) -> dict[str, str]:
    words = shlex.split(text)[1:]
    return dict(zip(words[::2], words[1::2], strict=True))


@pytest.mark.parametrize("scaling", ["linear", "ntk", "yarn"])
@pytest.mark.parametrize("name", ["llama", "qwen3 yarn"])
def test_llama_cpp_with_the_flags_is_transformers_with_the_keys(tmp_path: Path, name: str, scaling: str) -> None:
    """Log-probabilities of one model: its unchanged GGUF file under the flags, its changed config in transformers."""
    engine: Any = pytest.importorskip("xllamacpp")
    pytest.importorskip("gguf")
    import torch

    from ropewalk.checkpoints.export.convert import export
    from tests.checkpoints.llama_cpp import LlamaCpp
    from tests.checkpoints.small_models import make, tokens, write_tokenizer

    source = tmp_path / "source"
    model = make(name, source)
    write_tokenizer(source)
    export(source, tmp_path / "model.gguf", format="gguf")
    reach = told(source, 512)
    overrides = reach[scaling]
    given = arguments(overrides["llama.cpp"].text or "")
    # xllamacpp has no such setting: the file's own key is the one that is named, and the text stays within 256 tokens.
    if (longer := given.pop("--override-kv", None)) is not None:
        key, _, value = longer.partition("=")
        assert (read(tmp_path / "model.gguf").config[key], value) == (256, "int:512")
    else:
        assert scaling == "yarn"
    said = LlamaCpp(tmp_path / "model.gguf", context=int(given.pop("-c")), **rope_settings(engine, given))
    changed = pasted(json.loads((source / "config.json").read_text()), overrides["transformers 5"])
    (source / "config.json").write_text(json.dumps(changed))
    text = tokens(400 if longer is None else 240)
    with torch.no_grad():
        right = type(model).from_pretrained(source).eval()(text).logits[0, -1].log_softmax(-1)
        before = model(text).logits[0, -1].log_softmax(-1)
    found = said.next(text[0].tolist())
    assert max(abs(right[token].item() - value) for token, value in found.items()) < 5e-4
    assert max(abs(before[token].item() - value) for token, value in found.items()) > 1e-2  # the flags do something


def rope_settings(engine: Any, given: dict[str, str]) -> dict[str, Any]:
    """common/arg.cpp: what each argument sets."""
    given.pop("-m")
    kinds = {"none": 0, "linear": 1, "yarn": 2}
    meaning = {
        "--rope-scaling": lambda value: {"rope_scaling_type": engine.llama_rope_scaling_type(kinds[value])},
        "--rope-scale": lambda value: {"rope_freq_scale": 1.0 / as_float32(value)},
        "--rope-freq-base": lambda value: {"rope_freq_base": as_float32(value)},
        "--yarn-orig-ctx": lambda value: {"yarn_orig_ctx": int(value)},
    }
    return {key: value for flag, text in given.items() for key, value in meaning[flag](text).items()}


def as_float32(text: str) -> float:
    return struct.unpack("f", struct.pack("f", float(text)))[0]


def test_a_scaling_that_is_there_is_replaced_and_not_stacked(saved) -> None:
    found = told(saved(llama(rope_scaling=YARN)), 16_384)  # x4 from 2,048, so that 16,384 is x8 and not x2 of 8,192
    keys = json.loads(found["yarn"]["transformers 4 and 5"].text or "")
    assert keys["rope_scaling"]["factor"] == 8.0
    assert keys["rope_scaling"]["original_max_position_embeddings"] == 2048
    assert "--rope-scale 8 --yarn-orig-ctx 2048" in (found["yarn"]["llama.cpp"].text or "")
    assert "--rope-scaling none --rope-freq-base" in (found["ntk"]["llama.cpp"].text or "")
    assert json.loads(found["ntk"]["transformers 4 and 5"].text or "")["rope_scaling"] is None


def test_llama_3_2_vision_keeps_a_rope_type_for_transformers_4(saved) -> None:
    """Its modelling code reads config.rope_scaling["rope_type"] and fails on null (4.57.1, modeling_mllama.py)."""
    found = told(published.path("llama-3.2-90b-vision"), 524_288)["ntk"]["transformers 4 and 5"]
    assert json.loads(found.text or "")["rope_scaling"] == {"rope_type": "default"}
    config = published.config("llama-3.2-90b-vision")
    config["text_config"] = {**config["text_config"], "rope_scaling": None}
    assert (
        inspect(saved(config)).rows["transformers4"].reading.refusal
        == "its mllama reads rope_scaling.rope_type, which is missing"
    )


def test_what_an_engine_cannot_be_told(saved) -> None:
    plain = told(saved(llama()), 32_768)
    assert "no flag for dynamic" in (plain["dynamic"]["llama.cpp"].why or "")
    assert "ropewalk export MODEL MODEL.gguf --format gguf" in (plain["llama3"]["llama.cpp"].why or "")
    assert "does not scale" in (plain["dynamic"]["vLLM"].why or "")
    ramp = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 2048}
    llama3 = told(saved(llama(rope_scaling={"rope_type": "llama3", "factor": 4.0, **ramp})), 32_768)
    assert "flags come on top" in (llama3["yarn"]["llama.cpp"].why or "")  # rope_freqs stays in force
    assert "gain of its own" in (told(saved({**DEEPSEEK}), 32_768)["yarn"]["llama.cpp"].why or "")


def test_flags_that_sliding_layers_do_not_take_are_not_given(reaches: dict[str, Any]) -> None:
    """Gemma 2 rotates all layers alike, and llama.cpp's flags reach only those without a window; Gemma 3 scales just
    those."""
    for name, why in (("gemma-2-2b", "layers with a window"), ("gemma-3-1b", None)):
        _, reach = reaches[name]
        (linear,) = [one for one in reach.stretches if one.scaling == "linear"]
        (override,) = [one for one in linear.overrides if one.engine == "llama.cpp"]
        assert (override.text is None) == (why is not None)
        assert why is None or why in (override.why or "")


def test_yarn_on_sections_of_vllm() -> None:
    """Its table for Qwen2-VL is four times as long, and the ramp is that of the table: seen in its own module."""
    config = published.config("qwen2-vl-7b")
    scaling = {**config["rope_scaling"], "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}
    reading = readings(resolve({**config, "rope_scaling": scaling}))["vllm"]
    expected = [yarn_in_llama_cpp(i, 1e6, 128, 4.0, 4 * 32_768) for i in range(64)]
    assert reading.layers[0].frequencies == pytest.approx(expected, rel=1e-9)
    why = told(published.path("qwen2-vl-7b"), 131_072)["yarn"]["vLLM"].why or ""
    assert "ramps YaRN as for a trained length of 131,072 instead of 32,768" in why
    assert told(published.path("qwen3-vl-8b"), 1_048_576)["yarn"]["vLLM"].text is not None


def test_longrope_reaches_its_extended_length_as_it_is(saved) -> None:
    found = told(saved({**PHI3}), 65_536)
    assert found["longrope"]["vLLM"].text == f"vllm serve {shlex.quote(str(saved({**PHI3})))} --max-model-len 65536"
    assert (found["longrope"]["llama.cpp"].text or "").endswith("-c 65536")
    assert "longrope" not in told(saved({**PHI3}), 262_144)
    reach = inspect(published.path("phi-3-mini-128k"), to=60_000).reach
    assert reach is not None
    (one,) = [one for one in reach.stretches if one.scaling == "longrope"]
    # The gain is of 131,072 / 4,096, whatever the length of the text.
    assert one.factor == 32
    assert one.gain == pytest.approx(math.sqrt(1 + math.log(32) / math.log(4096)))


def test_a_gain_on_the_scores_has_a_column_where_there_is_one(saved) -> None:
    reach = inspect(published.path("deepseek-v3"), to=200_000).reach
    assert reach is not None
    (yarn,) = [one for one in reach.stretches if one.scaling == "yarn"]
    assert yarn.logit_gain == pytest.approx((0.1 * math.log(200_000 / 4096) + 1) ** 2)
    place = inspect_to.headings(reach).index("logit gain")
    assert {row[0]: row[place] for row in inspect_to.rows(reach)}["yarn"] == f"{yarn.logit_gain:.5g}"
    assert all(len(row) == len(inspect_to.headings(reach)) for row in inspect_to.rows(reach))
    plain = inspect(saved(llama()), to=32_768).reach
    assert plain is not None
    assert "logit gain" not in inspect_to.headings(plain)
    assert all(len(row) == len(inspect_to.headings(plain)) for row in inspect_to.rows(plain))


def test_a_length_that_needs_no_scaling(saved) -> None:
    for config, to, words in (
        (llama(), 8192, "8,192 is within"),
        (llama(), 100, "no scaling is needed"),
        (
            {"model_type": "bloom", "n_layer": 2, "n_head": 4, "hidden_size": 64},
            4096,
            "ALiBi is defined at any distance",
        ),
    ):
        reach = inspect(saved(config), to=to).reach
        assert reach is not None
        assert not reach.stretches
        assert words in reach.words[0]
    with pytest.raises(
        BadInput, match="more than 4,096 times the stated length, 8,192; give a length up to 33,554,432"
    ):
        inspect(saved(llama()), to=8192 * 4096 + 1)


def test_only_the_factor_is_carried_on_where_the_trained_length_is_not_stated() -> None:
    path = published.path("gemma-3-27b")
    found = told(path, 262_144)
    assert list(found) == ["linear"]
    assert found["linear"]["vLLM"].notes == ("holds a table of 4,194,304 positions, 1.0 GiB in 16 bits",)
    override = found["linear"]["transformers 4 and 5"]
    assert override.into == "text_config in gemma-3-27b.json"
    assert json.loads(override.text or "")["rope_scaling"] == {"rope_type": "linear", "factor": 16.0}
    changed = resolve(pasted(published.config("gemma-3-27b"), override)).plan
    now = resolve(published.config("gemma-3-27b")).plan
    for before, after in zip(now.layers, changed.layers, strict=True):
        slower = 2.0 if before.window is None else 1.0
        assert [omega / slower for omega in before.frequencies] == pytest.approx(after.frequencies, rel=1e-12)


def test_data_carries_what_is_printed(saved) -> None:
    data = json.loads(json.dumps(inspect(saved({**LLAMA}), to=32_768).to_dict(), allow_nan=False))
    assert data["to"] == 32_768
    (yarn,) = [one for one in data["scalings"] if one["scaling"] == "yarn"]
    assert {one["engine"] for one in yarn["overrides"]} == {
        *("transformers 4 and 5", "vLLM", "llama.cpp", "SGLang", "MLX-LM")
    }
    assert all(one["text"] for one in yarn["overrides"])
