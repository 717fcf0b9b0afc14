"""`ropewalk verify` as typed."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import gguf
import pytest

from ropewalk.cli import verify as cli_verify
from ropewalk.conformance import Target, adapters
from ropewalk.conformance.mutants import MUTANTS, matrix
from ropewalk.conformance.run import chosen
from ropewalk.report import scoreboard, scoreboard_page
from tests.checkpoints.valid_files import gguf_model
from tests.cli.conftest import Ropewalk, checkpoint, ropewalk
from tests.conformance.targets import broken, small

__all__ = ["checkpoint", "ropewalk"]

TARGET = '''"""A RoPE with a planted bug."""

import torch

from ropewalk.conformance import Spec


class target:
    spec = Spec(head_width=16, heads=2, base=10_000, longest=100_000)

    def build(dtype=torch.float32, device="cpu"):
        return (1 / 10_000 ** (torch.arange(0, 16, 2).float() / 16)).to(torch.bfloat16)

    def cos_sin(built, positions):
        angle = positions[..., None].double() * built.double()
        return angle.cos(), angle.sin()
'''


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_planted_rope.py").write_text(TARGET, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_planted_rope", raising=False)
    return "my_planted_rope:target"


def test_ours_holds(ropewalk: Ropewalk) -> None:
    answer = ropewalk("verify", "rope", "heads=2", "head_width=16", "--only", "N1,N5,C1,C12")
    assert answer.code == 0
    assert answer.stdout.startswith("4 requirements \u00b7 4 apply \u00b7 4 passed \u00b7 0 failed")


def test_a_planted_bug_is_found_and_named(ropewalk: Ropewalk, planted: str) -> None:
    answer = ropewalk("verify", planted, "--only", "N1,N7,C12")
    assert answer.code == 1
    assert "3 requirements \u00b7 2 apply \u00b7 1 passed \u00b7 1 failed" in answer.stdout
    assert "rounded to bfloat16" in answer.stdout
    assert "from my_planted_rope import target as target" in answer.stdout


def test_as_json(ropewalk: Ropewalk, planted: str) -> None:
    answer = ropewalk("verify", planted, "--only", "N7,C12", "--json")
    assert answer.code == 1
    assert [result["status"] for result in answer.data["results"]] == ["failed", "not applicable"]
    assert answer.data["results"][0]["bound"] == 1e-6


def test_quiet_prints_what_is_broken(ropewalk: Ropewalk, planted: str) -> None:
    assert ropewalk("verify", planted, "--only", "N7,C12", "--quiet").stdout == "N07\n"
    assert ropewalk("verify", "rope", "heads=1", "--only", "N7", "--quiet").stdout == ""


def test_quiet_names_the_target_of_a_library(ropewalk: Ropewalk, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = small(), broken("N07")
    one.short = two.short = "x"
    monkeypatch.setattr(adapters, "targets", lambda _: [one, two])
    monkeypatch.setattr(adapters, "expected", lambda _: {})
    answer = ropewalk("verify", "--library", "litgpt", "--only", "N7", "-q")
    assert answer.stdout == f"{Target(two).name} N07\n"


def test_a_library_may_be_spelled_as_it_is_imported() -> None:
    assert adapters.spelled("Rotary_Embedding_Torch") == "rotary-embedding-torch"
    assert adapters.expected("rotary_embedding_torch") == adapters.expected("rotary-embedding-torch") != {}


@pytest.mark.parametrize("only", ["N07", None])
def test_a_terminal_is_left_clean(monkeypatch: pytest.MonkeyPatch, only: str | None) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    with cli_verify._progress(False) as progress:
        assert progress is not None
        for check in chosen(only):
            progress(check)
    assert "N07" in shown.getvalue()
    assert shown.getvalue().endswith("\r\x1b[K")


def test_a_gguf_file_here_is_a_checkpoint(ropewalk: Ropewalk, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf_model(gguf.GGMLQuantizationType.F32))
    for path in ("m.gguf", "./m.gguf"):
        answer = ropewalk("verify", path, "--only", "N7", "--json")
        assert (answer.code, answer.data["results"][0]["status"]) == (0, "passed"), answer.stderr


def test_a_directory_does_not_take_the_name_of_ours(ropewalk: Ropewalk, tmp_path: Path) -> None:
    (tmp_path / "rope").mkdir()
    assert ropewalk("verify", "rope", "heads=1", "--only", "N7").code == 0
    answer = ropewalk("verify", "./rope", "--only", "N7")
    assert (answer.code, "config.json" in answer.stderr) == (3, True)


def test_verbose_shows_reasons_and_comparisons(ropewalk: Ropewalk) -> None:
    answer = ropewalk("verify", "rope", "heads=2", "head_width=16", "--only", "N1,C24,C7", "-v")
    assert "not applicable: for alibi; this is rope" in answer.stdout
    assert "angles to 2^36" in answer.stdout
    assert "frequencies, linear" in answer.stdout


def test_the_list(ropewalk: Ropewalk) -> None:
    listed = ropewalk("verify", "--list", "--json").data
    assert len(listed) == 49
    assert listed[0]["id"] == "N01"
    assert listed[0]["bounds"] == [1e-6, 2.5e-7]
    assert ropewalk("verify", "--list", "--quiet").stdout.split()[-1] == "C40"
    assert "a window of W includes the token itself" in ropewalk("verify", "--list").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "say what to verify"),
        (["roope"], 2, "Did you mean rope?"),
        (["rope", "bass=1"], 3, "no such key. Did you mean base?"),
        (["rope", "--only", "N77"], 2, "no requirement 'N77'"),
        (["nowhere:target"], 3, "no module 'nowhere'"),
        (["--library", "no-such"], 2, "no adapter for 'no-such'; there are litgpt, "),
        (["--library", "rotary_embeding_torch"], 2, "did you mean rotary-embedding-torch?"),
        (["alibi", "--only", "C1"], 2, "none of these requirements applies to alibi: C01 for rope; this is alibi"),
        (["rope", "--library", "transformers"], 2, "leave out 'rope'"),
        (["rope", "--out", "here"], 2, "is only for --library all"),
        (["--library", "all", "--only", "N77"], 2, "no requirement 'N77'"),
        (["rope", "--engine", "vllm"], 2, "no engine 'vllm'"),
        (["nothing.gguf"], 2, "there is no file nothing.gguf here"),
    ],
)
def test_mistakes_are_answered(ropewalk: Ropewalk, arguments: list[str], code: int, says: str) -> None:
    answer = ropewalk("verify", *arguments)
    assert answer.code == code
    assert says in " ".join(answer.stderr.replace("\u2502", " ").split())


@pytest.mark.parametrize("engine", ["ropewalk", "transformers"])
def test_a_checkpoint_is_held_to_its_config(ropewalk: Ropewalk, checkpoint: Path, engine: str) -> None:
    answer = ropewalk("verify", str(checkpoint), "--engine", engine, "--only", "N7,C12", "--json")
    assert answer.code == 0
    assert [result["status"] for result in answer.data["results"]] == ["passed", "passed"]


COUNTS = {"apply": 1, "passed": 0, "failed": 0, "expected": 0}
RED = {"id": "N07", "measured": 1.0, "bound": 1e-6, "why": "another base", "reproduction": "one\ntwo"}


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A world of four libraries: one holds, one breaks what is known, one what is not, one is absent."""
    results = {
        "holds": {"id": "N07", "status": "passed", "bound": 1e-6},
        "known": {**RED, "status": "expected", "cause": "rounded"},
        "breaks": {**RED, "status": "failed"},
    }

    def gather(name: str, *_: object) -> dict[str, object]:
        if name not in results:
            raise ImportError(f"{name} cannot be imported; pip install {name}")
        target = {"short": "rope", "says": "plain RoPE", "counts": COUNTS, "results": [results[name]]}
        return {"library": name, "version": "1.0", "seconds": 0.5, "targets": [target]}

    names = ["holds", "known", "breaks", "absent"]
    monkeypatch.setattr(scoreboard, "gather", gather)
    monkeypatch.setattr(scoreboard, "LIBRARIES", names)
    return names


