"""A census of 100,000 generated configs from a busy hub on this machine, killed 20 times: lost, doubled, speed, memory.

    python -m campaigns.census

The hub answers some of the first requests with 429, 503, silence or half an answer, and has configs that are missing,
gated, broken and too large; which ones is known by number, so every count of the census is known beforehand. Each start
but the last is killed (SIGKILL) at another part of the way. The last one is measured: its processor time with that of
its workers, and its peak memory with the whole record in it. Then a second pass asks for all of them again.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import bars
from campaigns import pieces
from ropewalk.checkpoints.census.fetch import Limits
from ropewalk.checkpoints.census.run import Census
from ropewalk.checkpoints.census.table import write_parquet
from ropewalk.checkpoints.files.strict_json import MOST_BYTES
from ropewalk.report.census.page import page
from ropewalk.system import peak_memory
from ropewalk.trials.jobs import Workers
from tests.checkpoints.census.local_hub import Hub, name_of, settings

CONFIGS, KILLS, WORKERS = 100_000, 20, 2
LIMITS = Limits(silence=1.0, whole=1.2, tries=6, first_pause=0.1)
FAST = 100_000.0
"""Requests a second: the hub is ours."""
FIRST = {3: 429, 13: 503, 23: "close", 33: "cut"}
"""By number, modulo 50: what the first request gets."""
SOURCES = (
    "src/ropewalk/checkpoints/census",
    "src/ropewalk/trials",
    "src/ropewalk/report/census/page.py",
    "campaigns/census.py",
    "tests/checkpoints/census/local_hub.py",
)


def state_of(number: int) -> str:
    return {500: "missing", 501: "gated", 502: "unread"}.get(
        number % 1000, "too large" if number % 5000 == 503 else "read"
    )


class BusyHub(Hub):
    def fault_of(self, name: str) -> int | str | None:
        number = int(name.rpartition("-")[2])
        if state_of(number) == "gated":
            return 403
        if self.seen[name] > 1:
            return None
        return "slow" if number % 1000 == 7 else FIRST.get(number % 50)

    def body(self, name: str) -> bytes | None:
        state = state_of(int(name.rpartition("-")[2]))
        other = {"missing": None, "unread": b'{"model_type": ', "too large": b" " * (MOST_BYTES + 1)}
        return other[state] if state in other else super().body(name)


def piece(start: int, count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="ropewalk-census-") as made:
        folder = Path(made)
        names = [name_of(number) for number in range(start, start + count)]
        (folder / "names.txt").write_text("\n".join(names), encoding="utf-8")
        hub = _started(lambda: _serve(start + count, folder / "address"))
        try:
            while not (folder / "address").exists():
                time.sleep(0.01)
            os.environ["HF_ENDPOINT"] = (folder / "address").read_text(encoding="utf-8")
            return _measured(folder, start, count)
        finally:
            os.kill(hub, signal.SIGKILL)
            os.waitpid(hub, 0)


def _measured(folder: Path, start: int, count: int) -> dict[str, Any]:
    draw = random.Random(count)
    began = time.monotonic()
    parts = (count * (kill + draw.uniform(0.5, 1.0)) / (KILLS + 1) for kill in range(KILLS))
    killed = sum(_killed(folder, round(part)) for part in parts)
    already = len(_lines(folder))
    last = _result(folder, _started(lambda: _census(folder, "first")), "first")
    seconds = time.monotonic() - began
    lines = _lines(folder)
    again = _result(folder, _started(lambda: _census(folder, "second")), "second")
    found, want = last["summary"], _expected(start, count)
    failures = [
        f"{name}: {dict(map(tuple, found[name]))} is not {want[name]}" for name in want if _other(found, want, name)
    ]
    keys = [(line["name"], line["key"]) for line in lines]
    conditional = again["summary"]["answers"].get("unchanged", 0)
    tagged = want["states"]["read"] + want["states"]["unread"]
    if conditional != tagged:
        failures.append(f"{conditional} of {tagged} configs were unchanged in the second pass")
    if len(_lines(folder)) != len(lines):
        failures.append("the second pass added lines")
    return {
        "configs": count,
        "failures": failures,
        "kills": killed,
        "lost": len({name_of(number) for number in range(start, start + count)} - {name for name, _ in keys}),
        "doubled": len(keys) - len(set(keys)) + len(keys) - len({name for name, _ in keys}),
        "retries": found["answers"]["retries"],
        "unchanged in the second pass": conditional,
        "wall": round(seconds, 1),
        "last run": {"configs": count - already, "processor": last["processor"]},
        "second pass": {"configs": count, "processor": again["processor"]},
        "peak": max(last["peak"], again["peak"]),
        "peak of a worker": max(last["worker"], again["worker"]),
    }


def _other(found: dict[str, Any], want: dict[str, Counter[Any]], name: str) -> bool:
    return Counter(dict(map(tuple, found[name]))) != want[name]


def _expected(start: int, count: int) -> dict[str, Counter[Any]]:
    states = {number: state_of(number) for number in range(start, start + count)}
    each = [settings(number) for number, state in states.items() if state == "read"]
    return {
        "states": Counter(states.values()),
        "bases": Counter(base for base, _, _ in each),
        "scalings": Counter(kind for _, _, kind in each),
    }


def _lines(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of the record."""
    file = folder / "out" / "record.jsonl"
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_bytes().rpartition(b"\n")[0].splitlines()]


