"""Holds mutants to the suite.

python -m ropewalk.conformance.mutants                    every mutant, by the requirement named for it
python -m ropewalk.conformance.mutants NAME ...           these, by all requirements
python -m ropewalk.conformance.mutants --matrix           the page of the kill matrix; some minutes
"""

from __future__ import annotations

import argparse
import sys

from ropewalk.conformance.mutants import MUTANTS, SPECS, matrix
from ropewalk.conformance.run import verify


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("names", nargs="*", metavar="NAME", help="mutants")
    options.add_argument("--matrix", action="store_true", help="print docs/en/mutants.md")
    given = options.parse_args()
    if unknown := [name for name in given.names if name not in MUTANTS]:
        print(f"no mutant {', '.join(unknown)}; without a name, all are listed", file=sys.stderr)
        return 2
    if given.matrix:
        rows = {name: matrix.of_mutant(mutant) for name, mutant in MUTANTS.items()}
        print(matrix.page(rows, {name: matrix.of_reference(name) for name in SPECS}), end="")
        return int(bool(matrix.survivors(rows)))
    alive = []
    for name in given.names or MUTANTS:
        mutant = MUTANTS[name]
        report = verify(mutant.target, only=None if given.names else mutant.kills)
        dead = report[mutant.kills].status == "failed"
        alive += [] if dead else [name]
        print(f"{'killed' if dead else 'ALIVE '} by {mutant.kills}  {name}")
        if given.names:
            print(f"  - {mutant.lines[0]}\n  + {mutant.lines[1]}\n\n{report}\n")
    print(f"{len(given.names or MUTANTS)} mutants, {len(alive)} alive")
    return int(bool(alive))


if __name__ == "__main__":
    sys.exit(main())
