"""Every benchmark with a bar, one after the other, into one file.

    python benchmarks/every.py [--out benchmarks/results.json] [--only rope biases] [--rounds N]

Run it on a machine that does nothing else; the load when each began stands beside its figures. What is done is kept at
once, so that a run which was ended continues with the same command. Exits with 1 where a bar does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import bars

HERE = Path(__file__).parent
SCRIPTS = ("rope", "block", "biases", "decode", "dropout", "train", "likelihood")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=HERE / "results.json", help="results.json beside this file")
    options.add_argument(
        "--only", nargs="+", choices=SCRIPTS, default=SCRIPTS, help="these, again where they are there"
    )
    options.add_argument("--rounds", type=int, help="for all of them, in place of their own")
    given = options.parse_args()
    said: dict[str, Any] = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else {}
    for name in given.only:
        if name in said and given.only is SCRIPTS:
            continue
        print(name, file=sys.stderr, flush=True)
        said[name] = measured(name, given.rounds)
        given.out.write_text(json.dumps(said, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    merged = {f"{name}: {bar}": value for name, each in said.items() for bar, value in each["bars"].items()}
    return bars.tell({"bars": merged, "measured": {}, "versions": bars.versions(())}, as_json=False)


def measured(name: str, rounds: int | None) -> dict[str, Any]:
    command = [
        sys.executable,
        str(HERE / f"{name}.py"),
        "--json",
        *([] if rounds is None else ["--rounds", str(rounds)]),
    ]
    load, began = os.getloadavg()[0], time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=os.environ | bars.ENVIRONMENT)
    try:
        said = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise SystemExit(f"{name} ended with {done.returncode} and without figures; run {' '.join(command)}") from None
    spent = {"load before": round(load, 2), "seconds": round(time.monotonic() - began)}
    return {"command": f"python benchmarks/{name}.py", **said, **spent}


if __name__ == "__main__":
    sys.exit(main())
