"""What is exported loads in transformers and in llama.cpp with the logits of its source, or is not written at all."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from ropewalk.checkpoints.export import config, hf, prove
from ropewalk.checkpoints.export import convert as module
from ropewalk.checkpoints.export.convert import export
from ropewalk.checkpoints.export.prove import NotProven
from ropewalk.checkpoints.files.weights import open_weights
from ropewalk.checkpoints.load.model import load
from ropewalk.checkpoints.resolve.read import read
from tests.checkpoints.family_models import BY_NAME, CASES, Case, made
from tests.checkpoints.llama_cpp import LlamaCpp
from tests.checkpoints.small_models import MODELS, make, tokens, write_tokenizer

IN_GGUF = [
    name
    for name in MODELS
    if name.split()[0] in ("llama", "qwen2", "qwen3", "smollm3") and name not in ("llama dynamic",)
]
LIMIT = 2e-4


def logits_of(model: Any, text: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(text).logits


def same_class(model: Any, directory: Path) -> Any:
    return type(model).from_pretrained(directory).eval()


@pytest.mark.parametrize("name", list(MODELS))
def test_a_directory_goes_back_to_transformers(tmp_path: Path, name: str) -> None:
    model = make(name, tmp_path / "source")
    proof = export(tmp_path / "source", tmp_path / "out", format="hf")
    assert proof.exact
    assert proof.frequency_ulps == 0
    text = tokens(200)
    assert torch.equal(logits_of(same_class(model, tmp_path / "out"), text), logits_of(model, text))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_family_is_written_back(tmp_path: Path, case: Case) -> None:
    model = made(case, 0)
    model.save_pretrained(tmp_path / "source")
    assert export(tmp_path / "source", tmp_path / "out", format="hf").exact
    before, after = model.state_dict(), same_class(model, tmp_path / "out").state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    prove.compare_plans(read(tmp_path / "source").plans, read(tmp_path / "out").plans)


@pytest.mark.parametrize("name", IN_GGUF)
def test_to_gguf_and_back_to_transformers(tmp_path: Path, name: str) -> None:
    """half -> pairs -> half: the weights come back bit for bit, under a config written from nothing."""
    model = make(name, tmp_path / "source")
    to_gguf = export(tmp_path / "source", tmp_path / "model.gguf", format="gguf")
    layouts = ("half", "half" if "qwen" in name else "pairs")
    assert to_gguf.layouts == layouts
    assert to_gguf.difference <= 1e-4
    export(tmp_path / "model.gguf", tmp_path / "out", format="hf")
    before, after = open_weights(tmp_path / "source"), open_weights(tmp_path / "out")
    assert set(before.names) == set(after.names)
    assert all(torch.equal(before.read(n), after.read(n)) for n in before.names)
    text = tokens(200)
    back = same_class(model, tmp_path / "out")
    assert float((logits_of(back, text) - logits_of(model, text)).abs().max()) <= LIMIT
    prove.compare_plans(read(tmp_path / "source").plans, read(tmp_path / "out").plans)


@pytest.mark.parametrize("name", IN_GGUF)
def test_llama_cpp_reads_what_was_written(tmp_path: Path, name: str) -> None:
    """Float32 GGUF in llama.cpp against transformers: the 20 likeliest tokens after texts within the trained length,
    and past it where positions are scaled."""
    model = make(name, tmp_path / "source")
    export(tmp_path / "source", tmp_path / "model.gguf", format="gguf")
    # By the context llama.cpp chooses LongRoPE's list, transformers by the text.
    engine = LlamaCpp(tmp_path / "model.gguf", context=256)
    for length in (180,) if "longrope" in name else (40, 180):
        text = tokens(length)
        want = logits_of(model, text)[0, -1].log_softmax(-1)
        said = engine.next(text[0].tolist())
        assert len(said) == 20
        assert max(abs(want[number].item() - value) for number, value in said.items()) <= 5e-4
        assert set(said) == set(want.topk(20).indices.tolist())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_llama_cpp_reads_rounded_weights(tmp_path: Path, dtype: str) -> None:
    """It rounds activations too where weights are rounded, so that only nearness can be asked for."""
    model = make("llama", tmp_path / "source")
    export(tmp_path / "source", tmp_path / "model.gguf", format="gguf", dtype=dtype)
    text = tokens(40)
    want = logits_of(model, text)[0, -1].log_softmax(-1)
    said = LlamaCpp(tmp_path / "model.gguf", context=256).next(text[0].tolist())
    assert max(abs(want[number].item() - value) for number, value in said.items()) <= 0.1


def test_config_states_positions_in_both_spellings(tmp_path: Path) -> None:
    make("llama yarn", tmp_path / "source")
    export(tmp_path / "source", tmp_path / "out", format="hf")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    new, old = config["rope_parameters"], config["rope_scaling"]
    assert new.pop("rope_theta") == config["rope_theta"] == 10_000
    assert new == old
    assert old["original_max_position_embeddings"] == 64
    assert config["max_position_embeddings"] == 256
    plan = read(tmp_path / "out").plan
    assert (plan.trained, plan.extended) == (64, 256)


def test_a_generation_of_keys_alone_is_enough(tmp_path: Path) -> None:
    """Each spelling by itself resolves to the plan of both."""
    make("llama llama3", tmp_path / "source")
    export(tmp_path / "source", tmp_path / "out", format="hf")
    file = tmp_path / "out" / "config.json"
    whole = json.loads(file.read_text())
    wanted = read(tmp_path / "source").plan.fingerprint
    for left_out in (["rope_parameters"], ["rope_scaling", "rope_theta"]):
        file.write_text(json.dumps({key: value for key, value in whole.items() if key not in left_out}))
        assert read(tmp_path / "out").plan.fingerprint == wanted


@pytest.mark.parametrize(("dtype", "bound"), [("float16", 2e-3), ("bfloat16", 2e-2)])
@pytest.mark.parametrize("to", ["hf", "gguf"])
def test_rounding_is_stated(tmp_path: Path, to: Any, dtype: str, bound: float) -> None:
    make("llama", tmp_path / "source")
    out = tmp_path / ("out.gguf" if to == "gguf" else "out")
    proof = export(tmp_path / "source", out, format=to, dtype=dtype)
    assert proof.rounding is not None
    assert 0 < proof.rounding < bound
    assert proof.exact == (to == "hf")
    assert f"{dtype} rounding changes the logits" in str(proof)
    stored = load(out)
    want = open_weights(tmp_path / "source").read("model.layers.1.mlp.down_proj.weight").to(getattr(torch, dtype))
    assert torch.equal(stored.decoder.blocks[1].mlp.down.weight.float(), want.float())


@pytest.mark.parametrize("name", ["SmolLM2", "BERT", "T5"])
def test_second_copies_are_rounded_as_the_first(tmp_path: Path, name: str) -> None:
    """Files that write a tied tensor twice: rounding one of the two alone would leave two that differ."""
    copy, of = {
        "SmolLM2": ("lm_head.weight", "model.embed_tokens.weight"),
        "BERT": ("cls.predictions.decoder.bias", "cls.predictions.bias"),
        "T5": ("encoder.embed_tokens.weight", "shared.weight"),
    }[name]
    made(BY_NAME[name]).save_pretrained(tmp_path / "source")
    tensors = load_file(tmp_path / "source" / "model.safetensors")
    save_file({**tensors, copy: tensors[of].clone()}, tmp_path / "source" / "model.safetensors")
    export(tmp_path / "source", tmp_path / "out", format="hf", dtype="bfloat16")
    written = open_weights(tmp_path / "out")
    assert written.dtype(copy) == torch.bfloat16
    assert torch.equal(written.read(copy), tensors[of].bfloat16())
    export(tmp_path / "source", tmp_path / "same", format="hf")
    assert open_weights(tmp_path / "same").dtype(copy) == torch.float32


def test_a_dtype_that_holds_every_value_rounds_nothing(tmp_path: Path) -> None:
    make("llama", tmp_path / "source", dtype=torch.bfloat16)
    assert export(tmp_path / "source", tmp_path / "wide", format="hf", dtype="float32").rounding is None
    assert export(tmp_path / "source", tmp_path / "same", format="hf").dtype == "bfloat16"
    proof = export(tmp_path / "source", tmp_path / "same.gguf", format="gguf")
    assert (proof.dtype, proof.rounding) == ("bfloat16", None)


def test_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("llama", tmp_path / "source")
    monkeypatch.setattr(hf.write_hf, "__defaults__", (100_000,))
    export(tmp_path / "source", tmp_path / "out", format="hf")
    files = sorted((tmp_path / "out").glob("*.safetensors"))
    assert len(files) > 3
    assert all(file.stat().st_size < 110_000 for file in files)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 4 * sum(p.numel() for p in model.parameters())
    text = tokens(50)
    assert torch.equal(logits_of(same_class(model, tmp_path / "out"), text), logits_of(model, text))


def test_the_tokenizer_goes_along(tmp_path: Path) -> None:
    make("llama", tmp_path / "source")
    export(tmp_path / "source", tmp_path / "model.gguf", format="gguf")
    proof = export(tmp_path / "model.gguf", tmp_path / "out", format="hf")
    assert proof.tokenizer is not None
    fast = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    one = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "source" / "tokenizer.json"))
    text = "the thin man, 12345 <|end|> and so on"
    assert fast(text)["input_ids"] == one(text)["input_ids"]
    assert (fast.bos_token_id, fast.eos_token_id) == (300, 301)
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 300, "eos_token_id": 301}


def test_what_is_code_or_lies_elsewhere_does_not_go_along(tmp_path: Path) -> None:
    source = tmp_path / "source"
    make("llama", source)
    config = json.loads((source / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "modeling_mine.Mine"}
    (source / "config.json").write_text(json.dumps(config))
    (source / "modeling_mine.py").write_text("raise SystemExit(9)")
    export(source, tmp_path / "out", format="hf")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
    assert "auto_map" not in json.loads((tmp_path / "out" / "config.json").read_text())
    (tmp_path / "secret").write_text("mine")
    (source / "merges.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match=r"merges\.txt: is not a regular file inside the directory"):
        export(source, tmp_path / "again", format="hf")
    assert not (tmp_path / "again").exists()


def scaled(source: Path, **settings: Any) -> None:
    file = source / "config.json"
    config = json.loads(file.read_text())
    config["rope_parameters"] |= settings
    file.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("llama yarn", {"truncate": False}, "truncate: YaRN's ramp does not end at whole indices"),
        ("llama yarn", {"beta_fast": 16.0}, "beta_fast: .* from 16 to 1"),
        ("llama dynamic", {}, "rope_type: dynamic scaling"),
        ("mistral window", {}, "sliding_window: layers see 24 tokens"),
        ("gpt neox", {}, "model_type: gpt_neox is not written as GGUF; these are: llama"),
    ],
)
def test_what_llama_cpp_cannot_say_is_refused(tmp_path: Path, name: str, settings: Any, says: str) -> None:
    make(name, tmp_path / "source")
    scaled(tmp_path / "source", **settings)
    with pytest.raises(ValueError, match=says):
        export(tmp_path / "source", tmp_path / "out.gguf", format="gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_llama3_divisors_are_read_by_llama_alone(tmp_path: Path) -> None:
    make("qwen2", tmp_path / "source")
    settings = {"factor": 8.0, "original_max_position_embeddings": 128, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaled(tmp_path / "source", rope_type="llama3", **settings)
    with pytest.raises(ValueError, match="only its llama reads"):
        export(tmp_path / "source", tmp_path / "out.gguf", format="gguf")


def test_a_tokenizer_that_gguf_cannot_hold_is_refused(tmp_path: Path) -> None:
    make("llama", tmp_path / "source", tokenizer=False)
    with pytest.raises(ValueError, match=r"tokenizer.json: is missing"):
        export(tmp_path / "source", tmp_path / "out.gguf", format="gguf")
    write_tokenizer(tmp_path / "source")
    file = tmp_path / "source" / "tokenizer.json"
    data = json.loads(file.read_text())
    data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, data["pre_tokenizer"]]}
    file.write_text(json.dumps(data))
    with pytest.raises(ValueError, match="pre_tokenizer: Whitespace is not supported in GGUF; byte-level and"):
        export(tmp_path / "source", tmp_path / "out.gguf", format="gguf")


def test_nothing_is_written_over_or_into_the_source(tmp_path: Path) -> None:
    source = tmp_path / "source"
    make("llama", source)
    (tmp_path / "taken").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "alias").symlink_to(source)
    for out, says in (
        ("source", "already exists"),
        ("taken", "already exists"),
        ("link", "already exists"),
        ("source/inside", "is inside the source"),
        ("alias/inside", "is inside the source"),
        ("source/../source/x", "is inside the source"),
        ("missing/out", "is not a directory"),
        ("out.gguf", "the name of a file"),
    ):
        with pytest.raises(ValueError, match=says):
            export(source, tmp_path / out, format="hf")
    with pytest.raises(ValueError, match=r"must end in \.gguf"):
        export(source, tmp_path / "out", format="gguf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alias", "link", "source", "taken"]


def test_a_wrong_weight_is_found_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("llama", tmp_path / "source")
    monkeypatch.setattr(hf, "write_tensor", spoiled(hf.write_tensor))
    with pytest.raises(NotProven, match="read back is not the source's"):
        export(tmp_path / "source", tmp_path / "out", format="hf")
    monkeypatch.setattr(prove, "compare_tensors", lambda *_: None)
    with pytest.raises(NotProven, match=r"logits read back differ by .* must be equal bit for bit"):
        export(tmp_path / "source", tmp_path / "out", format="hf")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def spoiled(write: Any) -> Any:
    """The last bit of one number of each tensor, changed."""

    def spoil(file: Any, tensor: torch.Tensor, dtype: torch.dtype) -> None:
        tensor = tensor.clone()
        tensor.view(-1)[3] = torch.nextafter(tensor.view(-1)[3], torch.tensor(math.inf))
        write(file, tensor, dtype)

    return spoil


def test_queries_left_in_the_wrong_layout_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("llama", tmp_path / "source")
    monkeypatch.setattr("ropewalk.checkpoints.export.gguf.relaid", lambda tensor, *_, **__: tensor)
    with pytest.raises(NotProven, match=r"q_proj\.weight read back is not the source's"):
        export(tmp_path / "source", tmp_path / "out.gguf", format="gguf")
    # Were the permutation itself wrong, both ways, logits would say so.
    monkeypatch.setattr(prove, "relaid", lambda tensor, *_, **__: tensor)
    with pytest.raises(NotProven, match="another order of sums"):
        export(tmp_path / "source", tmp_path / "out.gguf", format="gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_another_base_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("llama", tmp_path / "source")
    monkeypatch.setattr(config, "to_hf", lambda *_: {"rope_type": "default", "rope_theta": 10_001.0})
    monkeypatch.setattr(config, "to_hf_v4", lambda *_: (None, 10_001.0))
    with pytest.raises(NotProven, match="ulp of float32"):
        export(tmp_path / "source", tmp_path / "out", format="hf")


def test_a_source_that_changes_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("llama", tmp_path / "source")
    prove_it = module._prove

    def touched(*arguments: Any) -> Any:
        os.utime(tmp_path / "source" / "model.safetensors")
        return prove_it(*arguments)

    monkeypatch.setattr(module, "_prove", touched)
    with pytest.raises(ValueError, match="changed while it was read"):
        export(tmp_path / "source", tmp_path / "out", format="hf")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


KILLED = """
import sys, time
from ropewalk.checkpoints.export import hf
from ropewalk.checkpoints.export.convert import export
write = hf.write_tensor
def slow(file, *rest):
    write(file, *rest)
    file.flush()
    print("one", flush=True)
    time.sleep(60)
hf.write_tensor = slow
export(sys.argv[1], sys.argv[2], format="hf")
"""


def test_killed_half_way_leaves_no_output(tmp_path: Path) -> None:
    make("llama", tmp_path / "source")
    command = [sys.executable, "-c", KILLED, str(tmp_path / "source"), str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    left = [path.name for path in tmp_path.iterdir() if path.name != "source"]
    assert all(name.startswith(".out.") and name.endswith(".partial") for name in left)
    export(tmp_path / "source", tmp_path / "out", format="hf")  # and stands in nobody's way
    assert (tmp_path / "out" / "config.json").is_file()


def test_an_unknown_form_or_dtype_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are hf"):
        export(tmp_path, tmp_path / "out", format="onnx")  # pyrefly: ignore
    with pytest.raises(ValueError, match="there are float32"):
        export(tmp_path, tmp_path / "out", format="hf", dtype="int8")
