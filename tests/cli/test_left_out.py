"""What would change nothing, or fail after hours, is refused at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from ropewalk.cli.eval import _lengths
from ropewalk.cli.output import USAGE
from tests.cli.conftest import Ropewalk
from tests.plot.samples import LLAMA

REFUSED: list[tuple[list[str], str]] = [
    (["inspect", LLAMA, "--against", LLAMA, "--to", "128k"], "--to is for one checkpoint, not --against; leave it out"),
    (["inspect", LLAMA, "--against", LLAMA, "--to", "128k", "--engines", "vllm"], "--to and --engines are for one"),
    (["inspect", LLAMA, "--workers", "3", "--on", "ray"], "--workers and --on are only for a census"),
    (["inspect", LLAMA, "--html", "nowhere/x.html"], "nowhere is not a directory; create it first"),
    (
        ["verify", "rope", "--engine", "transformers"],
        "--engine and --allow-kind are for a checkpoint, which rope is not",
    ),
    (["verify", "rope", "--allow-kind", "a.b"], "--engine and --allow-kind are for a checkpoint"),
    (["train", "first", "--fast", "--resume"], "leave out --resume and --allow-drift"),
    (["train", "first", "--fast", "--allow-drift"], "--fast begins a run of its own"),
    (["plot", "sinusoids", "--dark"], "--dark is for a picture in a file; add --out FILE"),
    (["plot", "sinusoids", "--out", "nowhere/x.svg"], "nowhere is not a directory"),
    (["plot", "biases", "kinds=alibi"], "should be a list, such as kinds=[alibi]; got 'alibi'"),
    (["lab", "--out", "nowhere/x.html", "--no-open"], "nowhere is not a directory"),
]


@pytest.mark.parametrize(("words", "says"), REFUSED, ids=lambda word: " ".join(word) if isinstance(word, list) else "")
def test_refused(ropewalk: Ropewalk, words: list[str], says: str) -> None:
    answer = ropewalk(*words)
    assert answer.code == USAGE
    assert says in " ".join(answer.stderr.split())
    assert answer.stdout == ""


def test_settings_that_a_model_has_itself(ropewalk: Ropewalk, tmp_path: Path) -> None:
    answer = ropewalk("plot", "biases", str(tmp_path), "kinds=[t5]", "seed=1")
    assert answer.code != 0
    assert "kinds=, seed= for a picture without a model" in " ".join(answer.stderr.split())


@pytest.mark.parametrize("trained", [256, 512])
def test_a_tail_as_long_as_the_text(trained: int) -> None:
    with pytest.raises(typer.BadParameter, match=f"give a smaller one, such as --tail {trained // 8}, or longer"):
        _lengths(None, trained, None, 512)
    assert _lengths(None, trained, None, trained // 8) == [trained // 4, trained // 2, trained]
