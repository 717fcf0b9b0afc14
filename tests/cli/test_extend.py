"""`ropewalk extend` as a person types it."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import string
from pathlib import Path

import pytest

from ropewalk.extend.asking import Asking
from tests.cli.conftest import Ropewalk
from tests.extend.toys import until

CHOOSING = ("--to", "256", "--text", "texts", "--documents", "8", "--tail", "32")


def files(directory: Path) -> dict[str, str]:
    return {str(one): hashlib.sha256(one.read_bytes()).hexdigest() for one in directory.rglob("*") if one.is_file()}


def write_texts(count: int) -> None:
    """Each ends with what was said at its beginning."""
    Path("texts").mkdir()
    for number in range(count):
        signs = "".join(random.Random(number).choices(string.ascii_letters + string.digits, k=256))
        Path("texts", f"{number}.txt").write_text(signs[:216] + signs[:40], encoding="utf-8")


def test_chooses_by_measuring_and_leaves_the_source_alone(
    ropewalk: Ropewalk, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A random model uses no far text, so nothing is written, and cropping is as good."""
    write_texts(12)
    before = files(checkpoint)
    command = ("extend", str(checkpoint), "longer", *CHOOSING)
    answer = ropewalk(*command, "--budget", "0")
    assert answer.code == 1
    assert "run the same command to continue" in answer.stderr
    assert "so far" not in answer.stderr
    with monkeypatch.context() as patched:
        patched.setattr(Asking, "__call__", until("judge with foreign text", Asking.__call__))
        answer = ropewalk(*command)
    assert answer.code == 1
    assert "(judge with foreign text: 0 of 8 passes)" in answer.stderr
    assert "\nso far: Cropping is " in answer.stderr
    answer = ropewalk(*command)
    assert answer.code == 0, answer.stderr
    assert answer.stdout.startswith("Cropping is ")
    # The rule is said before anything is measured, so it is there even where the budget ends.
    assert "8 of the others to judge" in answer.stderr
    kept = Path("longer.work", "measurements.jsonl").read_bytes()
    told = json.loads(ropewalk(*command, "--json").stdout)
    assert Path("longer.work", "measurements.jsonl").read_bytes() == kept
    assert told["verdict"]["winner"] == "crop"
    assert told["written"] is None
    assert json.loads(Path("longer.work", "result.json").read_text())["verdict"] == told["verdict"]
    assert not Path("longer").exists()
    assert files(checkpoint) == before


