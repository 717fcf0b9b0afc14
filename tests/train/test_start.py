"""Runs that start from a checkpoint: what is read of it, what may be changed, and the form the export has."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch.nn import functional as F

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.export.convert import export
from ropewalk.checkpoints.load.model import load
from ropewalk.checkpoints.load.native import Trained
from ropewalk.data.batch import IGNORE
from ropewalk.data.open import open_data
from ropewalk.data.prepare.sample import sample
from ropewalk.distributed import apply
from ropewalk.distributed.world import World
from ropewalk.models import Transformer
from ropewalk.overrides import BadConfig
from ropewalk.train.checkpoint.model_directory import write_model
from ropewalk.train.checkpoint.saved_model import export_run
from ropewalk.train.config import Recipe
from ropewalk.train.guard.drift import Drift
from ropewalk.train.metrics import read
from ropewalk.train.objective import Learner
from ropewalk.train.run import train
from ropewalk.train.start.kept import keep
from ropewalk.train.start.recipe import load_recipe
from ropewalk.train.start.source import fill, open_source
from tests.checkpoints.family_models import CASES, VOCABULARY, Case, made
from tests.cli.conftest import Ropewalk, ropewalk

__all__ = ["ropewalk"]

# One of each class of transformers; apart those whose files hold queries, keys and values in different ways.
WITH_OUTPUT = list({case.model: case for case in CASES if "without output" not in case.name}.values())
APART = [case for case in WITH_OUTPUT if case.model.startswith(("Llama", "Phi3", "GPT", "T5", "Marian"))]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample("text", tmp_path_factory.mktemp("data") / "text")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    """A table of more rows than the tokenizer has tokens, and special tokens that are not those of the data."""
    folder = tmp_path_factory.mktemp("llama") / "src"
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=528, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=2, eos_token_id=0, rope_theta=5e4,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():  # so large that a rotation by a wrong angle shows in the loss
        for weight in (weight for weight in model.parameters() if weight.ndim == 2):
            weight.normal_(std=0.25)
    model.save_pretrained(folder)
    shutil.copy(text / "tokenizer.json", folder)
    words = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<mask>", "eos_token": "<start>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**words, "chat_template": "{{ messages }}"}))
    return folder


def recipe(text: Path, start: Path | str, *changes: str, run: Path | None = None) -> Recipe:
    given = ["data.kind=text", f"data.path={text}", "data.length=32", "data.isolate=false", "train.steps=6"]
    given += ["train.batch=64", "train.save.every=2", "train.evaluate.every=6", "train.evaluate.tokens=64"]
    given += ["train.schedule.warmup=1"]
    return load_recipe(None, [*given, *changes], start=str(start), run=run)


def losses(out: Path) -> list[float]:
    return [record["loss"] for record in read(out / "metrics.jsonl")["train"]]


def samples(out: Path) -> list[dict[str, Any]]:
    return read(out / "metrics.jsonl")["sample"]


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "export" / "model.safetensors")


def first_loss(model: Any, plan: Recipe, rows: int = 2) -> float:
    """By transformers, of the first batch."""
    batch = open_data(plan.data, stack="decoder", seed=plan.train.seed).batch("train", 0, rows=rows)
    with torch.no_grad():
        logits = model(batch.tokens).logits
    return float(F.cross_entropy(logits.flatten(0, 1), batch.target.flatten(), ignore_index=IGNORE))


def agree(out: Path) -> Any:
    """transformers and ropewalk read the export as the same model."""
    theirs, loading = transformers.AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not any(loading[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokens = torch.randint(0, 500, (2, 60), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, load(out)(tokens), rtol=0, atol=2e-4)
    return theirs


def test_a_llama_stays_a_llama(tmp_path: Path, text: Path, llama: Path) -> None:
    plan = recipe(text, llama)
    train(plan, tmp_path / "run")
    source = transformers.AutoModelForCausalLM.from_pretrained(llama)
    assert losses(tmp_path / "run")[0] == pytest.approx(first_loss(source, plan), rel=1e-5)
    theirs = agree(tmp_path / "run" / "export")
    assert type(theirs).__name__ == "LlamaForCausalLM"
    assert not torch.equal(theirs.lm_head.weight, source.lm_head.weight)
    before, after = (json.loads((folder / "config.json").read_text()) for folder in (llama, tmp_path / "run/export"))
    for key in ("vocab_size", "bos_token_id", "eos_token_id", "max_position_embeddings", "architectures"):
        assert after[key] == before[key], key
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / "run" / "export" / name).read_bytes() == (llama / name).read_bytes()
    (event,) = read(tmp_path / "run" / "metrics.jsonl")["event"]
    record = json.loads((tmp_path / "run" / "start" / "start.json").read_text())
    assert (event["what"], event["path"]) == ("start", str(llama))
    assert event["fingerprint"] == record["fingerprint"] == open_source(llama).fingerprint()


def test_rows_without_a_token_stay_as_they_are_but_for_decay(tmp_path: Path, text: Path, llama: Path) -> None:
    """The table has 528 rows and the data 512 tokens: no text reads the rest."""
    train(recipe(text, llama, "train.optimizer.decay=0"), tmp_path / "run")
    name = "model.embed_tokens.weight"
    before, after = load_file(llama / "model.safetensors")[name], weights(tmp_path / "run")[name]
    assert after.shape == before.shape == (528, 32)
    assert torch.equal(after[512:], before[512:])
    assert not torch.equal(after[:512], before[:512])


def test_resumed_without_the_checkpoint_is_uninterrupted(tmp_path: Path, text: Path, llama: Path) -> None:
    copy = tmp_path / "src"
    shutil.copytree(llama, copy)
    train(recipe(text, copy), tmp_path / "whole")
    train(recipe(text, copy), tmp_path / "cut", until=3)
    shutil.rmtree(copy)
    again = recipe(text, copy, run=tmp_path / "cut")
    assert train(again, tmp_path / "cut", resume=True).finished
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert (tmp_path / "cut/export/config.json").read_text() == (tmp_path / "whole/export/config.json").read_text()
    with pytest.raises(BadInput, match="does not exist"):
        recipe(text, copy, run=tmp_path / "new")


def test_drift_of_the_checkpoint_is_found_by_its_content(tmp_path: Path, text: Path, llama: Path) -> None:
    train(recipe(text, llama), tmp_path / "run", until=2)
    moved, other = tmp_path / "moved", tmp_path / "other"
    shutil.copytree(llama, moved)
    shutil.copytree(llama, other)
    data = bytearray((other / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (other / "model.safetensors").write_bytes(data)
    with pytest.raises(Drift, match="start: was"):
        train(recipe(text, other, run=tmp_path / "run"), tmp_path / "run", resume=True)
    plain = Recipe.model_validate({**recipe(text, llama).model_dump(exclude={"train"}), "train": {"steps": 6}})
    with pytest.raises(Drift, match=r"start: was .*is 'absent'"):
        train(plain, tmp_path / "run", resume=True)
    changed = recipe(text, llama, "model.encoding.base=90000.0", run=tmp_path / "run")
    with pytest.raises(Drift, match=r"recipe.model.encoding.base: was 50000.0, is 90000.0"):
        train(changed, tmp_path / "run", resume=True)
    assert train(recipe(text, moved, run=tmp_path / "run"), tmp_path / "run", resume=True).finished


def test_another_length_and_scaling(tmp_path: Path, text: Path, llama: Path) -> None:
    scaling = "model.encoding.scaling={kind: yarn, factor: 4, trained: 64}"
    plan = recipe(text, llama, scaling, "data.length=128", "train.batch=128")
    assert plan.model.encoding.scaling.factor == 4
    assert plan.model.encoding.base == 5e4
    train(plan, tmp_path / "run")
    source = transformers.LlamaConfig.from_pretrained(llama)
    source.rope_parameters = {
        "rope_type": "yarn", "rope_theta": 5e4, "factor": 4.0, "original_max_position_embeddings": 64
    }  # fmt: skip
    model = transformers.LlamaForCausalLM.from_pretrained(llama, config=source)
    assert losses(tmp_path / "run")[0] == pytest.approx(first_loss(model, plan, 1), rel=1e-5)
    theirs = agree(tmp_path / "run" / "export")
    assert theirs.config.rope_parameters["rope_type"] == "yarn"
    assert theirs.config.max_position_embeddings == 128
    (event,) = read(tmp_path / "run" / "metrics.jsonl")["event"]
    assert any("model.encoding.scaling: None in the checkpoint" in note for note in event["notes"])


def test_what_contradicts_the_checkpoint_is_named_with_both_values(text: Path, llama: Path) -> None:
    with pytest.raises(BadConfig) as found:
        recipe(text, llama, "model.width=64", "model.encoding=alibi", "model.norm.eps=0.5", "model.heads=4")
    said = str(found.value)
    assert "3 problems" in said
    assert f"64 in the recipe, 32 in {llama}" in said
    assert "model.encoding.kind" in said
    assert "'alibi' in the recipe, 'rope'" in said
    assert "0.5 in the recipe, 1e-06" in said
    with pytest.raises(BadConfig, match=r"Did you mean model\.width"):
        recipe(text, llama, "model.widht=64")
    with pytest.raises(ValueError, match="say the same thing"):
        recipe(text, llama, "train.start=elsewhere")
    # In Python, where only what was given counts.
    plain = Recipe(data={"kind": "text", "path": str(text)}, train={"steps": 1, "start": str(llama)})
    assert plain.model.width != 32


def test_a_recipe_made_in_python_takes_the_model_of_the_checkpoint(
    tmp_path: Path, text: Path, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No weight is drawn that is read the next moment."""
    monkeypatch.setattr(apply, "initialise", lambda *_: pytest.fail("weights were drawn"))
    data = {"kind": "text", "path": str(text), "length": 32, "isolate": False}
    plan = Recipe(data=data, train={"steps": 1, "batch": 64, "start": str(llama)})
    train(plan, tmp_path / "run")
    model = transformers.AutoModelForCausalLM.from_pretrained(llama)
    assert losses(tmp_path / "run")[0] == pytest.approx(first_loss(model, plan), rel=1e-5)


