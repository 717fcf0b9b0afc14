"""Every mutant of the museum run against every requirement: who kills whom, for mutants.md of docs/en and docs/zh.

    python -m campaigns.mutants [--count 1000] [--only N12,C36] [--json]

Rows that campaigns/results/mutants.json already has, from the same sources, are not run again; each is written when it
is done, so a run that was ended goes on where it was. With --only, after a requirement was added or changed: rows of
other sources keep what they have of all other requirements, and the result says of how many pairs that is. The bars: no
mutant that the requirement named for it does not see, no requirement that sees none of those named for it or has no
mutant that it alone sees, none that blames what is wrong elsewhere, nothing found in the references.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import bars

REPOSITORY = Path(__file__).parents[1]
RESULTS = REPOSITORY / "campaigns" / "results" / "mutants.json"
PAGES = {language: REPOSITORY / "docs" / language / "mutants.md" for language in ("en", "zh")}
COMMAND = "OMP_NUM_THREADS=1 python -m campaigns.mutants"


def main() -> int:
    import torch

    from ropewalk.conformance.mutants import MUTANTS, SPECS, matrix

    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=1000, help="rows to run before it ends")
    options.add_argument("--only", default="", help="run these requirements again and keep the rows' others: N12,C36")
    options.add_argument("--json", action="store_true", help="print the result as JSON")
    given = options.parse_args()
    torch.set_num_threads(1)
    rows, now = before(bool(given.only)), sources()
    left = given.count
    for kind, names in (("references", SPECS), ("mutants", MUTANTS)):
        for name in names:
            old = rows[kind].get(name)
            if kind == "mutants" and old is not None and old.get("line") != MUTANTS[name].lines[1]:
                old = None  # another mutant than it was
            if (old is not None and old["sources"] == now) or not left:
                continue
            only = None if old is None else given.only
            row = matrix.of_mutant(MUTANTS[name], only) if kind == "mutants" else matrix.of_reference(name, only)
            rows[kind][name] = {**(row if old is None else matrix.merged(old, row)), "sources": now}
            left -= 1
            keep(rows)
            print(f"{name}: {rows[kind][name]['failed'] or 'nothing'}", file=sys.stderr, flush=True)
    rows = {"references": {name: rows["references"][name] for name in SPECS if name in rows["references"]},
            "mutants": {name: rows["mutants"][name] for name in MUTANTS if name in rows["mutants"]}}  # fmt: skip
    result = keep(rows)
    if len(rows["mutants"]) == len(MUTANTS):
        for language, page in PAGES.items():
            page.write_text(matrix.page(rows["mutants"], rows["references"], language), encoding="utf-8")
    return bars.tell(result, as_json=given.json)


def sources() -> str:
    """What the rows depend on: the checks and the museum, without their comments, docstrings and layout."""
    digest = hashlib.sha256()
    folder = REPOSITORY / "src" / "ropewalk" / "conformance"
    judges = [folder / f"{name}.py" for name in ("findings", "oracles", "places", "surround", "target", "diagnose")]
    museum = [file for file in folder.glob("mutants/*.py") if file.stem not in ("matrix", "__main__")]
    for file in sorted([*judges, *folder.glob("checks/*.py"), *museum]):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list):
                node.body = [one for one in body if not is_text(one)]  # type: ignore[attr-defined]
        digest.update(ast.dump(tree).encode())
    return digest.hexdigest()[:16]


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def before(any_sources: bool = False) -> dict[str, Any]:
    """The rows that were run before, of these sources or of any."""
    rows: dict[str, Any] = {"references": {}, "mutants": {}}
    if RESULTS.exists():
        found, now = json.loads(RESULTS.read_text(encoding="utf-8")), sources()
        for kind, names in found["rows"].items():
            each = {name: {"sources": found["sources"], **row} for name, row in names.items()}
            rows[kind] = {name: row for name, row in each.items() if any_sources or row["sources"] == now}
    return rows


def keep(rows: dict[str, Any]) -> dict[str, Any]:
    from ropewalk.conformance.mutants import MUTANTS, matrix

    mutants, references = rows["mutants"], rows["references"]
    seconds = sum(row["seconds"] for kind in rows.values() for row in kind.values())
    result = {
        "command": COMMAND,
        "bars": {
            "mutants not run": bars.bar(len(MUTANTS) - len(mutants), 0, at_least=False),
            "mutants that survive": bars.bar(len(matrix.survivors(mutants)), 0, at_least=False),
            "requirements that kill none of theirs": bars.bar(len(matrix.idle(mutants)), 0, at_least=False),
            "requirements without a mutant of their own, or without one not to blame": bars.bar(
                len(matrix.empty(mutants)), 0, at_least=False
            ),
            "requirements failed by a reference": bars.bar(
                sum(len(row["failed"].split()) for row in references.values()), 0, at_least=False
            ),
        },
        "measured": {
            "mutants": len(mutants),
            "references": len(references),
            "pairs kept from other sources (--only)": sum(
                len(row.get("kept", "").split()) for kind in rows.values() for row in kind.values()
            ),
            "pairs of mutant and requirement, failed": sum(len(row["failed"].split()) for row in mutants.values()),
            "seconds": round(seconds, 1),
        },
        "versions": bars.versions(()),
        "sources": sources(),
        "rows": rows,
    }
    partial = RESULTS.with_suffix(".part")
    partial.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    partial.replace(RESULTS)
    return result


if __name__ == "__main__":
    sys.exit(main())
