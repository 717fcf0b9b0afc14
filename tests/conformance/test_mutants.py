"""The suite tested: it sees every mutant of the museum, and nothing wrong in what they are mutants of."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ropewalk.conformance.checks import every
from ropewalk.conformance.mutants import MUTANTS, SPECS, Mutant, Reference, edited, matrix
from ropewalk.conformance.mutants.mutant import text
from ropewalk.conformance.run import verify

REPOSITORY = Path(__file__).parents[2]
# Held to everything, as users hold their own: one of each kind.
WHOLE = ("litgpt_2202_inverted_ramp", "transformers_35350_position_is_the_cache_length", "attention_gym_86_alibi_sign")

pytestmark = pytest.mark.no_poison  # the suite brings its own poison, and mutants read what they should not


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=list(MUTANTS))
def test_is_killed_by_the_requirement_named_for_it(mutant: Mutant) -> None:
    result = verify(mutant.target, only=mutant.kills)[mutant.kills]
    assert result.status == "failed", f"{mutant.name} survives {mutant.kills}: {result.status}, {result.why}"


@pytest.mark.parametrize(("spec", "kills"), sorted({(mutant.of, mutant.kills) for mutant in MUTANTS.values()}))
def test_without_its_line_nothing_is_seen(spec: str, kills: str) -> None:
    result = verify(Reference(SPECS[spec]), only=kills)[kills]
    assert result.status == "passed", result.why


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=list(MUTANTS))
def test_differs_by_one_line(mutant: Mutant) -> None:
    right, wrong = text().splitlines(), edited(mutant.right, mutant.wrong).splitlines()
    changed = [(a.strip(), b.strip()) for a, b in zip(right, wrong, strict=True) if a != b]
    assert changed == [mutant.lines]


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=list(MUTANTS))
def test_is_named_after_a_public_issue(mutant: Mutant) -> None:
    assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", mutant.issue)
    assert f"_{mutant.issue.partition('#')[2]}_" in mutant.name
    assert mutant.kills in every()
    assert mutant.why.endswith(".")


def test_every_public_bug_of_the_year_is_named_by_a_mutant_or_said_not_to_be_seen() -> None:
    bugs = matrix.texts()["bugs"]
    for bug in bugs:
        mutants = matrix.named(bug["threads"])
        assert bool(mutants) != bool({"inspect", "unseen"} & set(bug)), bug["threads"]
        if mutants:
            assert {thread for m in mutants for thread in (m.issue, *m.also)} >= set(bug["threads"])
    threads = [thread for bug in bugs for thread in bug["threads"]]
    assert len(threads) == len(set(threads))
    unseen = sum("unseen" in bug for bug in bugs)
    assert (len(bugs), sum("inspect" in bug for bug in bugs), unseen) == (30, 1, 2)
    rows = published()["rows"]["mutants"]
    assert f"{len(bugs) - 1 - unseen} of {len(bugs)}" in matrix.bugs(rows, "en")[0]
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", thread) for thread in threads)


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 34
    assert len({(mutant.right, mutant.wrong, mutant.of) for mutant in MUTANTS.values()}) == len(MUTANTS)


@pytest.mark.parametrize("requirement", [one for one in every() if one not in matrix.APART])
def test_what_is_wrong_elsewhere_is_not_blamed(requirement: str) -> None:
    """That something is wrong with it, and that only one requirement sees the other one, the published rows say."""
    mutant = MUTANTS[matrix.BLAMELESS[requirement]]
    assert mutant.kills != requirement
    result = verify(mutant.target, only=requirement)[requirement]
    assert result.status == "passed", f"{requirement} blames {mutant.name}: {result.what}, {result.why}"


def test_the_table_has_no_empty_cell_and_is_of_these_sources() -> None:
    """Checks or mutants were changed since: python -m campaigns.mutants runs what it must, and writes the table."""
    from campaigns.mutants import sources

    rows = published()["rows"]["mutants"]
    assert matrix.empty(rows) == []
    assert all(matrix.own(rows).values())
    assert {MUTANTS[name].kills: name for name in matrix.OWN.values()} == matrix.OWN
    assert published()["sources"] == sources(), "stale: python -m campaigns.mutants"
    each = [row["sources"] for kind in published()["rows"].values() for row in kind.values()]
    assert set(each) == {sources()}, "stale rows: python -m campaigns.mutants"


def test_a_requirement_run_again_replaces_what_a_row_had_of_it() -> None:
    old = {"kills": "C09", "failed": "C09", "passed": "N01 C10", "not applicable": "N09", "seconds": 2.0, "said": "old"}
    new = {"kills": "C09", "failed": "C09 C10", "passed": "N12", "not applicable": "", "seconds": 0.5, "said": "new"}
    row = matrix.merged(old, new)
    assert (row["failed"], row["passed"], row["not applicable"]) == ("C09 C10", "N01 N12", "N09")
    assert (row["kept"], row["said"], row["seconds"]) == ("N01 N09", "new", 2.5)


def test_an_empty_cell_would_be_seen() -> None:
    rows = json.loads(json.dumps(published()["rows"]["mutants"]))
    rows[matrix.OWN["N10"]]["failed"] = "N10 C01"
    rows[matrix.BLAMELESS["C05"]]["passed"] = ""
    assert set(matrix.empty(rows)) >= {"N10", "C05"}
    assert "**none**" in "\n".join(matrix.table(rows, "en"))


def test_every_requirement_is_named_for_a_mutant() -> None:
    assert {mutant.kills for mutant in MUTANTS.values()} == set(every()) - set(matrix.APART)


@pytest.mark.parametrize("name", ["rope", "deepseek", "dynamic", "alibi", "t5"])
def test_the_reference_holds_everything(name: str) -> None:
    report = verify(Reference(SPECS[name], name))
    report.raise_for_failures()
    assert report.counts["passed"] >= 20


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_every_reference_holds_everything(name: str) -> None:
    verify(Reference(SPECS[name], name)).raise_for_failures()


@pytest.mark.parametrize("name", WHOLE)
def test_the_whole_suite_sees_it_as_published(name: str) -> None:
    """The published row is what a run gives now."""
    now = matrix.of_mutant(MUTANTS[name])
    assert now["failed"] == published()["rows"]["mutants"][name]["failed"]


def test_what_is_published_is_this_museum() -> None:
    result = published()
    rows, references = result["rows"]["mutants"], result["rows"]["references"]
    assert list(rows) == list(MUTANTS)
    assert list(references) == list(SPECS)
    assert {name: row["kills"] for name, row in rows.items()} == {m.name: m.kills for m in MUTANTS.values()}
    assert matrix.survivors(rows) == []
    assert matrix.idle(rows) == []
    assert [name for name, row in references.items() if row["failed"]] == []
    for language in ("en", "zh"):
        page = (REPOSITORY / "docs" / language / "mutants.md").read_text(encoding="utf-8")
        assert page == matrix.page(rows, references, language), "python -m campaigns.mutants writes it anew"
    assert list(matrix.texts()["why"]) == list(MUTANTS)


def published() -> dict[str, object]:
    return json.loads((REPOSITORY / "campaigns" / "results" / "mutants.json").read_text(encoding="utf-8"))
