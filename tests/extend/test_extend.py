"""A scaling written into a checkpoint: read by other libraries, weights untouched, and a proof that can fail."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from ropewalk.checkpoints.export.convert import export
from ropewalk.checkpoints.export.gguf_keys import rewrite
from ropewalk.checkpoints.files.gguf import GGUF
from ropewalk.checkpoints.inspect.lengths import reach
from ropewalk.checkpoints.resolve.read import read
from ropewalk.evaluate.checkpoint import digest
from ropewalk.extend import greedy, machine
from ropewalk.extend.asking import Elsewhere
from ropewalk.extend.choose import choose, rotation
from ropewalk.extend.prove import Proof, prove
from ropewalk.extend.sets import Sets
from ropewalk.extend.write import Written, free, served, with_gguf, write
from ropewalk.scaling import NTK, Dynamic, Linear, Llama3, LongRoPE, Scaling, YaRN
from ropewalk.trials.jobs import Workers
from tests.checkpoints.small_models import make_gguf

TO = 512
SCALINGS = [YaRN(factor=2, trained=256), Linear(factor=2), NTK(factor=2), Llama3(factor=2, trained=256)]
TEXT = "Positions are integers, and bugs of positions grow with distance. " * 3


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_gguf("llama", tmp_path_factory.mktemp("models")).parent


def by_hand(scaling: Scaling) -> dict[str, Any]:
    """transformers' own keys, as its documentation names them."""
    match scaling:
        case YaRN():
            return {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 256, "rope_theta": 1e4}
        case Linear():
            return {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
        case NTK():
            return {"rope_type": "default", "rope_theta": 1e4 * 2 ** (16 / 14)}
    more = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 256}
    return {"rope_type": "llama3", "factor": 2.0, "rope_theta": 1e4, **more}


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: scaling.kind)
def test_a_directory_is_what_its_keys_by_hand_would_be(models: Path, tmp_path: Path, scaling: Scaling) -> None:
    done = write(models / "source", tmp_path / "out", scaling, TO)
    assert done.engines == dict.fromkeys(["transformers 5", "transformers 4", "vLLM", "SGLang"])
    assert list(done.commands(TO)) == ["vLLM", "SGLang", "llama.cpp"]
    want = transformers.LlamaForCausalLM.from_pretrained(models / "source")
    want.config.rope_parameters = by_hand(scaling)
    want.config.max_position_embeddings = TO
    want.model.rotary_emb = type(want.model.rotary_emb)(want.config)
    got = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "out")
    assert got.config.max_position_embeddings == TO
    tokens = torch.randint(0, 320, (1, 500), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(got.eval()(tokens).logits, want.eval()(tokens).logits, atol=2e-4, rtol=0)
    names = {path.name for path in (models / "source").iterdir()}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    for name in names - {"config.json"}:
        assert (tmp_path / "out" / name).read_bytes() == (models / "source" / name).read_bytes()


def test_an_engine_with_another_gain_has_no_command(models: Path, tmp_path: Path) -> None:
    """SGLang's YaRN reads no attention_factor: its gain is the formula's."""
    scaling = YaRN(factor=2, trained=256, attention_factor=1.0)
    done = write(models / "source", tmp_path / "out", scaling, TO)
    why = f"it multiplies cos and sin by {YaRN(factor=2, trained=256).rotary_gain:.4f} instead of 1.0000"
    assert {name: said for name, said in done.engines.items() if said is not None} == {"SGLang": why}
    assert done.commands(TO).keys() == {"vLLM", "llama.cpp"}


def test_a_list_of_divisors_has_its_gain_in_every_engines_keys(models: Path, tmp_path: Path) -> None:
    """transformers reads attention_factor; vLLM and SGLang pass short_mscale and long_mscale to their LongRoPE."""
    done = write(models / "source", tmp_path / "out", LISTED, TO)
    assert not any(done.engines.values())
    block = json.loads((tmp_path / "out" / "config.json").read_text())["rope_scaling"]
    assert [block[key] for key in ("attention_factor", "short_mscale", "long_mscale")] == [LISTED.rotary_gain] * 3
    again = read(tmp_path / "out")
    assert {layer.rotary_gain for layer in again.plan.layers} == {LISTED.rotary_gain}
    block["long_mscale"] = 1.25
    changed = json.loads((tmp_path / "out" / "config.json").read_text()) | {"rope_scaling": block}
    (tmp_path / "out" / "config.json").write_text(json.dumps(changed))
    assert any("long_mscale is 1.25: vLLM and SGLang multiply by it" in note for note in read(tmp_path / "out").notes)


def test_a_file_that_could_not_be_written_has_no_command(tmp_path: Path) -> None:
    engines: dict[str, str | None] = {"vLLM": None, "llama.cpp": "no GGUF file is written: merges"}
    done = Written(path=tmp_path / "out", engines=engines, left_out=())
    assert done.commands(TO).keys() == {"vLLM", "SGLang"}


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: scaling.kind)
def test_a_gguf_file_keeps_every_other_byte(models: Path, tmp_path: Path, scaling: Scaling) -> None:
    gguf = pytest.importorskip("gguf")
    assert write(models / "model.gguf", tmp_path / "out.gguf", scaling, TO).engines == {"llama.cpp": None}
    before, after = (gguf.GGUFReader(path) for path in (models / "model.gguf", tmp_path / "out.gguf"))
    held = {tensor.name: tensor for tensor in after.tensors}
    for tensor in before.tensors:
        assert np.array_equal(np.array(held[tensor.name].data), np.array(tensor.data))
    assert held.keys() - {tensor.name for tensor in before.tensors} == (
        {"rope_freqs.weight"} if isinstance(scaling, Llama3) else set()
    )
    changed = {
        name for name in {**before.fields, **after.fields} if contents(before, name) != contents(after, name)
    } - {"GGUF.kv_count", "GGUF.tensor_count"}
    assert all(name == "llama.context_length" or name.startswith("llama.rope.") for name in changed), changed
    assert after.fields["llama.context_length"].contents() == TO


