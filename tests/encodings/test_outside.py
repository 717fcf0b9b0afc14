"""An encoding from outside the package, by CONTRIBUTING.md to the letter: one file, one row, all else finds it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from ropewalk import encodings
from ropewalk.cli.main import app
from ropewalk.encodings.find import NotAllowed, parse
from ropewalk.models import TransformerConfig
from tests.attention import test_invariance
from tests.encodings import rows, test_gradients, test_promises, test_sites

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture
def row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[rows.Row]:
    """The file and the row as the document prints them, the kind being the module's dotted name."""
    section = CONTRIBUTING.read_text().partition("## Add an encoding")[2].partition("\n## ")[0]
    file, printed = re.findall(r"^```python\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)
    package = tmp_path / "my_pkg"
    package.mkdir()
    (package / "cable.py").write_text(file.replace('"cable"', '"my_pkg.cable"'))
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield eval(printed.replace('"cable"', '"my_pkg.cable"'), vars(rows))  # noqa: S307
    forget()


def forget() -> None:
    """Other tests make packages of this name, too."""
    for name in [name for name in sys.modules if name.split(".")[0] == "my_pkg"]:
        del sys.modules[name]


def test_it_is_listed(row: rows.Row) -> None:
    done = CliRunner().invoke(app, ["list", "encodings", "my_pkg.cable", "--json"])
    assert done.exit_code == 0, done.output
    (found,) = (entry for entry in json.loads(done.stdout) if entry["kind"] == "my_pkg.cable")
    assert found["sites"] == ["bias"]


def test_a_config_builds_it(row: rows.Row) -> None:
    config = TransformerConfig(width=64, heads=4, layers=2, encoding={"kind": "my_pkg.cable", "slack": 2.0})
    assert config.encoding.slack == 2.0
    assert [layer.kind for layer in config.plan().layers] == ["my_pkg.cable"] * 2
    with pytest.raises(ValueError, match="greater than 0"):
        encodings.build({"kind": "my_pkg.cable", "slack": -1}, heads=4)


@pytest.mark.parametrize(
    "check",
    [
        test_sites.test_embed,
        test_sites.test_bias,
        test_sites.test_no_buffers_and_no_state,
        test_sites.test_positions_of_any_shape_agree,
        test_sites.test_claim_shift_invariant,
        test_sites.test_claim_keeps_norm,
        test_sites.test_built_on_meta_and_filled,
        test_invariance.test_windowed_ring_equals_one_pass,
        test_invariance.test_heads_of_a_rank_equal_slice,
        test_invariance.test_a_row_that_sees_nothing_gives_zero,
        test_promises.test_compiles_whole_and_at_most_twice_over_eight_lengths,
        test_gradients.test_inputs,
    ],
    ids=lambda check: check.__name__,
)
def test_it_passes_what_every_encoding_passes(row: rows.Row, check, monkeypatch: pytest.MonkeyPatch) -> None:
    test_invariance.without_tracing(monkeypatch)
    check(row)


@pytest.mark.parametrize(
    "check",
    [
        test_invariance.test_backends_agree,
        test_invariance.test_decoding_and_chunks_equal_one_pass,
        test_invariance.test_packed_equals_separate,
        test_invariance.test_padding_on_either_side_equals_alone,
        test_invariance.test_shuffled_shard_equals_slice,
    ],
    ids=lambda check: check.__name__,
)
def test_it_passes_the_invariances_in_float32(row: rows.Row, check, monkeypatch: pytest.MonkeyPatch) -> None:
    test_invariance.without_tracing(monkeypatch)
    check(row, torch.float32)


def test_it_is_not_imported_where_it_is_not_allowed(row: rows.Row) -> None:
    with pytest.raises(NotAllowed, match="was not allowed"):
        parse("my_pkg.cable", kinds=())
    assert "my_pkg.cable" not in sys.modules
    assert parse("alibi", kinds=()).kind == "alibi"
    assert parse("my_pkg.cable", kinds=("my_pkg.cable",)).kind == "my_pkg.cable"


def test_one_of_several_in_a_module_is_found_by_its_class(row: rows.Row, tmp_path: Path) -> None:
    one = (tmp_path / "my_pkg" / "cable.py").read_text()
    (name,) = re.findall(r"^class (\w+)\(Encoding\)", one, flags=re.MULTILINE)
    both = one.replace("my_pkg.cable", f"my_pkg.both.{name}") + f"\n\nclass Other({name}):\n    pass\n"
    (tmp_path / "my_pkg" / "both.py").write_text(both)
    assert encodings.find(f"my_pkg.both.{name}").__name__ == name
    with pytest.raises(ValueError, match="it must be 'my_pkg"):
        encodings.find(f"my_pkg.cable.{name}")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("roep", "Did you mean rope"),
        ("my_pkg.nothing", "no importable module"),
        ("no_such_pkg.cable", "no importable module"),
        (".x", "no module's name"),
        ("json.decoder", "must define exactly one Encoding, it defines 0"),
    ],
)
def test_unknown_kinds_are_answered(row: rows.Row, kind: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        encodings.build(kind)
