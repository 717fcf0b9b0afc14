"""`ropewalk list` says what the code says."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from ropewalk import encodings, scaling
from tests.cli.conftest import Ropewalk


def rows(text: str) -> list[list[str]]:
    """The cells of a printed table; columns are two spaces apart."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]


def test_every_encoding_is_listed_once(ropewalk: Ropewalk) -> None:
    answer = ropewalk("list", "encodings", "--quiet")
    assert answer.code == 0
    assert answer.stdout.split() == list(encodings.names())
    assert answer.stderr == ""


def test_facts_of_encodings(ropewalk: Ropewalk) -> None:
    found = {entry["kind"]: entry for entry in ropewalk("list", "encodings", "--json").data}
    assert {key: value for key, value in found["rope"].items() if key != "claims"} == {
        "kind": "rope",
        "class": "RoPE",
        "sites": ["rotate"],
        "learned": False,
        "arxiv": ["2104.09864"],
        "about": "RoPE: queries and keys are rotated by angles proportional to their positions (Su et al., 2021).",
    }
    assert (found["chain"]["sites"], found["chain"]["learned"], found["chain"]["claims"]) == (None, None, None)


@pytest.mark.parametrize("kind", [kind for kind in encodings.names() if kind != "chain"])
def test_facts_are_those_of_the_built_encoding(ropewalk: Ropewalk, kind: str) -> None:
    needed = {"learned": {"longest": 9}, "temperature": {"trained": 9}}.get(kind, {})
    built = encodings.build({"kind": kind, **needed}, width=32, heads=4, head_width=8)
    (entry,) = [entry for entry in ropewalk("list", "encodings", "--json").data if entry["kind"] == kind]
    assert (entry["class"], set(entry["sites"])) == (type(built).__name__, built.sites)
    assert entry["learned"] == bool(list(built.parameters()))
    claims = asdict(built.claims)
    assert entry["claims"] == {"bounded": claims.pop("longest") is not None, **claims}


def test_the_table_says_what_json_says(ropewalk: Ropewalk) -> None:
    data = ropewalk("list", "encodings", "--json").data
    heading, *table = rows(ropewalk("list", "encodings").stdout)
    assert heading == ["kind", "class", "sites", "learned", "arXiv", "claims", "about"]
    assert len(table) == len(data)
    for row, entry in zip(table, data, strict=True):
        kind, name, sites, learned, arxiv, claims, about = row
        assert (kind, name, about) == (entry["kind"], entry["class"], entry["about"])
        assert arxiv == (", ".join(entry["arxiv"]) or "-")
        if entry["sites"] is None:
            assert (sites, learned, claims) == ("its parts",) * 3
            continue
        assert sites == (", ".join(entry["sites"]) or "-")
        assert learned == ("yes" if entry["learned"] else "no")
        said = {
            "shift_invariant": "shift invariant" in claims,
            "keeps_norm": "changes norm" not in claims,
            "bidirectional": "causal only" not in claims,
            "pointwise": "not pointwise" not in claims,
            "needs_limit": "needs limit" in claims,
            "bounded": "bounded" in claims,
        }
        assert said == entry["claims"], kind


def test_an_encoding_outside_the_package(ropewalk: Ropewalk, cable: str) -> None:
    entry = ropewalk("list", "encodings", cable, "--json").data[-1]
    assert (entry["kind"], entry["class"], entry["sites"], entry["arxiv"]) == (cable, "Cable", ["bias"], ["2601.00001"])
    assert entry["about"] == "Cable: a bias that sags with distance (nobody, 2026)."


def test_an_encoding_that_is_not_there(ropewalk: Ropewalk) -> None:
    answer = ropewalk("list", "encodings", "nowhere.cable")
    assert (answer.code, answer.stdout) == (3, "")
    assert "nowhere.cable" in answer.stderr


def test_facts_of_scalings(ropewalk: Ropewalk) -> None:
    data = ropewalk("list", "scalings", "--json").data
    assert [entry["kind"] for entry in data] == list(scaling.names())
    for entry in data:
        found = scaling.find(entry["kind"])
        assert (entry["class"], entry["rope_type"]) == (found.__name__, found.hf_type)
        assert entry["about"].endswith(".")
        assert entry["arxiv"]


@pytest.mark.parametrize("quiet", [False, True])
def test_the_table_of_scalings(ropewalk: Ropewalk, quiet: bool) -> None:
    data = ropewalk("list", "scalings", "--json").data
    table = rows(ropewalk("list", "scalings", *(["--quiet"] if quiet else [])).stdout)
    whole = [[e["kind"], e["class"], e["rope_type"] or "-", ", ".join(e["arxiv"]), e["about"]] for e in data]
    assert table == (
        [[e["kind"]] for e in data] if quiet else [["kind", "class", "rope_type", "arXiv", "about"], *whole]
    )