def _killed(folder: Path, at: int) -> int:
    """Starts the census, and kills it when the record has so many lines; 0 where it had ended before."""
    pid = _started(lambda: _census(folder, "killed"))
    seen, lines = 0, 0
    while lines < at:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return 0
        time.sleep(0.005)
        file = folder / "out" / "record.jsonl"
        if file.exists():
            with file.open("rb") as record:
                record.seek(seen)
                new = record.read()
            seen, lines = seen + len(new), lines + new.count(b"\n")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return 1


def _started(run: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            run()
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def _result(folder: Path, pid: int, name: str) -> dict[str, Any]:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise RuntimeError(f"the census ended with {code}")
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def _serve(count: int, address: Path) -> None:
    with BusyHub(count) as hub:
        partial = address.with_suffix(".part")
        partial.write_text(hub.address, encoding="utf-8")
        os.replace(partial, address)
        signal.pause()


def _census(folder: Path, name: str) -> None:
    # Counted from here: what was forked has a past.
    began = time.process_time()
    with Census(str(folder / "names.txt"), folder / "out") as census:
        census.fetch(rate=FAST, workers=Workers(WORKERS), limits=LIMITS)
        found = census.summary()
        page(found)
        write_parquet(census.rows(), folder / "out" / "census.parquet")
        census.end()
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = {
        "summary": found,
        "processor": round(time.process_time() - began + workers.ru_utime + workers.ru_stime, 2),
        "peak": (peak_memory() or 0) >> 20,
        "worker": workers.ru_maxrss >> 10,
    }
    (folder / f"{name}.json").write_text(json.dumps(said), encoding="utf-8")


def whole(done: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    per_core = {
        name: sum(each[name]["configs"] for each in done) / sum(each[name]["processor"] for each in done)
        for name in ("last run", "second pass")
    }
    found = {
        "lost": bars.bar(pieces.summed(done, "lost"), 0, at_least=False),
        "doubled": bars.bar(pieces.summed(done, "doubled"), 0, at_least=False),
        "counts that are wrong": bars.bar(pieces.failures(done), 0, at_least=False),
        "kills": bars.bar(pieces.summed(done, "kills"), KILLS, at_least=True),
    }
    measured = {
        "configs": pieces.summed(done, "configs"),
        "configs a second and core": round(per_core["last run"], 1),
        "unchanged configs a second and core": round(per_core["second pass"], 1),
        "peak memory of the census, MiB": max(each["peak"] for each in done),
        "peak memory of a worker, MiB": max(each["peak of a worker"] for each in done),
        "requests made again": pieces.summed(done, "retries"),
        "seconds of the first pass": round(sum(each["wall"] for each in done), 1),
    }
    return found, measured


if __name__ == "__main__":
    sys.exit(pieces.main(__doc__, "census", piece, whole, trials=CONFIGS, piece=CONFIGS, sources=SOURCES))