def test_all_libraries_are_a_matrix_a_file_and_a_page(ropewalk: Ropewalk, libraries: list[str]) -> None:
    answer = ropewalk("verify", "--library", "all", "--only", "N7")
    assert answer.code == 1
    assert re.search(r"^N07 +passed 1 +known 1/1 +failed 1/1$", answer.stdout, re.MULTILINE)
    assert "absent: not run, absent cannot be imported; pip install absent" in answer.stdout
    assert (
        "breaks, plain RoPE: N07 failed, and this is not a known failure. another base\n    one\n    two"
        in answer.stdout
    )
    data = json.loads(Path("scoreboard/scoreboard.json").read_text(encoding="utf-8"))
    assert [entry["library"] for entry in data["libraries"]] == ["holds", "known", "breaks"]
    assert data["command"] == "ropewalk verify --library all --only N7"
    assert Path("scoreboard/scoreboard.html").read_text(encoding="utf-8") == scoreboard_page.page(data)


def test_what_is_known_of_a_library_is_no_failure(ropewalk: Ropewalk, libraries: list[str]) -> None:
    assert ropewalk("verify", "--library", "all", "--quiet").stdout.strip() == "breaks rope N07"
    libraries.remove("breaks")
    answer = ropewalk("verify", "--library", "all", "--out", "board/here", "--json")
    assert answer.code == 0
    assert answer.data == json.loads(Path("board/here/scoreboard.json").read_text(encoding="utf-8"))
    assert answer.data["not_run"] == {"absent": "absent cannot be imported; pip install absent"}