def contents(reader: Any, name: str) -> Any:
    return reader.fields[name].contents() if name in reader.fields else None


@pytest.mark.parametrize("form", ["source", "model.gguf"])
def test_the_proof_holds_and_fails_on_another_factor(models: Path, tmp_path: Path, form: str) -> None:
    scaling, out = YaRN(factor=2, trained=256), tmp_path / f"out-{form}"
    write(models / form, out, scaling, TO)
    found = {one.engine: one for one in prove(models / form, out, scaling, TO, TEXT)}
    assert not any(one.failed for one in found.values())
    ran = {name for name, one in found.items() if one.not_run is None}
    cached = {"transformers, cached"} if form == "source" else set()
    assert ran == ({"ropewalk", "transformers"} if form == "source" else {"ropewalk", "llama.cpp"}) | cached
    other = {one.engine: one for one in prove(models / form, out, YaRN(factor=4, trained=256), TO, TEXT)}
    assert {name for name, one in other.items() if one.failed} == ran - cached


@pytest.mark.parametrize(
    ("mean", "most", "said"),
    [
        (5e-5, 4e-3, "within 0.0001 of the source"),
        (5e-5, 6e-3, "one token more than 0.005 from the source"),
        (2e-4, 4e-3, "more than 0.0001 from the source"),
        (math.nan, math.nan, "more than 0.0001 from the source"),
    ],
)
def test_a_proof_says_which_bound_was_left(mean: float, most: float, said: str) -> None:
    one = Proof(engine="transformers", against="the source", mean=mean, most=most, bound=1e-4)
    assert one.words == said
    assert one.failed == (not said.startswith("within"))


@pytest.mark.parametrize(
    ("moved", "tells"), [((2e-4, 1e-3), True), ((1e-5, 6e-3), True), ((9e-5, 4e-3), False), (None, True)]
)
def test_a_proof_says_where_a_text_cannot_tell(moved: tuple[float, float] | None, tells: bool) -> None:
    """moved: what the scaling changes there: an engine that reads no scaling is off by as much."""
    one = Proof(engine="transformers", against="the source", bound=1e-4, moved=moved)
    assert one.tells is tells
    assert ("cannot tell" in one.words) is not tells


