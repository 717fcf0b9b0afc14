"""`ropewalk init recipe` and `init encoding`: what they write runs as it is. Targets are in tests/conformance."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from ropewalk.cli import recipes
from ropewalk.encodings import parse, template
from tests.cli.conftest import Ropewalk

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"


def test_a_recipe_trains_as_it_is(ropewalk: Ropewalk) -> None:
    assert ropewalk("init", "recipe", "first").stdout == "first.yaml\nNext: ropewalk train first.yaml\n"
    answer = ropewalk("train", "first.yaml", "train.steps=2", "model.width=32", "--json")
    assert answer.code == 0, answer.stderr
    assert answer.data["step"] == 2
    answer = ropewalk("init", "recipe", "first.yaml")
    assert (answer.code, answer.stderr) == (
        3,
        "Error: first.yaml already exists and was not overwritten; give another name\n",
    )


def test_an_encoding_is_found_as_it_is(ropewalk: Ropewalk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "slack_rope", raising=False)
    assert ropewalk("init", "encoding", "slack_rope", "--json").data == {
        "path": "slack_rope.py",
        "kind": "slack_rope.SlackRope",
        "next": "ropewalk verify slack_rope.SlackRope",
    }
    # From the current folder, which is on sys.path for this import alone.
    listed = ropewalk("list", "encodings", "slack_rope.SlackRope", "--json").data[-1]
    assert (listed["kind"], listed["sites"]) == ("slack_rope.SlackRope", ["bias"])
    answer = ropewalk("verify", "slack_rope.SlackRope", "slack=2", "--only", "N3,C12")
    assert (answer.code, answer.stdout[:14]) == (0, "2 requirements"), answer.stderr
    # Without the dot it is not taken for a kind of ours, nor imported.
    monkeypatch.delitem(sys.modules, "slack_rope")
    answer = ropewalk("config", "show", "model.encoding=slack_rope")
    assert answer.code == 3
    assert "For the class Name in slack_rope.py write slack_rope.Name" in answer.stderr
    assert "slack_rope" not in sys.modules
    with pytest.raises(ValueError, match="not allowed"):
        parse({"kind": "slack_rope.SlackRope"}, kinds=())
    assert "slack_rope" not in sys.modules
    with pytest.raises(ValueError, match="no encoding in one"):
        parse({"kind": "slack_rope.Rope"})
    del sys.modules["slack_rope"]


def test_the_encoding_is_the_one_that_contributing_shows() -> None:
    shown = re.findall(r"^```python\n(.*?)^```$", CONTRIBUTING.read_text(encoding="utf-8"), re.M | re.S)[0]
    assert ast.dump(ast.parse(template.TEXT.format(name="Cable", kind="cable"))) == ast.dump(ast.parse(shown))


def test_recipes_are_named(ropewalk: Ropewalk) -> None:
    listed = ropewalk("list", "recipes", "--json").data
    assert [entry["name"] for entry in listed] == recipes.names()
    assert {"decoder", "encoder", "llama-8b"} <= set(recipes.names())
    for entry in listed:
        assert entry["about"].endswith(".")
        assert any(re.search(rf"ropewalk (train|estimate) {entry['name']}\b", line) for line in entry["commands"])
    named = ropewalk("config", "show", "decoder", "model.width=128")
    assert named.code == 0
    assert named == ropewalk(
        "config", "show", next(e["path"] for e in listed if e["name"] == "decoder"), "model.width=128"
    )


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("decodr", "Error: no recipe 'decodr', and no file of that name. Did you mean decoder?\n"),
        (
            "recipes/decoder.yaml",
            "recipes/decoder.yaml: no such file. For the recipe that comes with ropewalk, write decoder",
        ),
        ("mine.yaml", "mine.yaml, 1 problem:\n  no such file"),
    ],
)
def test_a_recipe_that_is_not_there(ropewalk: Ropewalk, word: str, says: str) -> None:
    for command in ("train", "estimate"):
        answer = ropewalk(command, word)
        assert (answer.code, answer.stdout) == (3, "")
        assert says in answer.stderr


def test_a_file_called_as_a_recipe_is_written_as_a_path(ropewalk: Ropewalk) -> None:
    Path("decoder").write_text("model: {width: 96}", encoding="utf-8")
    assert ropewalk("config", "show", "./decoder", "--json").data["model"]["width"] == 96
    assert ropewalk("config", "show", "decoder", "--json").data["model"]["width"] == 256
