"""`ropewalk config`: what it shows reads back, what it compares it says by the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ropewalk import encodings
from ropewalk.overrides import load
from ropewalk.train.config import Recipe
from ropewalk.yaml_text import parse
from tests.cli.conftest import Ropewalk

CHANGES = (
    (),
    ("model.encoding=alibi",),
    ("model.encoding.base=123456.789", "model.window=99"),
    ("model.stack=encoder-decoder", "model.layers={encoder: 2, decoder: 3}"),
    ("model.layers={count: 5, pattern: [a, b], kinds: {a: {window: 7}, b: {encoding: none}}}",),
    ("model.encoding={kind: chain, parts: [rope, {kind: temperature, trained: 64}]}", "model.encoding.parts.0.base=7"),
    ("model.encoding.scaling={kind: yarn, factor: 4, trained: 8192}",),
)


class TestShow:
    @pytest.mark.parametrize("changes", CHANGES)
    @pytest.mark.parametrize("options", [(), ("--plan",), ("--json",), ("--quiet", "--plan")])
    def test_it_reads_back(
        self, ropewalk: Ropewalk, recipe: Path, changes: tuple[str, ...], options: tuple[str, ...]
    ) -> None:
        answer = ropewalk("config", "show", recipe.name, *changes, *options)
        assert (answer.code, answer.stderr) == (0, "")
        Path("again.yaml").write_text(answer.stdout, encoding="utf-8")
        assert load(Recipe, "again.yaml") == load(Recipe, recipe.name, changes)
        assert ropewalk("config", "show", "again.yaml", *options).stdout == answer.stdout

    def test_every_default_is_there(self, ropewalk: Ropewalk) -> None:
        shown = parse(ropewalk("config", "show").stdout)
        assert shown == Recipe().model_dump(mode="json") == ropewalk("config", "show", "--json").data
        assert set(shown["model"]) == set(type(Recipe().model).model_fields)

    def test_a_change_of_kind_drops_the_old_settings(self, ropewalk: Ropewalk, recipe: Path) -> None:
        def encoding(*changes: str) -> Any:
            return ropewalk("config", "show", recipe.name, *changes, "--json").data["model"]["encoding"]

        assert encoding()["base"] == 5e5
        assert encoding("model.encoding=alibi") == {"kind": "alibi"}
        assert encoding("model.encoding.kind=sinusoidal")["base"] == 1e4
        assert encoding("model.encoding.kind=rope")["base"] == 5e5
        assert encoding("model.encoding=rope", "model.encoding.base=7")["base"] == 7

    def test_the_plan(self, ropewalk: Ropewalk, recipe: Path) -> None:
        text = ropewalk("config", "show", recipe.name, "--plan").stdout
        assert "\n# plan, decoder\n#   8 layers\n#   layers 0-7  rope half 32" in text
        data = ropewalk("config", "show", recipe.name, "--plan", "--json").data
        assert data["config"] == ropewalk("config", "show", recipe.name, "--json").data
        assert data["plan"] == {"decoder": json.loads(json.dumps(load(Recipe, recipe).model.plan().to_dict()))}

    def test_the_plan_of_two_stacks(self, ropewalk: Ropewalk) -> None:
        data = ropewalk("config", "show", "model.stack=encoder-decoder", "--plan", "--json").data
        assert list(data["plan"]) == ["encoder", "decoder"]

    def test_an_encoding_outside_the_package(self, ropewalk: Ropewalk, cable: str) -> None:
        answer = ropewalk("config", "show", f"model.encoding={cable}", "model.encoding.slack=2", "--json", "--plan")
        assert answer.data["config"]["model"]["encoding"] == {"kind": cable, "slack": 2.0}
        wrong = ropewalk("config", "show", f"model.encoding={cable}", "model.encoding.slak=2")
        assert "model.encoding.slak   no such key. Did you mean model.encoding.slack?" in wrong.stderr

    def test_a_file_may_have_an_equals_sign_in_its_name(self, ropewalk: Ropewalk, recipe: Path) -> None:
        recipe.rename("lr=3.yaml")
        assert ropewalk("config", "show", "lr=3.yaml", "--json").data["model"]["width"] == 256

    def test_mistakes(self, ropewalk: Ropewalk, recipe: Path) -> None:
        answer = ropewalk("config", "show", recipe.name, "model.encodng.kind=rope")
        assert (answer.code, answer.stdout) == (3, "")
        assert answer.stderr == (
            "Error: recipe.yaml + command line, 1 problem:\n"
            "  model.encodng   no such key. Did you mean model.encoding?\n"
        )
        answer = ropewalk("config", "show", "recpie.yaml")
        assert (answer.code, answer.stdout) == (3, "")
        assert answer.stderr == "Error: recpie.yaml, 1 problem:\n  no such file. Did you mean recipe.yaml?\n"
        answer = ropewalk("config", "show", recipe.name, "width")
        assert (answer.code, answer.stdout) == (2, "")
        assert "width: give at most 1 file; write a change as KEY=VALUE" in answer.stderr


class TestSchema:
    def test_it_has_every_kind(self, ropewalk: Ropewalk) -> None:
        answer = ropewalk("config", "schema")
        assert (answer.code, answer.stderr) == (0, "")
        assert answer.data["$schema"].startswith("https://json-schema.org/")
        shapes = answer.data["$defs"]["TransformerConfig"]["properties"]["encoding"]["anyOf"]
        assert shapes[0]["enum"] == list(encodings.names())
        kinds = {shape["properties"]["kind"].get("const") for shape in shapes if "properties" in shape}
        assert kinds - {None} == set(encodings.names())

    def test_it_is_json_in_any_case(self, ropewalk: Ropewalk) -> None:
        plain = ropewalk("config", "schema").data
        assert plain == ropewalk("config", "schema", "--json").data == ropewalk("config", "schema", "--quiet").data

    def test_fields_are_described(self, ropewalk: Ropewalk) -> None:
        fields = ropewalk("config", "schema").data["$defs"]["TransformerConfig"]["properties"]
        assert fields["heads"]["description"] == "H, query heads."


class TestDiff:
    def test_the_same(self, ropewalk: Ropewalk, recipe: Path) -> None:
        Path("other.yaml").write_text("model: {encoding: {base: 500_000, kind: rope}, width: 2.56e2}", encoding="utf-8")
        answer = ropewalk("config", "diff", recipe.name, "other.yaml")
        assert answer == (0, "no difference\n", "")
        assert ropewalk("config", "diff", recipe.name, "other.yaml", "--quiet") == (0, "", "")
        assert ropewalk("config", "diff", recipe.name, "other.yaml", "--json").data["keys"] == []

    def test_the_keys_that_differ(self, ropewalk: Ropewalk, recipe: Path) -> None:
        answer = ropewalk("config", "diff", recipe.name, "model.encoding=alibi", "model.window=64")
        assert (answer.code, answer.stderr) == (1, "")
        verdict, heading, *lines = answer.stdout.splitlines()
        assert verdict == f"{len(lines)} keys differ"
        assert heading.split("  ")[0:2] == ["", "key"]
        table = {key: sides for key, *sides in (line.split() for line in lines)}
        assert table["model.encoding.kind"] == ["rope", "alibi"]
        assert table["model.encoding.base"] == ["500000.0", "-"]
        assert table["model.window"] == ["null", "64"]

    def test_json_says_the_same(self, ropewalk: Ropewalk, recipe: Path) -> None:
        answer = ropewalk("config", "diff", recipe.name, "model.encoding=alibi", "--json")
        assert answer.code == 1
        assert (answer.data["same"], answer.data["old"], answer.data["new"]) == (
            False,
            "recipe.yaml",
            "recipe.yaml + command line",
        )
        assert {"key": "model.encoding.kind", "old": "rope", "new": "alibi", "in": "both"} in answer.data["keys"]
        assert {"key": "model.encoding.base", "old": 5e5, "new": None, "in": "old"} in answer.data["keys"]
        printed = ropewalk("config", "diff", recipe.name, "model.encoding=alibi").stdout.splitlines()[2:]
        assert [line.split()[0] for line in printed] == [row["key"] for row in answer.data["keys"]]

    def test_changes_are_to_the_second(self, ropewalk: Ropewalk, recipe: Path) -> None:
        Path("other.yaml").write_text("{}", encoding="utf-8")
        keys = ropewalk("config", "diff", recipe.name, "other.yaml", "model.window=5", "--json").data["keys"]
        assert {"key": "model.window", "old": None, "new": 5, "in": "both"} in keys
        assert {"key": "model.width", "old": 256, "new": 512, "in": "both"} in keys

    def test_quiet_is_the_exit_code_alone(self, ropewalk: Ropewalk, recipe: Path) -> None:
        assert ropewalk("config", "diff", recipe.name, "model.width=64", "--quiet") == (1, "", "")

    def test_one_file_alone_is_a_mistake_of_usage(self, ropewalk: Ropewalk, recipe: Path) -> None:
        answer = ropewalk("config", "diff", recipe.name)
        assert (answer.code, answer.stdout) == (2, "")
        assert "give two files to compare" in answer.stderr