@pytest.fixture(scope="module")
def experts(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random mixture of experts, which ropewalk does not load, with the tokenizer of the other."""
    import torch
    import transformers

    config = transformers.Qwen3MoeConfig(
        vocab_size=257, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, head_dim=16,
        num_key_value_heads=2, max_position_embeddings=128, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=16, bos_token_id=None, eos_token_id=256,
    )  # fmt: skip
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("experts")
    transformers.Qwen3MoeForCausalLM(config).save_pretrained(path)
    path.joinpath("tokenizer.json").write_bytes(checkpoint.joinpath("tokenizer.json").read_bytes())
    return path


def test_transformers_measures_what_ropewalk_does_not_load(ropewalk: Ropewalk, experts: Path) -> None:
    write_texts(12)
    command = ("extend", str(experts), "longer", *CHOOSING)
    answer = ropewalk(*command)
    assert answer.code == 3
    assert "a mixture of experts; add --engine transformers" in answer.stderr
    told = ropewalk(*command, "--engine", "transformers", "--json").data
    assert told["engine"].startswith("transformers ")
    assert told["verdict"]["kind"] in ("crop", "crop better")
    # Another engine of the same model is another run: nothing of it is taken, and it is refused as before.
    assert "add --engine transformers" in ropewalk(*command).stderr
    written = ("extend", str(experts), "yarn", "--to", "256", "--scaling", "yarn")
    assert "add --engine transformers" in ropewalk(*written).stderr
    assert not Path("yarn").exists()
    proofs = {one["engine"]: one for one in ropewalk(*written, "--engine", "transformers", "--json").data["proofs"]}
    assert "a mixture of experts" in proofs["ropewalk"]["not_run"]
    assert proofs["transformers"]["against"] == "transformers on the source"
    assert not proofs["transformers"]["failed"]


def test_both_engines_measure_the_same(ropewalk: Ropewalk, checkpoint: Path) -> None:
    """Skipped positions among it: gaps, which transformers by itself takes for other documents."""
    write_texts(12)
    both = [
        ropewalk("extend", str(checkpoint), name, *CHOOSING, "--cheap", "--engine", name, "--json").data
        for name in ("ropewalk", "transformers")
    ]
    first, second = ({one["name"]: one["losses"] for one in told["rounds"]} for told in both)
    assert first.keys() == second.keys()
    for name, losses in first.items():
        assert second[name] == pytest.approx(losses, abs=1e-4)
    for name, one in both[0]["judged"].items():
        assert both[1]["judged"][name]["tail"]["loss"]["256"] == pytest.approx(one["tail"]["loss"]["256"], abs=1e-4)


def test_an_engine_that_cannot_is_refused(ropewalk: Ropewalk, checkpoint: Path) -> None:
    write_texts(6)
    Path("own").mkdir()
    Path("own", "config.json").write_text('{"model_type": "ropewalk", "trained_length": 64, "model": {"layers": 1}}')
    given = ("--to", "256", "--text", "texts", "--tail", "32", "--engine", "transformers")
    for model, more, says in (
        (str(checkpoint), ("--tune", "9"), "--tune trains with ropewalk"),
        ("own", (), "own is a model of ropewalk's own, which transformers does not load"),
    ):
        answer = ropewalk("extend", model, *given, *more)
        assert answer.code == 3
        assert says in answer.stderr
        assert not list(Path().glob("*.work"))


def test_a_length_assumed_smaller_is_scaled_at_the_own_length(ropewalk: Ropewalk, checkpoint: Path) -> None:
    command = ("extend", str(checkpoint), "longer", "--to", "128", "--scaling", "yarn", "--no-proof", "--json")
    assert "say from which length: --trained N" in ropewalk(*command).stderr
    scaling = ropewalk(*command, "--trained", "64").data["scaling"]
    assert (scaling["factor"], scaling["trained"]) == (2.0, 64)


def test_yarn_of_a_checkpoint_that_has_it_keeps_its_settings(ropewalk: Ropewalk, checkpoint: Path) -> None:
    """What `inspect --to` shows is what is written."""
    shutil.copytree(checkpoint, "scaled")
    config = json.loads(Path("scaled", "config.json").read_text())
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["rope_scaling"] = {
        "rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64, "beta_fast": 16.0,
        "attention_factor": 1.0,
    }  # fmt: skip
    Path("scaled", "config.json").write_text(json.dumps(config))
    command = ("extend", "scaled", "longer", "--to", "256", "--scaling", "yarn", "--no-proof", "--json")
    scaling = ropewalk(*command).data["scaling"]
    kept = {key: scaling[key] for key in ("factor", "trained", "beta_fast", "attention_factor")}
    assert kept == {"factor": 4.0, "trained": 64, "beta_fast": 16.0, "attention_factor": 1.0}
    shown = ropewalk("inspect", "scaled", "--to", "256").stdout
    assert '"beta_fast": 16.0' in shown
    assert "ropewalk extend scaled --to 256" in shown
    # Where extend would refuse the length, inspect does not send anybody there.
    assert "ropewalk extend" not in ropewalk("inspect", "scaled", "--to", "96").stdout
    assert "shorter than the 128 tokens" in ropewalk("extend", "scaled", "--to", "96", "--text", "x").stderr


def test_names_of_files_are_shown_without_their_control_signs(ropewalk: Ropewalk, checkpoint: Path) -> None:
    shutil.copytree(checkpoint, "named")
    Path("named", ".evil\x1b[31m").write_text("")
    answer = ropewalk("extend", "named", "longer", "--to", "256", "--scaling", "yarn", "--no-proof")
    assert "not copied: .evil\\x1b[31m" in answer.stdout
    assert "\x1b[31m" not in answer.stdout


def test_half_of_a_surrogate_pair_is_said_with_its_line(ropewalk: Ropewalk, checkpoint: Path) -> None:
    Path("bad.jsonl").write_text('{"text": "fine"}\n{"text": "bad \\ud800"}\n')
    answer = ropewalk("extend", str(checkpoint), "--to", "256", "--text", "bad.jsonl", "--tail", "32")
    assert answer.code == 3
    assert "bad.jsonl:2: the text has half of a surrogate pair" in answer.stderr


def test_two_runs_in_one_directory_are_refused(ropewalk: Ropewalk, checkpoint: Path) -> None:
    from ropewalk.extend.tournament import alone

    write_texts(6)
    with alone(Path("here")):
        answer = ropewalk("extend", str(checkpoint), "--to", "256", "--text", "texts", "--work", "here", "--tail", "32")
    assert answer.code == 3
    assert "another run is at work in here" in answer.stderr


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((), "add --text PATH"),
        (("--text", "texts", "--factor", "2"), "--factor needs a scaling; add --scaling yarn"),
        (("--scaling", "yarn", "--budget", "5"), "--budget is for choosing"),
        (("--scaling", "yarn"), "say where to write"),
        (("--scaling", "yarn", "--tune", "soon"), "write steps, such as 200, or minutes, such as 30min"),
        (("--text", "texts", "--tune", "0min"), "write steps, such as 200, or minutes, such as 30min"),
        (("--scaling", "yarn", "--tune", "30min"), "add --text PATH"),
        (("--scaling", "yarn", "--tune", "9", "--text", "texts", "--search", "99"), "--search is for choosing"),
    ],
)
def test_no_option_is_ignored(ropewalk: Ropewalk, checkpoint: Path, given: tuple[str, ...], says: str) -> None:
    answer = ropewalk("extend", str(checkpoint), "--to", "256", *given)
    assert answer.code == 2
    assert says in " ".join(answer.stderr.replace("\u2502", "").split())


def test_writes_proves_and_says_how_to_serve(ropewalk: Ropewalk, checkpoint: Path) -> None:
    answer = ropewalk("extend", str(checkpoint), "longer", "--to", "512", "--scaling", "yarn")
    assert answer.code == 0, answer.stderr
    assert "vllm serve" in answer.stdout
    assert "within 0.0001 of ropewalk on the source" in answer.stdout
    told = json.loads(ropewalk("extend", str(checkpoint), "o", "--to", "512", "--scaling", "linear", "--json").stdout)
    assert told["scaling"]["kind"] == "linear"
    run = [one["engine"] for one in told["proofs"] if not one["not_run"]]
    assert run == ["ropewalk", "transformers", "transformers, cached"]


def test_a_file_that_cannot_be_written_is_said(ropewalk: Ropewalk, checkpoint: Path) -> None:
    """llama.cpp does not load this checkpoint's tokenizer, which has no merges; the directory stays."""
    command = ("extend", str(checkpoint), "longer", "--to", "512", "--scaling", "yarn", "--no-proof", "--gguf")
    answer = ropewalk(*command, "longer.gguf", "--json")
    assert answer.code == 1
    assert "longer.gguf: no GGUF file is written" in answer.stderr
    told = json.loads(answer.stdout)
    assert told["gguf"] is None
    assert "merges" in told["engines"]["llama.cpp"]
    assert Path("longer", "config.json").exists()
    assert not Path("longer.gguf").exists()


def test_nothing_is_measured_that_could_not_be_written(ropewalk: Ropewalk, checkpoint: Path) -> None:
    write_texts(6)
    Path("there.gguf").touch()
    choosing = ("extend", str(checkpoint), "--to", "256", "--text", "texts", "--tail", "32")
    for given, says in (
        (("texts",), "texts already exists"),
        (("longer", "--gguf", "there.gguf"), "there.gguf already exists"),
        (("longer", "--gguf", "other"), "must end in .gguf"),
    ):
        answer = ropewalk(*choosing, *given)
        assert answer.code == 3
        assert says in answer.stderr
    assert not list(Path().glob("*.work"))


def test_mistakes_are_answered(ropewalk: Ropewalk, checkpoint: Path) -> None:
    Path("empty").mkdir()
    model = str(checkpoint)
    for given, code, says in (
        ((model, "longer", "--to", "512", "--scaling", "yarm"), 2, "no scaling 'yarm' (did you mean yarn?); there are"),
        ((model, "longer", "--to", "512", "--scaling", "longrope"), 2, "no scaling 'longrope'; there are yarn, linear"),
        ((model, "longer", "--to", "long", "--scaling", "yarn"), 2, "Invalid value for '--to'"),
        (
            (model, "longer", "--to", "512", "--tail", "32", "--text", "nowhere"),
            3,
            "nowhere does not exist; give a .txt",
        ),
        (
            (model, "longer", "--to", "512", "--tail", "32", "--text", "empty"),
            3,
            "empty holds no .txt, .md or .jsonl file",
        ),
        (("org/name", "longer", "--to", "512", "--scaling", "yarn"), 3, "hf download org/name --local-dir MODEL"),
        ((model, "longer.gguf", "--to", "512", "--scaling", "yarn"), 3, "add --gguf longer.gguf"),
    ):
        answer = ropewalk("extend", *given)
        assert answer.code == code
        assert says in " ".join(answer.stderr.split())
    answer = ropewalk("extend", model, "less", "--to", "512", "--scaling", "yarn", "--factor", "1.5", "--no-proof")
    assert "reaches 192 tokens from 128, fewer than --to 512; leave out --factor for 4" in answer.stderr
    answer = ropewalk("extend", str(checkpoint), "longer", "--to", "2", "--scaling", "yarn", "--no-proof")
    assert answer.code == 3
    assert not Path("longer").exists()
    answer = ropewalk("extend", str(checkpoint), "longer", "--to", "512", "--scaling", "yarn", "--no-proof")
    assert "not proved" in answer.stdout


def test_a_search_without_its_extra_names_it(
    ropewalk: Ropewalk, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ropewalk.extend.search import searched

    write_texts(6)
    monkeypatch.setattr(searched, "find_spec", lambda name: None)
    answer = ropewalk("extend", str(checkpoint), "--to", "256", "--text", "texts", "--tail", "32", "--search", "300")
    assert answer.code == 5
    assert 'pip install "ropewalk[search]"' in answer.stderr
    assert not list(Path().glob("*.work"))


def test_a_proof_reads_every_text_it_is_given(ropewalk: Ropewalk, checkpoint: Path) -> None:
    """A folder, a .jsonl by its texts, and more than one of them."""
    from ropewalk.cli.extend.command import _beginning

    Path("folder").mkdir()
    Path("folder", "a.txt").write_text("first", encoding="utf-8")
    Path("b.jsonl").write_text('{"text": "second"}\n{"text": "third"}\n', encoding="utf-8")
    paths = [Path("folder"), Path("b.jsonl")]
    assert _beginning(paths, 512) == "first\n\nsecond\n\nthird"
    both = [part for path in paths for part in ("--text", str(path))]
    answer = ropewalk("extend", str(checkpoint), "longer", "--to", "512", "--scaling", "yarn", *both)
    assert answer.code == 0, answer.stderr


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--html", "nowhere/page.html"), "nowhere is not a directory; create it first"),
        (("--html", "texts"), "texts is a directory; write texts/extend.html"),
        (("--vllm", "nowhere/python"), "nowhere/python: No such file or directory; give the python of vLLM's"),
        (("--tune", "infmin"), "'infmin': write steps, such as 200, or minutes, such as 30min"),
        (("--text", "five.jsonl"), 'five.jsonl:1: not a JSON object with a text under "text"'),
        (("--text", "latin.txt"), "latin.txt: not UTF-8 text"),
    ],
)
def test_what_is_wrong_is_found_before_anything_is_measured(
    ropewalk: Ropewalk, checkpoint: Path, given: tuple[str, ...], says: str
) -> None:
    write_texts(12)
    Path("five.jsonl").write_text('{"text": 5}\n')
    Path("latin.txt").write_bytes("caf\u00e9".encode("latin-1"))
    size = ("--documents", "8", "--tail", "32")
    answer = ropewalk("extend", str(checkpoint), "longer", "--to", "256", "--text", "texts", *size, *given)
    assert answer.code in (2, 3), answer.stderr
    assert says in " ".join(answer.stderr.split())
    assert not list(Path("longer.work").glob("measurements.jsonl"))
    assert not Path("longer").exists()