def test_no_verdict_is_no_success(ropewalk: Ropewalk, libraries: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of an adapter that fails nor where no requirement applies."""
    libraries[:] = ["holds"]
    assert ropewalk("verify", "--library", "all").code == 0
    monkeypatch.setitem(COUNTS, "apply", 0)
    answer = ropewalk("verify", "--library", "all", "--only", "N7")
    assert answer.code == 2
    assert "none of these requirements applies to what is installed: N7" in " ".join(answer.stderr.split())

    def gather(name: str, *_: object) -> dict[str, object]:
        raise RuntimeError("adapter crashed")

    monkeypatch.setattr(scoreboard, "gather", gather)
    answer = ropewalk("verify", "--library", "all")
    assert answer.code == 1
    assert "holds: not run, adapter crashed" in answer.stdout


def test_a_requirement_is_explained(ropewalk: Ropewalk) -> None:
    answer = ropewalk("verify", "--explain", "n6")
    assert answer.code == 0
    mutant = MUTANTS[matrix.OWN["N06"]]
    for words in (
        "N06  results do not depend on casts or the default dtype",
        "Comes from: DeepSpeed#8066",
        "Bound: `2.4e-7` on cos and sin",
        f"+ {mutant.lines[1]}",
        f"ropewalk verify ropewalk.conformance.mutants:{mutant.name}",
        "ropewalk verify MODULE:TARGET --only N06 -v",
        str(adapters.reproduction("transformers", "to_dtype_rounds_inv_freq")),
        "https://github.com/huggingface/transformers/issues/25681",
    ):
        assert words in answer.stdout, words
    assert "<a id=" not in answer.stdout
    assert ropewalk("verify", "--explain", "N02").code == 2
    assert "A mutant that only" not in ropewalk("verify", "--explain", "C32").stdout, (
        "it has no bound, and kills nothing"
    )


def test_every_adapter_has_its_column() -> None:
    assert set(scoreboard.LIBRARIES) == {"ropewalk", *adapters.names()}


def test_settings_are_for_ours_alone(ropewalk: Ropewalk, planted: str) -> None:
    answer = ropewalk("verify", planted, "base=7")
    assert answer.code == 2
    assert "a spec of its own" in answer.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("alibi", "heads=12"),
        ("t5",),
        ("t5", "bidirectional=true"),
        ("sinusoidal",),
        ("rope", "layout=pairs", "rotary_width=32", "window=5"),
        ("rope", "base=500000", "scaling.kind=yarn", "scaling.factor=4", "scaling.trained=8192"),
        ("rope", "scaling.kind=dynamic", "scaling.factor=2", "scaling.trained=64"),
        ("rope", "arithmetic=float32", "scaling.kind=llama3", "scaling.factor=8", "scaling.trained=8192"),
        ("xpos",),
        ("kerple",),
        ("fire",),
        ("learned",),
        ("temperature", "trained=32"),
        ("chain", "parts=[rope, alibi]"),
    ],
    ids=" ".join,
)
def test_every_kind_of_ours_holds(words: tuple[str, ...]) -> None:
    from ropewalk.conformance import verify
    from ropewalk.conformance.adapters import ours

    sizes = () if any(word.startswith("heads") for word in words) else ("heads=4",)
    skip = {"C29", "C30"} if words[0] != "alibi" else set()  # compiled once for rope below, and for a bias here
    from ropewalk.conformance.checks import every

    report = verify(ours.target(*words, *sizes), only=[name for name in every() if name not in skip])
    report.raise_for_failures()
    assert report.counts["passed"] >= 10


def test_the_whole_of_rope_in_a_minute() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ropewalk", "verify", "rope"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failed" in done.stdout
    assert float(done.stdout.split()[-2]) < 60
