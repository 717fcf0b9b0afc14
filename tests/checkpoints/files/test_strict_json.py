"""JSON that two programs could read in two ways is refused with the key that does it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.files import strict_json
from ropewalk.checkpoints.files.strict_json import parse_json, read_json


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        ('{"rope_theta": NaN}', "rope_theta", "NaN is not a finite number"),
        ('{"a": {"b": [1, -Infinity]}}', "a.b[1]", "-Infinity"),
        ('{"a": [{"b": 1e999}]}', "a[0].b", "1e999"),
        ('{"a": ' + "9" * 41 + "}", "a", "40 digits"),
        ('{"a": ' + "9" * 5000 + "}", "a", "40 digits"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "c", "given twice"),
        ('{"a": "\\ud800"}', "a", "surrogate"),
        ('{"\\udfff": 1}', "\udfff", "surrogate"),
        ("[" * 70 + "]" * 70, "nesting", "deeper than 64"),
        ("[" * 200_000, "nesting", "deeper than 64"),
        ('{"a":' * 100 + "1" + "}" * 100, "nesting", "deeper than 64"),
        ("{", "line 1 column 2", "is not JSON"),
        ('{"a": 1} x', "line 1 column 10", "is not JSON"),
        ("\ufeff{}", "line 1 column 1", "is not JSON"),
        ("{'a': 1}", "line 1 column 2", "is not JSON"),
        ("", "line 1 column 1", "is not JSON"),
        ('{"a": 01}', "line 1 column 8", "is not JSON"),
        ("[" + "[]," * 300_000 + "[]]", "size", "500,000 is the most"),
    ],
)
def test_refuses(text: str, field: str, says: str) -> None:
    with pytest.raises(BadInput, match=r"^config\.json: ") as caught:
        parse_json(text.encode(), "config.json")
    assert caught.value.field == field
    assert says in str(caught.value)


def test_refuses_what_is_not_utf8() -> None:
    with pytest.raises(BadInput, match=r"config\.json: byte 2: is not UTF-8"):
        parse_json(b'{"\xff": 1}', "config.json")


def test_refuses_wide_text_past_a_config_s_size() -> None:
    with pytest.raises(BadInput, match="not plain ASCII"):
        parse_json(b'{"a": "\xf0\x9f\xa7\xb6' + b" " * strict_json.MOST_BYTES + b'"}', "config.json")


def test_a_file_is_an_object_of_bounded_size(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"a": [1, 2.5, null, true, "x"], "model_max_length": 1000000000000000019884624838656}')
    assert read_json(file) == {"a": [1, 2.5, None, True, "x"], "model_max_length": int(1e30)}
    file.write_text("[1]")
    with pytest.raises(BadInput, match="top level: is a list"):
        read_json(file)
    file.write_text(" " * 100)
    with pytest.raises(BadInput, match="size: is 100 bytes, 99 is the most"):
        read_json(file, most=99)
    with pytest.raises(BadInput, match="path: does not exist"):
        read_json(tmp_path / "none.json")
    with pytest.raises(BadInput, match="path: is not a file"):
        read_json(tmp_path)


def test_a_gigabyte_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    with file.open("wb") as hollow:
        hollow.truncate(1 << 30)
    with pytest.raises(BadInput, match="1,073,741,824 bytes"):
        read_json(file)


def test_an_error_shows_foreign_names_as_letters_and_travels_between_processes() -> None:
    error = BadInput("a\x1b[31m.json", "\u202ename\x00" + "x" * 500, "is bad", "mend it")
    shown = str(error)
    assert shown.isprintable()
    assert len(shown) < 300
    assert r"a\x1b[31m.json: \u202ename\x00xxx" in shown
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (copy.file, copy.field, str(copy)) == (error.file, error.field, shown)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    # A lone half of a surrogate pair is not text.
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=20,
)


@given(value=VALUES, ascii_only=st.booleans())
def test_agrees_with_python_on_what_both_read(value: object, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert parse_json(text.encode(), "config.json") == json.loads(text)