def test_what_an_earlier_piece_wrote_is_not_in_the_way(
    ropewalk: Ropewalk, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_texts(12)
    Path("longer").mkdir()
    command = ("extend", str(checkpoint), "longer", *CHOOSING, "--gguf", "longer.gguf", "--budget", "0")
    answer = ropewalk(*command)
    assert answer.code == 3
    assert "longer already exists" in answer.stderr
    monkeypatch.setattr("ropewalk.cli.extend.command.made_here", lambda *given: True)
    answer = ropewalk(*command)
    assert answer.code == 1, answer.stderr
    assert "run the same command to continue" in answer.stderr


def test_a_named_scaling_whose_proof_was_stopped_is_proved_by_the_same_command(
    ropewalk: Ropewalk, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ropewalk.extend import prove

    def stopped(*given: object, **more: object) -> None:
        raise KeyboardInterrupt

    command = ("extend", str(checkpoint), "longer/", "--to", "256", "--scaling", "linear")
    with monkeypatch.context() as broken:
        broken.setattr(prove, "prove", stopped)
        answer = ropewalk(*command)
    assert "longer was written, and its proof was stopped; run the same command to prove it" in answer.stderr
    before = files(Path("longer"))
    other = ropewalk(*command[:-1], "yarn")
    assert other.code == 3
    assert "longer already exists" in other.stderr
    answer = ropewalk(*command)
    assert answer.code == 0, answer.stderr
    assert "within 1e-06" in answer.stdout
    assert files(Path("longer")) == before
    assert not Path("longer.work").exists()
    # Once proved, it is a directory like any other.
    assert "longer already exists" in ropewalk(*command).stderr


def test_a_run_that_was_stopped_in_its_proof_continues_there(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ropewalk.cli.extend import writing
    from ropewalk.extend import prove
    from ropewalk.scaling import Linear

    def stopped(*given: object, **more: object) -> None:
        raise KeyboardInterrupt

    out, work = str(tmp_path / "longer"), tmp_path / "work"
    work.mkdir()
    given = (str(checkpoint), out, Linear(factor=2), 256, "a text", work / writing.WRITTEN)

    run = {"weights": "these", "options": "those"}

    def written(path: str, out: str, scaling: Linear, to: int, sample: str, noted: Path) -> object:
        return writing.write_and_prove(
            path, out, scaling, to, sample, gguf=None, silent=True, noted=noted, run=run, vllm=None
        )  # fmt: skip

    assert not writing.made_here(work, out, None, lambda: run)
    with monkeypatch.context() as broken:
        broken.setattr(prove, "prove", stopped)
        with pytest.raises(KeyboardInterrupt):
            written(*given)
    before = files(Path(out))
    assert writing.made_here(work, out, None, lambda: run)
    assert not writing.made_here(work, out, tmp_path / "beside.gguf", lambda: run)
    for other in ("weights", "options"):
        assert not writing.made_here(work, out, None, lambda other=other: run | {other: "others"})
    (done, proofs) = writing.write_and_prove(
        str(checkpoint), out, Linear(factor=2), 256, "a text", gguf=None, silent=True, noted=work / writing.WRITTEN,
        run=run, vllm=None,
    )  # fmt: skip
    assert files(Path(out)) == before
    assert done.engines["transformers 5"] is None
    assert not any(one.failed for one in proofs)
    with pytest.raises(ValueError, match="already exists"):  # another scaling is not taken for it
        written(str(checkpoint), out, Linear(factor=3), 256, "a text", work / writing.WRITTEN)
