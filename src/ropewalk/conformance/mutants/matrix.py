"""The kill matrix: every mutant, and every reference, run against every requirement; and the page that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.conformance.checks import every
from ropewalk.conformance.mutants import MUTANTS, SPECS, Mutant, Reference
from ropewalk.conformance.run import Report, verify
from ropewalk.conformance.spec import PAGES

APART = ("C32",)
"""Requirements that have no bound, and so kill nothing."""


def of_mutant(mutant: Mutant) -> dict[str, Any]:
    report = verify(mutant.target)
    return {"kills": mutant.kills, **statuses(report), "said": report[mutant.kills].why or report[mutant.kills].what}


def of_reference(name: str) -> dict[str, Any]:
    return statuses(verify(Reference(SPECS[name], name)))


def statuses(report: Report) -> dict[str, Any]:
    found = {
        status: " ".join(result.id for result in report.of(status)) for status in ("failed", "passed", "not applicable")
    }
    return {**found, "seconds": round(report.seconds, 2)}


def survivors(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Mutants that the check named for them does not see."""
    return [name for name, row in rows.items() if row["kills"] not in row["failed"].split()]


def idle(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Checks for which no mutant is named, or that do not see the one that is."""
    busy = {row["kills"] for row in rows.values() if row["kills"] in row["failed"].split()}
    return [name for name in every() if name not in busy and name not in APART]


def page(mutants: Mapping[str, Mapping[str, Any]], references: Mapping[str, Mapping[str, Any]]) -> str:
    """docs/en/mutants.md."""
    failed = [name for name, row in references.items() if row["failed"]]
    killed = len(mutants) - len(survivors(mutants))
    kinds = len({row["kills"] for row in mutants.values()})
    lines = [
        "# The mutant museum",
        "",
        "A suite that nothing fails proves nothing. Each mutant below is one correct implementation,",
        "`ropewalk/conformance/mutants/reference.py`, with **one line** replaced by the line of a public bug.",
        "The suite must see every one, by the requirement named for it, and nothing in the implementation itself.",
        "",
        f"- {killed} of {len(mutants)} mutants are killed by the requirement named for them.",
        f"- {kinds} requirements are named for at least one mutant"
        f"{'; none for ' + ', '.join(idle(mutants)) if idle(mutants) else ', which is all that have a bound'}.",
        f"- The implementation itself, in {len(references)} configurations: "
        f"{'nothing is found' if not failed else 'something is found in ' + ', '.join(failed)}.",
        "",
        "Written by `python -m campaigns.mutants`; the same as data: `campaigns/results/mutants.json`. To see one die:",
        "",
        "```console",
        "$ ropewalk verify ropewalk.conformance.mutants:sglang_33558_gain_squared",
        "```",
        "",
        "An issue's number names the kind of bug and where it can be read about. The line is ours: written to do the",
        "same wrong, not taken from there.",
        "",
        "## Who kills whom",
        "",
        "In bold the requirement named for the mutant; after it the others that fail too.",
        "",
        "| mutant | claims to be | killed by | and by |",
        "|---|---|---|---|",
    ]
    for name, row in mutants.items():
        named = link(row["kills"]) if row["kills"] in row["failed"].split() else f"**not by {row['kills']}**"
        others = ", ".join(found for found in row["failed"].split() if found != row["kills"]) or "-"
        lines.append(f"| [{name}](#{name}) | {MUTANTS[name].of} | {named} | {others} |")
    lines += ["", "## What each requirement kills", "", "| requirement | mutants | named for it |", "|---|---|---|"]
    for check in every().values():
        if check.id in APART:
            continue
        kills = sum(check.id in row["failed"].split() for row in mutants.values())
        own = ", ".join(f"[{name}](#{name})" for name, row in mutants.items() if row["kills"] == check.id)
        lines.append(f"| [{check.id}]({anchor(check.id)}) {check.title} | {kills} | {own} |")
    lines += ["", "## The mutants", ""]
    for name, row in mutants.items():
        lines += exhibit(MUTANTS[name], row)
    return "\n".join(lines).rstrip() + "\n"


def exhibit(mutant: Mutant, row: Mapping[str, Any]) -> list[str]:
    said = f" The suite says: {row['said']}." if row["said"] else ""
    return [
        f"### {mutant.name}",
        "",
        f"{mutant.why} Like [{mutant.issue}]({mutant.url}); killed by {link(mutant.kills)}.{said}",
        "",
        "```diff",
        f"- {mutant.lines[0]}",
        f"+ {mutant.lines[1]}",
        "```",
        "",
    ]


def anchor(id: str) -> str:
    return f"{PAGES.rpartition('/')[2]}#{id.lower()}"


def link(id: str) -> str:
    return f"**[{id}]({anchor(id)})**"
