"""Chat templates, special tokens, licence and sampling defaults go along with an export, or are named as left out."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import gguf
import pytest
import transformers
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.export import about_hf
from ropewalk.checkpoints.export.about import TEXTS, About, from_gguf
from ropewalk.checkpoints.export.convert import export
from ropewalk.checkpoints.export.prove import NotProven
from ropewalk.checkpoints.files.gguf import GGUF
from ropewalk.checkpoints.tokens import tokenizer
from tests.checkpoints.llama_cpp import LlamaCpp
from tests.checkpoints.small_models import make

TALK = [
    {"role": "user", "content": "the man"},
    {"role": "assistant", "content": "on"},
    {"role": "user", "content": "?"},
]
CHAT = (
    "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
TOOLS = "{% for m in messages %}[{{ m['content'] }}]{% endfor %}"
WORDS: dict[str, Any] = {
    "bos_token": "<|begin|>",
    "eos_token": "<|end|>",
    "unk_token": "<unused0>",
    "pad_token": {"content": "<unused1>", "__type": "AddedToken"},
}
CARD = """---
license: other
license_name: mine
language: [en, "no"]
tags:
- chat
base_model: someone/base-1B
datasets: [someone/text, "https://data.example/x"]
pipeline_tag: text-generation
---

# A model
"""


def write(path: Path, data: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    make("llama", directory)
    write(directory / "tokenizer_config.json", {**WORDS, "chat_template": CHAT})
    return directory


def test_what_a_tokenizer_does_to_texts_is_named(tmp_path: Path, source: Path) -> None:
    """llama.cpp composes no characters, and takes no spaces with a token: the same text has other tokens there."""
    data = json.loads((source / "tokenizer.json").read_text())
    data["normalizer"] = {"type": "NFC"}
    data["added_tokens"][-1]["rstrip"] = True
    write(source / "tokenizer.json", data)
    proof = export(source, tmp_path / "model.gguf", format="gguf")
    assert proof.left_out == (
        "tokenizer.json normalizer NFC",
        "tokenizer.json lstrip, rstrip or single_word of <|end|>",
    )
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(source / "tokenizer.json"))
    for text in ("e\u0301", "a<|end|> b"):
        assert theirs(text).input_ids != tokenizer.of(tmp_path / "model.gguf").encode(text, special=False)


@pytest.mark.parametrize("stops", [[301, 5, 6, 7], [5]], ids=["four", "not the end"])
def test_stops_that_gguf_has_no_place_for_are_named(tmp_path: Path, source: Path, stops: list[int]) -> None:
    write(source / "generation_config.json", {"eos_token_id": stops})
    with pytest.raises(
        NotProven, match=rf"stop at tokens 300, 301 and \[{sorted(stops)[0]}.*room for .* two more stops"
    ):
        export(source, tmp_path / "model.gguf", format="gguf")


def rendered(directory: Path, **chosen: Any) -> str:
    fast = transformers.PreTrainedTokenizerFast.from_pretrained(directory)
    return fast.apply_chat_template(TALK, tokenize=False, add_generation_prompt=True, **chosen)


def keys_of(path: Path) -> dict[str, Any]:
    """By llama.cpp's own package."""
    return {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}


def test_a_chat_there_and_back(source: Path, tmp_path: Path) -> None:
    want = rendered(source)
    assert want.endswith("<user>?<|end|>\n<assistant>")
    proof = export(source, tmp_path / "a.gguf", format="gguf")
    assert proof.metadata == "chat template; unk, pad"
    assert proof.left_out == ()
    assert LlamaCpp(tmp_path / "a.gguf").chat(TALK) == want
    said = keys_of(tmp_path / "a.gguf")
    assert said["tokenizer.chat_template"] == CHAT
    back = export(tmp_path / "a.gguf", tmp_path / "back", format="hf")
    assert rendered(tmp_path / "back") == want
    assert back.metadata == "chat template; unk, pad; name"
    one, two = (transformers.PreTrainedTokenizerFast.from_pretrained(path) for path in (source, tmp_path / "back"))
    assert (two.unk_token, two.pad_token) == (one.unk_token, one.pad_token) == ("<unused0>", "<unused1>")
    assert said["tokenizer.ggml.unknown_token_id"] == one.unk_token_id
    assert said["tokenizer.ggml.padding_token_id"] == one.pad_token_id
    text = "the thin <unused0> man <unused1> on"
    assert one(text)["input_ids"] == two(text)["input_ids"]