def test_a_proof_has_a_control(models: Path, tmp_path: Path) -> None:
    scaling = YaRN(factor=2, trained=256)
    done = write(models / "source", tmp_path / "out", scaling, TO)
    first = next(one for one in prove(models / "source", done.path, scaling, TO, TEXT) if one.engine == "ropewalk")
    config = json.loads((done.path / "config.json").read_text())
    (done.path / "config.json").write_text(json.dumps({**config, "rope_scaling": None, "rope_parameters": None}))
    without = next(one for one in prove(models / "source", done.path, scaling, TO, TEXT) if one.engine == "ropewalk")
    assert first.moved == pytest.approx((without.mean, without.most), rel=1e-3)
    assert without.failed
    assert first.tells


def test_other_forms_of_the_model_are_left_out(models: Path, tmp_path: Path) -> None:
    """Each would keep the old positions; vLLM takes Mistral's own before config.json."""
    source = shutil.copytree(models / "source", tmp_path / "source")
    forms = ["consolidated.safetensors", "model.onnx", "old.gguf", "params.json"]
    for name in forms:
        (source / name).write_bytes((source / "model.safetensors").read_bytes())
    (source / "loop").symlink_to("loop")
    (source / "within").mkdir()
    (source / "within" / "notes.txt").write_text("notes")
    (source / "linked").symlink_to("within")
    done = write(source, tmp_path / "out", YaRN(factor=2, trained=256), TO)
    assert done.left_out == tuple(sorted([*forms, "linked", "loop"]))
    assert (tmp_path / "out" / "within" / "notes.txt").read_text() == "notes"
    # Shards may have any name.
    (source / "model.safetensors").rename(source / "consolidated.safetensors")
    names = load_file(source / "consolidated.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, "consolidated.safetensors")}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    done = write(source, tmp_path / "sharded", YaRN(factor=2, trained=256), TO)
    assert "consolidated.safetensors" not in done.left_out
    assert (tmp_path / "sharded" / "consolidated.safetensors").exists()


def test_what_a_gguf_file_cannot_hold_is_refused(models: Path, tmp_path: Path) -> None:
    file = next(models.glob("*.gguf"))
    with pytest.raises(ValueError, match=r"5,000,000,000 is longer than the 4,294,967,295 tokens"):
        write(file, tmp_path / "long.gguf", Linear(factor=4), 5_000_000_000)
    rewrite(file, tmp_path / "part.gguf", keys={"split.count": 2}, dropped=lambda key: False, tensors={})
    with pytest.raises(ValueError, match="split"):
        write(tmp_path / "part.gguf", tmp_path / "out.gguf", YaRN(factor=2, trained=256), TO)


def test_a_directory_and_a_file_at_once(models: Path, tmp_path: Path) -> None:
    """llama.cpp computes from the file, past the old length, what we compute from the source under the scaling."""
    scaling = YaRN(factor=2, trained=256)
    done = with_gguf(write(models / "source", tmp_path / "out", scaling, TO), tmp_path / "out.gguf")
    assert done.gguf is not None
    assert done.engines["llama.cpp"] is None
    assert done.commands(TO)["llama.cpp"] == f"llama-server -m {done.gguf} -c {TO}"
    found = {one.engine: one for one in prove(models / "source", done.path, scaling, TO, TEXT, gguf=done.gguf)}
    assert list(found) == ["ropewalk", "transformers", "transformers, cached", "vLLM", "llama.cpp"]
    assert found["llama.cpp"].not_run is None
    assert found["llama.cpp"].against == "ropewalk on the source"
    assert not any(one.failed for one in found.values())
    plain = with_gguf(write(models / "source", tmp_path / "plain", Linear(factor=2), TO), tmp_path / "plain.gguf")
    other = {one.engine: one for one in prove(models / "source", done.path, scaling, TO, TEXT, gguf=plain.gguf)}
    assert other["llama.cpp"].failed
    with pytest.raises(ValueError, match="leave out --gguf"):
        free(done.gguf, tmp_path / "x.gguf", tmp_path / "y.gguf")


def test_what_cannot_be_written_is_said(models: Path, tmp_path: Path) -> None:
    yarn = YaRN(factor=2, trained=256)
    for source, scaling, to, says in (
        ("source", yarn, 255, "shorter than the 256 tokens"),
        ("model.gguf", Dynamic(factor=2, trained=256), TO, "dynamic"),
    ):
        with pytest.raises(ValueError, match=says):
            write(models / source, tmp_path / f"x{Path(source).suffix}", scaling, to)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="already exists"):
        write(models / "source", tmp_path, yarn, TO)
    with pytest.raises(ValueError, match=r"for a GGUF file as well, add --gguf .*x\.gguf"):
        write(models / "source", tmp_path / "x.gguf", yarn, TO)