def test_layers_with_encodings_of_their_own_do_not_hear_the_model_s(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "Gemma 3")
    made(case).save_pretrained(tmp_path / "src")
    with pytest.raises(BadConfig, match="no layer has this encoding, each kind has its own"):
        load_recipe(None, ["model.encoding.scaling={kind: linear, factor: 3}"], start=str(tmp_path / "src"))
    key = "model.layers.kinds.global.encoding.scaling.factor=3"
    plan = load_recipe(None, [key, "train.steps=1"], start=str(tmp_path / "src"))
    assert {layer.encoding.scaling.factor for layer in plan.model.layer_kinds() if layer.window is None} == {3}


def test_other_tokens_are_refused_with_the_command_that_helps(
    tmp_path: Path, text: Path, llama: Path, ropewalk: Ropewalk, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(llama, tmp_path / "src")
    words = json.loads((llama / "tokenizer.json").read_text())
    by_id = {number: token for token, number in words["model"]["vocab"].items()}
    for one, other in ((300, 301), (400, 401)):
        words["model"]["vocab"] |= {by_id[one]: other, by_id[other]: one}
    (tmp_path / "src" / "tokenizer.json").write_text(json.dumps(words))
    with pytest.raises(ValueError, match="token 300 is") as found:
        train(recipe(text, tmp_path / "src"), tmp_path / "run")
    assert f"token 300 is {by_id[300]!r} in the data and {by_id[301]!r} in" in str(found.value)
    command = shlex.split(str(found.value).rpartition("tokenizer: ")[2])
    assert command[:3] == ["ropewalk", "data", "prepare"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "english.txt").write_text("one two three\n\nfour five six\n\n" * 30)
    answer = ropewalk(*command[1:-1], "prepared", "--document", "blank", "--valid-fraction", "0", "--quiet")
    assert answer.code == 0, answer.stderr
    train(recipe(tmp_path / "prepared", tmp_path / "src"), tmp_path / "run")


def test_other_cuts_of_the_same_tokens_are_refused(tmp_path: Path, text: Path, llama: Path) -> None:
    shutil.copytree(llama, tmp_path / "src")
    words = json.loads((llama / "tokenizer.json").read_text())
    words["model"]["merges"] = words["model"]["merges"][::-1]
    (tmp_path / "src" / "tokenizer.json").write_text(json.dumps(words))
    with pytest.raises(ValueError, match=r"is tokenized as \[.*ropewalk data prepare"):
        train(recipe(text, tmp_path / "src"), tmp_path / "run")


def test_answers_begin_as_the_checkpoint_begins_them(
    tmp_path: Path, ropewalk: Ropewalk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A T5 is asked for what follows its decoder_start_token_id, which its tokenizer puts around no text."""
    pairs = sample("pairs", tmp_path / "pairs")
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=json.loads((pairs / "data.json").read_text())["vocabulary"], d_model=32, d_kv=8, d_ff=48,
        num_layers=1, num_heads=4, decoder_start_token_id=2, pad_token_id=2, eos_token_id=1, dropout_rate=0.0,
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config).eval()
    model.save_pretrained(tmp_path / "t5")
    shutil.copy(pairs / "tokenizer.json", tmp_path / "t5")
    (tmp_path / "t5" / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>", "pad_token": "<mask>"}))

    def plan(data: Path) -> Recipe:
        given = ["data.kind=pairs", f"data.path={data}", "data.length=64", "data.source_length=64", "train.steps=1"]
        return load_recipe(None, [*given, "train.batch=128"], start=str(tmp_path / "t5"))

    with pytest.raises(
        ValueError, match=r"begin with token 0 \(<start>\), those of .* with token 2 \(<mask>\)"
    ) as found:
        train(plan(pairs), tmp_path / "run")
    command = shlex.split(str(found.value).rpartition("anew: ")[2])
    assert command[command.index("--bos-token") + 1] == "<mask>"
    monkeypatch.chdir(tmp_path)
    (tmp_path / command[3]).write_text("".join(f"number {n}\tZahl {n}\n" for n in range(60)))
    without = [word for word in command[1:-2] if word not in ("--bos-token", "<mask>")]
    for words, out in ((command[1:-2], "asked"), (without, "read")):
        answer = ropewalk(*words, "--out", out, "--valid-fraction", "0", "--json")
        assert answer.code == 0, answer.stderr
        assert answer.data["special"]["start"] == 2
    train(plan(tmp_path / "read"), tmp_path / "run")
    batch = open_data(plan(tmp_path / "read").data, stack="encoder-decoder", seed=0).batch("train", 0, rows=2)
    nats, count = 0.0, 0
    for row, segment in [(n, m) for n in range(2) for m in range(int(batch.at.segment[n].max()) + 1)]:
        source = batch.source[row][batch.source_at.segment[row] == segment]
        answer = batch.target[row][batch.at.segment[row] == segment]
        with torch.no_grad():  # what comes first is transformers' own choice
            nats += float(model(input_ids=source[None], labels=answer[None]).loss) * len(answer)
        count += len(answer)
    assert losses(tmp_path / "run")[0] == pytest.approx(nats / count, rel=1e-5)


def test_texts_that_end_otherwise_are_told(tmp_path: Path, text: Path, llama: Path) -> None:
    train(recipe(text, llama, "train.steps=1"), tmp_path / "run")
    (event,) = read(tmp_path / "run" / "metrics.jsonl")["event"]
    (note,) = event["notes"]
    assert note.startswith(f"texts in the data end with token 1 (<end>), those of {llama} with token 0 (<start>)")


def test_a_gguf_file_becomes_transformers_llama(tmp_path: Path, text: Path, llama: Path, ropewalk: Ropewalk) -> None:
    file = tmp_path / "small.gguf"
    export(llama, file, format="gguf")
    source = tmp_path / "lines.txt"
    source.write_text("a line of text\nand another one\n" * 50, encoding="utf-8")
    out = tmp_path / "ready"
    answer = ropewalk("data", "prepare", str(source), "--tokenizer", str(file), "--out", str(out), "--quiet",
                      "--valid-fraction", "0")  # fmt: skip
    assert answer.code == 0, answer.stderr
    plan = recipe(out, file)
    assert plan.model.encoding.layout == "half"
    train(plan, tmp_path / "run")
    model = transformers.AutoModelForCausalLM.from_pretrained(llama)
    assert losses(tmp_path / "run")[0] == pytest.approx(first_loss(model, plan), rel=1e-5)
    assert type(agree(tmp_path / "run" / "export")).__name__ == "LlamaForCausalLM"
    export(tmp_path / "run" / "export", tmp_path / "back.gguf", format="gguf")


def test_a_model_of_our_own_starts_another(tmp_path: Path, text: Path) -> None:
    plan = Recipe.model_validate(
        {
            "model": {"width": 32, "heads": 4, "layers": 2, "hidden": 48, "encoding": "alibi"},
            "data": {"kind": "text", "path": str(text), "length": 32},
            "train": {"steps": 3, "batch": 64, "evaluate": {"tokens": 64}},
        }
    )
    train(plan, tmp_path / "first")
    # By the folder of the run, as other commands take it.
    train(recipe(text, tmp_path / "first", "data.length=16"), tmp_path / "second")
    config = json.loads((tmp_path / "second" / "export" / "config.json").read_text())
    assert config["model"]["encoding"]["kind"] == "alibi"
    assert config["trained_length"] == 32
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "second/export" / name).read_bytes() == (tmp_path / "first/export" / name).read_bytes()
    own = load(tmp_path / "first")
    batch = open_data(recipe(text, tmp_path / "first").data, stack="decoder", seed=0).batch("train", 0, rows=2)
    with torch.no_grad():
        want = F.cross_entropy(own(batch.tokens, batch.at).flatten(0, 1), batch.target.flatten(), ignore_index=IGNORE)
    train(recipe(text, tmp_path / "first"), tmp_path / "third")
    assert losses(tmp_path / "third")[0] == pytest.approx(float(want), rel=1e-5)


def test_the_longest_source_of_both_trainings_is_kept(tmp_path: Path) -> None:
    pairs = sample("pairs", tmp_path / "pairs")
    model = {"stack": "encoder-decoder", "width": 32, "heads": 4, "layers": 1, "hidden": 48, "encoding": "alibi"}
    for out, source, start in (("first", 48, {}), ("second", 40, {"start": str(tmp_path / "first")})):
        data = {"kind": "pairs", "path": str(pairs), "length": 32, "source_length": source}
        steps = {"steps": 1, "batch": 64, "evaluate": {"tokens": 64}, **start}
        train(
            Recipe.model_validate({"data": data, "train": steps, **({} if start else {"model": model})}), tmp_path / out
        )
        assert json.loads((tmp_path / out / "export" / "config.json").read_text())["trained_source_length"] == 48


def test_a_model_without_an_output_map_is_refused(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "BERT, MiniLM without output map")
    made(case).save_pretrained(tmp_path)
    with pytest.raises(BadInput, match="has no output map"):
        open_source(tmp_path)


@pytest.mark.parametrize(
    ("case", "fused"), [*((case, True) for case in WITH_OUTPUT), *((case, False) for case in APART)]
)
def test_every_family_keeps_its_form(tmp_path: Path, case: Case, fused: bool) -> None:
    """Read, trained by nothing, written: transformers finds every weight where it was."""
    model = made(case)
    model.save_pretrained(tmp_path / "src")
    source = open_source(tmp_path / "src")
    config = source.config.model_copy(update={"fused": fused})
    learner = Learner(config)
    fill(learner, source)
    record = keep(source, "src", config, Trained(64, 64), tmp_path / "run")
    assert record["family"] == model.config.model_type, record["why"]
    out = write_model(learner, tmp_path / "run" / "export", World.start(), Trained(64, 64), run=tmp_path / "run")
    again, loading = type(model).from_pretrained(out, output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["mismatched_keys"]
    wanted = dict(model.state_dict())
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, wanted[name]), name
    tokens = torch.randint(5, VOCABULARY, (1, 12))
    more = {"source": tokens} if config.stack == "encoder-decoder" else {}
    with torch.no_grad():
        got = Transformer.forward(learner.eval(), tokens, **more)
        torch.testing.assert_close(got, load(out)(tokens, **more), rtol=0, atol=1e-5)


def test_the_mean_of_checkpoints_has_the_family_s_form(tmp_path: Path, text: Path) -> None:
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=512, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    transformers.Qwen2ForCausalLM(config).save_pretrained(tmp_path / "src")
    shutil.copy(text / "tokenizer.json", tmp_path / "src")
    train(recipe(text, tmp_path / "src"), tmp_path / "run", until=4)
    assert export_run(tmp_path / "run", tmp_path / "mean", average=2).steps == (2, 4)
    assert type(agree(tmp_path / "mean")).__name__ == "Qwen2ForCausalLM"
    # What is not in the folder is not given away with the model.
    (tmp_path / "run/start/tokenizer.json").unlink()
    (tmp_path / "run/start/tokenizer.json").symlink_to("/etc/passwd")
    with pytest.raises(BadInput):
        export_run(tmp_path / "run", tmp_path / "other")


MESHES = {"FSDP 2": [], "TP 2": ["mesh.tp=2", "model.fused=false"]}
IN_RANKS = """
import json, os, sys
from pathlib import Path
from tests.train import forked

forked.warm()
said = {}
for name, arguments in json.loads(sys.argv[1]).items():
    log = Path(f"{name}.log")
    ended = [os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in forked.command(arguments, 2, log)]
    said[name] = f"ended with {ended}: {log.read_text()}" if any(ended) else ""
print(json.dumps(said))
"""
"""Commands of two ranks each, with the environment that torchrun gives them: what went wrong, by name."""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory, text: Path, llama: Path) -> tuple[Path, dict[str, str]]:
    """The folder of a run in one process and of one on each mesh, by name; and what went wrong with the latter."""
    folder = tmp_path_factory.mktemp("ranks")
    given = [f"data.path={text}", "data.length=32", "train.steps=2", "train.batch=64", "train.micro=32"]
    given += ["train.samples={prompts: [the sea, one], tokens: 4, every: 1}"]
    (folder / "r.yaml").write_text("data: {kind: text, path: x}\ntrain: {steps: 2}\n")
    train(load_recipe(folder / "r.yaml", given, start=str(llama)), folder / "one")
    options = ["--from", str(llama), "--quiet", "--device", "cpu"]
    commands = {
        name: ["train", str(folder / "r.yaml"), *given, *mesh, *options, "--out", str(folder / name)]
        for name, mesh in MESHES.items()
    }
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    command = [sys.executable, "-c", IN_RANKS, json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


@pytest.mark.parametrize("mesh", MESHES)
def test_two_ranks_start_as_one(started: tuple[Path, dict[str, str]], mesh: str) -> None:
    folder, wrong = started
    assert wrong[mesh] == ""
    assert losses(folder / mesh) == pytest.approx(losses(folder / "one"), rel=1e-6)
    assert samples(folder / mesh) == samples(folder / "one")
    assert [record["step"] for record in samples(folder / "one")] == [1, 2]
    one, two = weights(folder / "one"), weights(folder / mesh)
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=0, atol=1e-5)
    configs = [json.loads((folder / name / "export" / "config.json").read_text()) for name in ("one", mesh)]
    assert configs[0] == configs[1]