@pytest.mark.parametrize("form", ["files", "list", "object", "processor"])
def test_every_place_of_templates(source: Path, tmp_path: Path, form: str) -> None:
    several = {"default": CHAT, "tool_use": TOOLS}
    write(source / "tokenizer_config.json", WORDS)
    if form == "files":
        write(source / "chat_template.jinja", CHAT)
        write(source / "additional_chat_templates" / "tool_use.jinja", TOOLS)
    elif form == "processor":
        write(source / "chat_template.json", {"chat_template": CHAT})
    else:
        listed = [{"name": name, "template": text} for name, text in several.items()]
        write(source / "tokenizer_config.json", {**WORDS, "chat_template": listed if form == "list" else several})
    export(source, tmp_path / "a.gguf", format="gguf")
    said = keys_of(tmp_path / "a.gguf")
    assert said["tokenizer.chat_template"] == CHAT
    export(tmp_path / "a.gguf", tmp_path / "back", format="hf")
    if form != "processor":  # which transformers' tokenizers do not read
        assert rendered(tmp_path / "back") == rendered(source)
        assert said["tokenizer.chat_template.tool_use"] == TOOLS
        assert said["tokenizer.chat_templates"] == ["tool_use"]
        assert rendered(tmp_path / "back", chat_template="tool_use") == "[the man][on][?]"
    export(source, tmp_path / "copy", format="hf")
    for name in ("chat_template.jinja", "additional_chat_templates/tool_use.jinja", "chat_template.json"):
        assert (tmp_path / "copy" / name).exists() == (source / name).exists()


def test_the_template_that_transformers_takes(source: Path, tmp_path: Path) -> None:
    write(source / "chat_template.jinja", TOOLS)
    assert rendered(source) == "[the man][on][?]"
    proof = export(source, tmp_path / "a.gguf", format="gguf")
    assert LlamaCpp(tmp_path / "a.gguf").chat(TALK) == "[the man][on][?]"
    assert proof.left_out == ("tokenizer_config.json chat_template (another one takes precedence)",)


def test_facts_and_defaults(source: Path, tmp_path: Path) -> None:
    write(source / "README.md", CARD)
    generation = {"do_sample": True, "temperature": 0.6, "top_k": 40, "top_p": 0.9, "repetition_penalty": 1.1}
    write(source / "generation_config.json", {"eos_token_id": 301, **generation})
    proof = export(source, tmp_path / "a.gguf", format="gguf")
    said = keys_of(tmp_path / "a.gguf")
    assert (said["general.license"], said["general.license.name"]) == ("other", "mine")
    assert (said["general.languages"], said["general.tags"]) == (["en", "no"], ["chat"])
    assert said["general.base_model.0.repo_url"] == "https://huggingface.co/someone/base-1B"
    assert said["general.dataset.1.repo_url"] == "https://data.example/x"
    assert said["general.sampling.top_k"] == 40
    assert said["general.sampling.temp"] == pytest.approx(0.6)
    assert proof.left_out == (
        "generation_config.json repetition_penalty",
        "README.md pipeline_tag",
        "the text of README.md",
    )
    assert "left out   generation_config.json repetition_penalty, README.md" in str(proof)
    export(tmp_path / "a.gguf", tmp_path / "back", format="hf")
    front = yaml.safe_load((tmp_path / "back" / "README.md").read_text().split("---")[1])
    assert front == {
        "model_name": "source",
        "license": "other",
        "license_name": "mine",
        "language": ["en", "no"],
        "tags": ["chat"],
        "base_model": ["someone/base-1B"],
        "datasets": ["someone/text", "https://data.example/x"],
    }
    defaults = transformers.GenerationConfig.from_pretrained(tmp_path / "back")
    assert (defaults.do_sample, defaults.temperature, defaults.top_k, defaults.top_p) == (True, 0.6, 40, 0.9)


def rewritten(path: Path, out: Path, **more: Any) -> None:
    """A GGUF file with other keys, by llama.cpp's own package."""
    reader, kinds = gguf.GGUFReader(path), gguf.GGUFValueType
    writer = gguf.GGUFWriter(out, "llama")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", *more):
            inner = field.types[1] if field.types[0] == kinds.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    for name, (value, *kind) in more.items():
        writer.add_key_value(name, value, *kind)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


TEXT, WHOLE = gguf.GGUFValueType.STRING, gguf.GGUFValueType.UINT32
MORE: dict[str, tuple[Any, ...]] = {
    "general.url": ("https://example.org", TEXT),
    "general.base_model.0.name": ("Nobody", TEXT),
    "tokenizer.ggml.fim_pre_token_id": (7, WHOLE),
    "tokenizer.ggml.padding_token_id": (0, WHOLE),
    "quantize.imatrix.file": ("x.dat", TEXT),
    "tokenizer.chat_template./../../x": ("evil", TEXT),
}


def test_what_a_directory_cannot_hold_is_named(source: Path, tmp_path: Path) -> None:
    export(source, tmp_path / "a.gguf", format="gguf")
    rewritten(tmp_path / "a.gguf", tmp_path / "b.gguf", **MORE)
    proof = export(tmp_path / "b.gguf", tmp_path / "back", format="hf")
    assert set(proof.left_out) == {
        *(name for name in MORE if name != "tokenizer.ggml.padding_token_id"),
        "tokenizer.ggml.padding_token_id as a special token (0 is an ordinary token)",
    }
    # Token 0 is "!": made special it would be taken out of every text.
    fast = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "back")
    assert fast.pad_token is None
    assert fast("on!")["input_ids"] == transformers.PreTrainedTokenizerFast.from_pretrained(source)("on!")["input_ids"]
    assert json.loads((tmp_path / "back" / "config.json").read_text())["pad_token_id"] == 0