@pytest.mark.parametrize("name", ["llama llama3", "llama longrope"])
@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: scaling.kind)
def test_a_file_with_divisors_is_not_extended(tmp_path: Path, name: str, scaling: Scaling) -> None:
    """They stay in the file: llama.cpp would apply both, or not load it."""
    source = make_gguf(name, tmp_path)
    assert "extend the checkpoint that it was made from" in (served(source, TO)(scaling)["llama.cpp"] or "")
    with pytest.raises(ValueError, match=f"the divisors of {name.split()[1]} as a tensor"):
        write(source, tmp_path / "out.gguf", scaling, TO)
    assert not (tmp_path / "out.gguf").exists()


def test_a_tournament_in_which_nothing_could_win_is_refused(tmp_path: Path) -> None:
    source = make_gguf("llama llama3", tmp_path)
    with pytest.raises(
        ValueError, match=r"none of the \d+ scalings could be written .* extend the checkpoint that"
    ) as said:
        choose(source, 1024, [], tmp_path / "work")
    assert str(said.value).count("as a tensor") == 1
    assert not (tmp_path / "work").exists()


def test_proportional_rope_is_refused_as_inspect_says(tmp_path: Path) -> None:
    parameters = {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    config = {
        "model_type": "gemma4_text", "num_hidden_layers": 6, "num_attention_heads": 8, "hidden_size": 512,
        "head_dim": 64, "max_position_embeddings": 1024, "rope_parameters": parameters,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    said = "proportional RoPE, which no scaling here extends"
    assert any(said in words for words in reach(read(tmp_path), 4096).words)
    with pytest.raises(ValueError, match=said):
        rotation(tmp_path, 4096)


def test_a_model_that_changed_since_this_process_opened_it_is_opened_again(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[str] = []

    def instead(asking: Any, *given: Any, **more: Any) -> Any:
        held.append(asking.stored.model)
        raise KeyboardInterrupt

    monkeypatch.setattr("ropewalk.extend.choose.run", instead)
    monkeypatch.setattr("ropewalk.extend.choose.draw", lambda *given, **more: Sets([], [], [], "none"))
    source = shutil.copytree(models / "source", tmp_path / "source")
    for scale in (1.0, 0.5):
        weights = load_file(source / "model.safetensors")
        save_file({name: scale * value for name, value in weights.items()}, source / "model.safetensors")
        with pytest.raises(KeyboardInterrupt):
            choose(source, TO, [], tmp_path / "work", tail=32)
    assert held[0] != held[1]
    assert held[1] == digest(source)


def test_measurements_of_two_machines_are_not_mixed_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    first = machine.kept(tmp_path, said.append)
    assert machine.kept(tmp_path, said.append) == first
    assert not said
    other = {**machine.here(), "bfloat16": "amx_bf16" if first[0]["bfloat16"] != "amx_bf16" else "no instructions"}
    monkeypatch.setattr(machine, "here", lambda: other)
    assert machine.kept(tmp_path, said.append) == [*first, other]
    assert len(said) == 1
    assert f"computed with bfloat16 {first[0]['bfloat16']}, and here it is bfloat16 {other['bfloat16']}" in said[0]
    monkeypatch.undo()
    assert machine.kept(tmp_path, said.append) == [*first, other]


def test_workers_alone_hold_the_model(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[object] = []

    def instead(asking: Any, *given: Any, **more: Any) -> Any:
        held.append(asking.stored.engine)
        raise KeyboardInterrupt

    monkeypatch.setattr("ropewalk.extend.choose.run", instead)
    monkeypatch.setattr("ropewalk.extend.choose.draw", lambda *given, **more: Sets([], [], [], "none"))
    for workers in (Workers(), Workers(2)):
        with pytest.raises(KeyboardInterrupt):
            choose(models / "source", TO, [], tmp_path / "work", tail=32, workers=workers)
    alone, several = held
    assert isinstance(several, Elsewhere)
    assert not isinstance(alone, Elsewhere)
    assert several.name == getattr(alone, "name", None)
    assert several.model == getattr(alone, "model", None)


def test_the_older_name_of_the_factor_goes_too(models: Path, tmp_path: Path) -> None:
    """llama.cpp reads it where the new keys have no factor, as those of llama3 and NTK."""
    rewrite(
        models / "model.gguf",
        tmp_path / "old.gguf",
        keys={"llama.rope.scale_linear": 4.0},
        dropped=lambda key: False,
        tensors={},
    )
    for scaling in SCALINGS:
        out = tmp_path / f"{scaling.kind}.gguf"
        assert write(tmp_path / "old.gguf", out, scaling, TO).engines == {"llama.cpp": None}
        assert "llama.rope.scale_linear" not in GGUF(out).small


def test_pickles_and_code_are_named_and_not_copied(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "source", tmp_path / "source")
    (tmp_path / "source" / "modeling.py").write_text("raise SystemExit")
    (tmp_path / "source" / "old.bin").write_bytes(b"x")
    (tmp_path / "source" / "CODE.PY").write_text("raise SystemExit")
    (tmp_path / "source" / "vectors").write_bytes(b"\x80\x04\x95")
    (tmp_path / "source" / "tool").write_bytes(b"\x7fELF\x02")
    (tmp_path / "source" / "notes.txt").write_text("I am text.\n")
    done = write(tmp_path / "source", tmp_path / "out", YaRN(factor=2, trained=256), TO)
    assert done.left_out == ("CODE.PY", "modeling.py", "old.bin", "tool", "vectors")
    assert not {path.name for path in (tmp_path / "out").iterdir()} & {*done.left_out}
    assert (tmp_path / "out" / "notes.txt").exists()


def test_links_to_elsewhere_are_named_and_not_copied(models: Path, tmp_path: Path) -> None:
    """They would carry any file of this machine into what is given away; those into the hub's cache are the model."""
    blobs, home = tmp_path / "hub" / "blobs", tmp_path / "hub" / "snapshots" / "a"
    blobs.mkdir(parents=True)
    home.mkdir(parents=True)
    for file in (models / "source").iterdir():
        shutil.copy(file, blobs / file.name)
        (home / file.name).symlink_to(blobs / file.name)
    (tmp_path / "secret").write_text("key")
    (home / "sub").mkdir()
    (home / "notes.txt").symlink_to(tmp_path / "secret")
    (home / "sub" / "x.dat").symlink_to(tmp_path / "secret")
    (home / "endless").symlink_to("/dev/zero")
    done = write(home, tmp_path / "out", YaRN(factor=2, trained=256), TO)
    assert done.left_out == ("endless", "notes.txt", "sub/x.dat")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in (models / "source").iterdir()}


def test_a_directory_of_pickles_is_refused_before_anything_is_measured(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "source", tmp_path / "source")
    (tmp_path / "source" / "model.safetensors").rename(tmp_path / "source" / "pytorch_model.bin")
    for call in (
        lambda: free(tmp_path / "source", tmp_path / "out", None),
        lambda: write(tmp_path / "source", tmp_path / "out", SCALINGS[0], TO),
    ):
        with pytest.raises(ValueError, match="safetensors"):
            call()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("scaling", [Linear(factor=2), Llama3(factor=2, trained=256)], ids=lambda one: one.kind)
def test_llama_cpp_is_asked_about_a_file_that_is_not_float32_also_without_flags(
    models: Path, tmp_path: Path, scaling: Scaling
) -> None:
    source, out = tmp_path / "half.gguf", tmp_path / "out.gguf"
    export(models / "source", source, format="gguf", dtype="float16")
    write(source, out, scaling, TO)
    found = next(one for one in prove(source, out, scaling, TO, TEXT) if one.engine == "llama.cpp")
    assert (found.not_run, found.failed, found.against) == (None, False, "ropewalk on the source, quantised")
    other = scaling.model_copy(update={"factor": 8.0})
    wrong = next(one for one in prove(source, out, other, TO, TEXT) if one.engine == "llama.cpp")
    assert wrong.failed


LISTED = LongRoPE(short=(1.0,) * 7 + (3.0,), long=(1.0,) * 7 + (3.0,), trained=256, factor=2, attention_factor=1.1)


@pytest.mark.parametrize("scaling", [LISTED, *SCALINGS], ids=lambda scaling: scaling.kind)
def test_a_file_that_has_the_scaling_already_gets_the_length(models: Path, tmp_path: Path, scaling: Scaling) -> None:
    """As a tuned model does: its divisors are in the file, and are those that are wanted."""
    first, again = tmp_path / "first.gguf", tmp_path / "again.gguf"
    write(models / "model.gguf", first, scaling, TO - 128)
    applied = NTK(factor=1.0) if isinstance(scaling, NTK) else scaling
    assert write(first, again, applied, TO).engines == {"llama.cpp": None}
    whole, part = GGUF(again), GGUF(first)
    assert whole.small["llama.context_length"] == TO
    assert {*whole.tensors} == {*part.tensors}
    found = {one.engine: one for one in prove(first, again, applied, TO, TEXT)}
    assert not any(one.failed or one.not_run for one in found.values())


def test_no_command_is_given_for_a_file_that_cannot_be_made(models: Path, tmp_path: Path) -> None:
    """GGUF has no key for YaRN without rounded ends."""
    done = write(models / "source", tmp_path / "out", YaRN(factor=2, trained=256, truncate=False), TO)
    assert done.engines["llama.cpp"]
    assert "llama.cpp" not in done.commands(TO)


def test_tokens_chosen_with_a_cache_are_those_without(models: Path, tmp_path: Path) -> None:
    write(models / "source", tmp_path / "out", SCALINGS[0], TO)
    model = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "out").eval()
    prompt = np.random.default_rng(1).integers(0, 256, 256 - greedy.BEFORE)
    chosen = prompt.tolist()
    with torch.no_grad():
        for _ in range(greedy.TOKENS):
            chosen.append(int(model(torch.tensor([chosen]), use_cache=False).logits[0, -1].argmax()))
    assert greedy._chosen(model, prompt).tolist() == chosen[-greedy.TOKENS :]
    assert greedy.shortfalls(model, prompt, 256, SCALINGS[0]).tolist() == [0.0] * greedy.TOKENS


@pytest.mark.parametrize("kind", ["longrope", "dynamic"])
def test_a_model_whose_frequencies_change_on_the_way_chooses_otherwise(models: Path, kind: str) -> None:
    """Keys that the short list rotated stay in the cache when the long list begins."""
    rope: dict[str, Any] = {"rope_type": kind, "rope_theta": 1e4, "factor": 32.0}
    scaling: Scaling = Dynamic(factor=32, trained=256)
    if kind == "longrope":
        lists = {"short_factor": [1.0] * 8, "long_factor": [3.0] * 8}
        rope |= lists | {"original_max_position_embeddings": 256}
        scaling = LongRoPE(short=(1.0,) * 8, long=(3.0,) * 8, trained=256, factor=32)
    config = transformers.LlamaConfig.from_pretrained(models / "source")
    config.rope_parameters = rope
    config.max_position_embeddings = 256 if kind == "dynamic" else TO
    model = transformers.LlamaForCausalLM.from_pretrained(models / "source", config=config).eval()
    prompt = np.random.default_rng(1).integers(0, 256, 256 - greedy.BEFORE)
    short = greedy.shortfalls(model, prompt, 256, scaling)
    assert len(short) == greedy.TOKENS
    # The pass that chooses token 256 has 256 tokens and is the last of the old frequencies.
    assert short[: greedy.BEFORE + 1].max() < 1e-4 < short[greedy.BEFORE + 1 :].max()
