"""Configs as people write them: YAML read strictly, laid over one another by kind, mistakes answered all at once."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from ropewalk.overrides import BadConfig, assigned, expand, load, merge, problems, read
from ropewalk.settings import Settings
from ropewalk.yaml_text import parse, to_yaml


class Rope(Settings):
    kind: Literal["rope"] = "rope"
    base: float = Field(default=1e4, gt=1)
    layout: Literal["half", "pairs"] = "half"


class Alibi(Settings):
    kind: Literal["alibi"] = "alibi"


class Learned(Settings):
    kind: Literal["learned"] = "learned"
    longest: int
    """Positions in the table."""


Any_ = Annotated[Rope | Alibi | Learned, Field(discriminator="kind")]


class Model(Settings):
    width: int = Field(default=512, gt=0)
    window: int | None = None
    label: str = "plain"
    encoding: Any_ = Rope()
    other: Any_ | None = None
    parts: tuple[Any_, ...] = ()
    named: dict[str, Any_] = {}  # noqa: RUF012


class Root(Settings):
    model: Model = Model()


LAUGHS = "- &a0 [ha]\n" + "".join(f"- &a{n + 1} [{', '.join([f'*a{n}'] * 10)}]\n" for n in range(30))
"""Each line is ten of the line before."""


def said(*assignments: str, path: Path | None = None) -> dict[str, str]:
    with pytest.raises(BadConfig) as caught:
        load(Root, path, assignments)
    return dict(caught.value.problems)


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
keys = st.text(min_size=1).filter(lambda key: key != "kind")
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=4)
kinds = st.sampled_from(["rope", "alibi", "t5"])
settings = st.dictionaries(st.sampled_from(["base", "layout", "factor"]), values, max_size=3)
kinded = st.builds(lambda kind, rest: {"kind": kind, **rest}, kinds, settings)
trees = st.dictionaries(st.sampled_from("abc"), kinded | values | kinds, max_size=3)


class TestMerge:
    def test_changing_kind_drops_the_old_kinds_keys(self) -> None:
        assert merge({"kind": "rope", "base": 5e5}, {"kind": "alibi"}) == {"kind": "alibi"}
        assert merge({"e": {"kind": "rope", "base": 5e5}, "w": 1}, {"e": {"kind": "t5", "buckets": 8}}) == {
            "e": {"kind": "t5", "buckets": 8},
            "w": 1,
        }

    def test_the_same_kind_keeps_them(self) -> None:
        assert merge({"kind": "rope", "base": 5e5}, {"kind": "rope"}) == {"kind": "rope", "base": 5e5}
        assert merge({"kind": "rope", "base": 5e5}, {"layout": "half"}) == {
            "kind": "rope",
            "base": 5e5,
            "layout": "half",
        }

    @pytest.mark.parametrize(
        ("under", "over", "want"),
        [
            ({"kind": "rope", "base": 5e5}, "alibi", {"kind": "alibi"}),
            ({"kind": "rope", "base": 5e5}, "rope", {"kind": "rope", "base": 5e5}),
            ("rope", {"base": 5e5}, {"kind": "rope", "base": 5e5}),
            ("rope", {"kind": "alibi"}, {"kind": "alibi"}),
            ("rope", "alibi", "alibi"),
            ({"count": 3}, "many", "many"),
            ({"kind": "yarn", "factor": 2}, None, None),
            (None, {"kind": "yarn"}, {"kind": "yarn"}),
            (8, {"encoder": 2}, {"encoder": 2}),
        ],
    )
    def test_the_shorthand_counts_as_its_kind(self, under: Any, over: Any, want: Any) -> None:
        assert merge({"e": under}, {"e": over}) == {"e": want}

    def test_a_number_is_a_place_in_a_list(self) -> None:
        assert merge(["rope", {"kind": "t5"}], {"0": {"base": 5e5}}) == [{"kind": "rope", "base": 5e5}, {"kind": "t5"}]
        assert merge([1, 2], {"5": 3}) == {"5": 3}
        assert merge([1, 2], [3]) == [3]

    @given(kinds, kinds, settings, settings)
    def test_no_key_of_the_old_kind_survives(self, old: str, new: str, under: dict, over: dict) -> None:
        assume(old != new)
        assert merge({"x": {"kind": old, **under}}, {"x": {"kind": new, **over}}) == {"x": {"kind": new, **over}}

    @given(kinds, settings, settings)
    def test_every_key_survives_the_same_kind(self, kind: str, under: dict, over: dict) -> None:
        merged = merge({"kind": kind, **under}, {"kind": kind, **over})
        assert merged.keys() == {"kind", *under, *over}

    @given(trees)
    def test_nothing_over_something_is_that(self, tree: dict) -> None:
        assert merge(tree, {}) == tree
        assert merge({}, tree) == tree
        assert merge(tree, tree) == tree

    @given(trees, trees)
    def test_twice_is_once_and_nothing_is_changed_in_place(self, under: dict, over: dict) -> None:
        before = copy.deepcopy((under, over))
        once = merge(under, over)
        assert merge(once, over) == once
        assert (under, over) == before


class TestAssigned:
    def test_values_are_yaml(self) -> None:
        got = assigned(["a.b=5e5", "a.c=[x, 1]", "d={kind: rope, base: 1e-3}", "e=null", "f=no", "g=", "h=a=b"])
        assert got == {
            "a": {"b": 5e5, "c": ["x", 1]},
            "d": {"kind": "rope", "base": 1e-3},
            "e": None,
            "f": "no",
            "g": None,
            "h": "a=b",
        }

    @pytest.mark.parametrize(
        "order", [("e=rope", "e.base=5e5"), ("e.base=5e5", "e=rope"), ("e.kind=rope", "e.base=5e5")]
    )
    def test_order_does_not_matter(self, order: tuple[str, ...]) -> None:
        assert assigned(order) == {"e": {"kind": "rope", "base": 5e5}}

    def test_the_last_of_two_equal_keys_counts(self) -> None:
        assert assigned(["a=1", "a=2"]) == {"a": 2}

    def test_all_that_are_wrong_are_named(self) -> None:
        with pytest.raises(BadConfig, match="command line, 4 problems") as caught:
            assigned(["width", "=3", "a..b=1", "a=1", "b={c"])
        assert [problem.key for problem in caught.value.problems] == ["width", "=3", "a..b=1", "b"]

    def test_too_many_dots(self) -> None:
        with pytest.raises(BadConfig, match="is no key=value"):
            assigned([f"{'a.' * 5000}b=1"])


class TestLoad:
    @pytest.mark.parametrize(
        ("assignments", "want"),
        [
            (["model.encoding.kind=rope"], Rope()),
            (["model.encoding=alibi"], Alibi()),
            (["model.encoding.kind=alibi"], Alibi()),
            (["model.encoding=rope", "model.encoding.base=5e5"], Rope(base=5e5)),
            (["model.encoding={kind: rope, base: 5e5}"], Rope(base=5e5)),
            (["model.encoding.kind=learned", "model.encoding.longest=9"], Learned(longest=9)),
        ],
    )
    @pytest.mark.parametrize("written", ["", "encoding: alibi", "encoding: {kind: learned, longest: 5}"])
    def test_an_encoding_is_swapped(self, tmp_path: Path, written: str, assignments: list[str], want: Settings) -> None:
        (tmp_path / "x.yaml").write_text(f"model: {{{written.removeprefix('{')}}}\n", encoding="utf-8")
        assert load(Root, tmp_path / "x.yaml", assignments).model.encoding == want

    def test_a_key_without_its_kind_belongs_to_the_defaults(self, tmp_path: Path) -> None:
        assert load(Root, None, ["model.encoding.base=5e5"]).model.encoding == Rope(base=5e5)
        (tmp_path / "x.yaml").write_text("model: {encoding: {base: 7}}", encoding="utf-8")
        assert load(Root, tmp_path / "x.yaml").model.encoding == Rope(base=7)
        assert load(Root, tmp_path / "x.yaml", ["model.encoding=alibi"]).model.encoding == Alibi()

    def test_a_text_that_is_no_kind_stays_a_text(self) -> None:
        assert load(Root, None, ["model.label=rope"]).model.label == "rope"

    def test_shorthands_in_lists_and_mappings(self) -> None:
        model = load(Root, None, ["model.parts=[rope, alibi]", "model.parts.0.base=7", "model.named.x=alibi"]).model
        assert model.parts == (Rope(base=7), Alibi())
        assert model.named == {"x": Alibi()}

    def test_an_empty_file_is_the_defaults(self, tmp_path: Path) -> None:
        (tmp_path / "x.yaml").write_text("# nothing yet\n", encoding="utf-8")
        assert load(Root, tmp_path / "x.yaml") == load(Root) == Root()

    def test_expanding_twice_changes_nothing(self) -> None:
        once = expand({"model": {"encoding": {"base": 3}, "other": "alibi", "parts": ["rope"]}}, Root)
        assert once == {
            "model": {"encoding": {"kind": "rope", "base": 3}, "other": {"kind": "alibi"}, "parts": [{"kind": "rope"}]}
        }
        assert expand(once, Root) == once


class TestProblems:
    def test_the_whole_message(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("x.yaml").write_text("model: {width: 256}", encoding="utf-8")
        with pytest.raises(BadConfig) as caught:
            load(Root, "x.yaml", ["model.encodng.kind=rope"])
        assert str(caught.value) == (
            "x.yaml + command line, 1 problem:\n  model.encodng   no such key. Did you mean model.encoding?"
        )
        with pytest.raises(BadConfig, match=r"^command line, 1 problem:"):
            load(Root, None, ["model.encodng.kind=rope"])

    def test_all_at_once(self) -> None:
        got = said(
            "model.width=-1", "model.encoding.layout=hlf", "model.encoding.bas=2", "modle.width=3", "model.window=x"
        )
        assert got == {
            "model.width": "should be greater than 0, got -1",
            "model.window": "should be a valid integer, got 'x'",
            "model.encoding.layout": "should be half or pairs, got 'hlf'. Did you mean half?",
            "model.encoding.bas": "no such key. Did you mean model.encoding.base?",
            "modle": "no such key. Did you mean model?",
        }

    @pytest.mark.parametrize(
        ("assignments", "key", "says"),
        [
            (
                ["model.encoding=ropee"],
                "model.encoding",
                "should be rope, alibi or learned, got 'ropee'. Did you mean rope?",
            ),
            (["model.encoding=learned"], "model.encoding.longest", "missing (Positions in the table); write model.enc"),
            (["model.other.base=3"], "model.other", "needs a kind: rope, alibi, learned"),
            (["model.encoding=alibi", "model.encoding.base=3"], "model.encoding.base", "alibi has no settings"),
            (["model.encoding.base=3", "model.encoding=alibi"], "model.encoding.base", "alibi has no settings"),
            (["model.encoding.qqq=3"], "model.encoding.qqq", "no such key; rope has base, layout"),
            (
                ["model.qqq=3"],
                "model.qqq",
                "no such key; there are width, window, label, encoding, other, parts, named",
            ),
            (["encoding=rope"], "encoding", "Did you mean model.encoding?"),
            (["model.base=3"], "model.base", "Did you mean model.encoding.base?"),
            (["model.encoding.window=3"], "model.encoding.window", "Did you mean model.window?"),
            (["model.rope_theta=3"], "model.rope_theta", "Did you mean model.encoding.base?"),
            (["model.d_model=3"], "model.d_model", "Did you mean model.width?"),
            (["model.encoding.type=rope"], "model.encoding.type", "Did you mean model.encoding.kind?"),
            (["model.named.x=rope", "model.named.x.bas=2"], "model.named.x.bas", "Did you mean model.named.x.base?"),
            (["model.parts=[alibi, rope]", "model.parts.1.bas=2"], "model.parts.1.bas", "mean model.parts.1.base?"),
            (["model=3"], "model", "should be `key: value` lines, got 3"),
            (["model.width=1.5"], "model.width", "should be a valid integer, got 1.5"),
        ],
    )
    def test_what_is_said(self, assignments: list[str], key: str, says: str) -> None:
        got = said(*assignments)
        assert list(got) == [key]
        assert says in got[key]

    def test_too_few_and_too_many(self) -> None:
        class Pair(Settings):
            of: tuple[int, ...] = Field(min_length=2, max_length=3)

        for entries, says in (
            ("[1]", "needs at least 2 entries, has 1"),
            ("[1, 2, 3, 4]", "needs at most 3 entries, has 4"),
        ):
            with pytest.raises(BadConfig) as caught:
                load(Pair, None, [f"of={entries}"])
            assert dict(caught.value.problems) == {"of": says}

    def test_control_characters_do_not_reach_the_terminal(self, tmp_path: Path) -> None:
        (tmp_path / "x.yaml").write_text('model: {"\\e[31mred": "\\e[0m", width: "\\e[2J"}', encoding="utf-8")
        with pytest.raises(BadConfig) as caught:
            load(Root, tmp_path / "x.yaml")
        assert "\x1b" not in str(caught.value)

    def test_without_the_data(self) -> None:
        with pytest.raises(ValidationError) as caught:
            Root.model_validate({"model": {"widht": 3}})
        assert str(problems(caught.value, Root, "here")) == (
            "here, 1 problem:\n  model.widht   no such key. Did you mean model.width?"
        )


class TestYaml:
    @pytest.mark.parametrize(
        ("text", "want"),
        [
            ("1e-3", 1e-3),
            ("5E+5", 5e5),
            ("-.5", -0.5),
            ("1_000_000", 1_000_000),
            ("010", 10),
            ("0x1f", 31),
            ("0o17", 15),
            (".inf", float("inf")),
            ("no", "no"),
            ("on", "on"),
            ("none", "none"),
            ("true", True),
            ("12:30", "12:30"),
            ("2024-01-01", "2024-01-01"),
            ("16k", "16k"),
            ("~", None),
            ("", None),
            ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ],
    )
    def test_plain_values(self, text: str, want: Any) -> None:
        got = parse(text)
        assert (type(got), got) == (type(want), want)

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("a: 1\nb: 2\na: 3", "line 3: the key a is there twice"),
            ("x: {a: 1, a: 1}", "line 1: the key a is there twice"),
            ("1: a", "the key 1 is no word"),
            ("[a]: b", "the key that is a list or a mapping is no word"),
            ("true: b", "the key true is no word"),
            ("a: &x {b: 1}\nd: {<<: *x}", "line 2: << is not supported; write the keys out"),
            ("a: {!!merge x: {b: 1}}", "<< is not supported"),
            ("{a", "line 1: expected"),
            ("a: b: c", "line 1: mapping values are not allowed"),
            ("a\tb: 1\n\t- c", "line"),
            ("\x00", "no YAML"),
            ("!!python/object/apply:os.system [ls]", "could not determine a constructor"),
            ("!!timestamp 2024-01-01", "is a date, which no config has"),
            ("!!set {a}", "is a set, which no config has"),
            ("!!int x", "invalid literal"),
            ("&a [*a]", "nested deeper than 64"),
            ("[" * 100_000, "nested deeper than 64"),
            ("[" * 100 + "]" * 100, "nested deeper than 64"),
            (LAUGHS, "more than 100,000 values"),
            (f"{LAUGHS}- {{? *a30 : 1}}", "the key that is a list or a mapping is no word"),
        ],
    )
    def test_what_is_refused(self, text: str, says: str) -> None:
        with pytest.raises(ValueError, match=says):
            parse(text)

    @given(st.dictionaries(st.text(), values))
    def test_what_is_written_reads_back(self, data: dict) -> None:
        assert parse(to_yaml(data)) == data

    def test_lists_stand_on_one_line(self) -> None:
        text = to_yaml({"layers": {"count": 6, "pattern": ["local", "global"]}, "parts": [{"kind": "rope"}]})
        assert text == "layers:\n  count: 6\n  pattern: [local, global]\nparts:\n- kind: rope\n"


class TestRead:
    def test_a_byte_order_mark_is_no_key(self, tmp_path: Path) -> None:
        (tmp_path / "x.yaml").write_bytes(b"\xef\xbb\xbfmodel: 1")
        assert read(tmp_path / "x.yaml") == {"model": 1}

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (b"- a\n- b", r"holds \['a', 'b'\], not `key: value` lines"),
            (b"\xff\xfe\x00", "codec"),
            (b"a: 1\na: 2", "line 2: the key a is there twice"),
            (b"#" * 300_000, "larger than 262,144 bytes"),
        ],
    )
    def test_what_is_refused(self, tmp_path: Path, content: bytes, says: str) -> None:
        (tmp_path / "x.yaml").write_bytes(content)
        with pytest.raises(BadConfig, match=says) as caught:
            read(tmp_path / "x.yaml")
        assert str(caught.value).startswith(f"{tmp_path / 'x.yaml'}, 1 problem:")

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        (tmp_path / "recipe.yaml").touch()
        with pytest.raises(BadConfig, match=r"no such file. Did you mean .*recipe\.yaml\?"):
            read(tmp_path / "recpie.yaml")
        with pytest.raises(BadConfig, match=r"no such file$"):
            read(tmp_path / "nowhere" / "x.yaml")
        with pytest.raises(BadConfig, match="cannot be read: Is a directory"):
            read(tmp_path)