def test_one_gguf_file_into_another(source: Path, tmp_path: Path) -> None:
    export(source, tmp_path / "a.gguf", format="gguf")
    more = MORE | {
        "general.author": ("A. Nonym", TEXT),
        "general.sampling.penalty_last_n": (-1, gguf.GGUFValueType.INT32),
    }
    rewritten(tmp_path / "a.gguf", tmp_path / "b.gguf", **more)
    proof = export(tmp_path / "b.gguf", tmp_path / "c.gguf", format="gguf", dtype="float16")
    assert proof.left_out == ("quantize.imatrix.file",)
    before, after = keys_of(tmp_path / "b.gguf"), keys_of(tmp_path / "c.gguf")
    changed = {name for name in before if not name.startswith("GGUF.") and before[name] != after.get(name)}
    assert changed == {"general.file_type", "quantize.imatrix.file"}


def test_what_gguf_cannot_hold_is_named(source: Path, tmp_path: Path) -> None:
    write(source / "LICENSE", "All of it.")
    write(source / "modeling_mine.py", "raise SystemExit(9)")
    write(source / "onnx" / "model.onnx", "x")
    write(
        source / "tokenizer_config.json", {**WORDS, "padding_side": "left", "cls_token": "<unused2>", "sep_token": "no"}
    )
    gone = ("sep_token no (no token of the vocabulary)", "cls_token 265", "tokenizer_config.json padding_side")
    proof = export(source, tmp_path / "a.gguf", format="gguf")
    assert {*proof.left_out} == {*gone, "LICENSE", "modeling_mine.py", "onnx/"}
    copy = export(source, tmp_path / "copy", format="hf")
    assert copy.left_out == ("modeling_mine.py", "onnx/")
    assert (tmp_path / "copy" / "LICENSE").read_text() == "All of it."


@pytest.mark.parametrize("name", ["chat_template.jinja", "additional_chat_templates/x.jinja", "README.md", "LICENSE"])
def test_no_file_of_elsewhere_is_carried(source: Path, tmp_path: Path, name: str) -> None:
    write(tmp_path / "secret", "mine")
    (source / name).parent.mkdir(exist_ok=True)
    (source / name).symlink_to(tmp_path / "secret")
    for to, out in (("hf", "out"), *((("gguf", "out.gguf"),) if name != "LICENSE" else ())):
        with pytest.raises(BadInput, match="is not a regular file inside the directory"):
            export(source, tmp_path / out, format=to)  # pyrefly: ignore


def test_a_template_that_came_out_otherwise_is_found(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = About.to_gguf
    monkeypatch.setattr(About, "to_gguf", lambda self: {**whole(self), "tokenizer.chat_template": "other"})
    with pytest.raises(NotProven, match="the written template default is not the source's"):
        export(source, tmp_path / "a.gguf", format="gguf")
    assert not (tmp_path / "a.gguf").exists()


@pytest.mark.parametrize(
    "front",
    [
        *(
            "license: &a [*a]",
            "a: &a [x]\nlicense: *a",
            "license: [1, {x: y}]",
            "license: {a: b}",
            "license:\n- x\n- y",
        ),
        *("license: " + "[" * 50_000, "license: '" + "x" * 70_000, "license: \0", "[" * 50_000, "just words"),
    ],
)
def test_a_hostile_card_is_passed_over_by_name(tmp_path: Path, front: str) -> None:
    write(tmp_path / "README.md", f"---\n{front}\n---\nbody")
    began = time.process_time()
    facts, unsaid = about_hf._facts(tmp_path)
    assert time.process_time() - began < 2
    assert facts == {}
    assert "the text of README.md" in unsaid
    assert any("license" in one for one in unsaid) == ("license" in front)


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(TEXTS), st.text(min_size=1, max_size=60), min_size=1))
def test_any_text_survives_the_card(tmp_path_factory: pytest.TempPathFactory, facts: dict[str, str]) -> None:
    directory = tmp_path_factory.mktemp("card")
    (directory / "README.md").write_text(about_hf.card(About(facts=facts)) or "", encoding="utf-8")
    assert about_hf._facts(directory)[0] == facts


def test_wrong_types_are_refused(source: Path, tmp_path: Path) -> None:
    export(source, tmp_path / "a.gguf", format="gguf")
    for name, value in (("tokenizer.chat_template", 3), ("tokenizer.ggml.unknown_token_id", 999)):
        rewritten(tmp_path / "a.gguf", tmp_path / "b.gguf", **{name: (value, WHOLE)})
        with pytest.raises(BadInput, match=name):
            from_gguf(GGUF(tmp_path / "b.gguf"))
    write(source / "tokenizer_config.json", {**WORDS, "chat_template": [CHAT]})
    with pytest.raises(BadInput, match="neither a text nor texts with names"):
        export(source, tmp_path / "c.gguf", format="gguf")
