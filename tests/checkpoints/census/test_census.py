"""A census against a hub on this machine: every checkpoint once, whatever the hub does and whenever it is killed, and
counts that were known before."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ropewalk.checkpoints.census.fetch import Client, Limits
from ropewalk.checkpoints.census.look import SILENT, look, row
from ropewalk.checkpoints.census.record import Found, Record
from ropewalk.checkpoints.census.run import SILENT as IN_A_ROW
from ropewalk.checkpoints.census.run import Census
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.files.strict_json import MOST_BYTES
from ropewalk.checkpoints.inspect.report import inspect
from ropewalk.trials.jobs import Workers
from tests.checkpoints.census.local_hub import PUBLISHED, RESOLVE, Hub, generated, name_of, settings

WHOLE = PUBLISHED.parent / "whole"
COUNT = 120
FAST = Limits(silence=0.4, whole=0.8, tries=3, first_pause=0.01, longest_pause=2.0)
ENGINES = ("transformers5", "vllm")
"""Two are enough to count; all of them take four times as long."""
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_HUB_OFFLINE")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    for name in (*PROXIES, "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with Hub(COUNT) as made:
        monkeypatch.setenv("HF_ENDPOINT", made.address)
        yield made


def names(tmp_path: Path, *more: str, count: int = COUNT) -> str:
    path = tmp_path / "names.txt"
    path.write_text("\n".join(["# a list", "", *map(name_of, range(count)), *more, name_of(0)]), encoding="utf-8")
    return str(path)


def taken(many: str, folder: Path, *, end: bool = True, **given: Any) -> dict[str, Any]:
    with Census(many, folder, ENGINES) as census:
        census.fetch(**{"rate": 10_000, "workers": Workers(), "limits": FAST, **given})
        found = census.summary()
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        if end:
            census.end()
    return found


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "record.jsonl").read_text(encoding="utf-8").splitlines()]


def expected(count: int = COUNT, change: int = 0) -> dict[str, Counter[Any]]:
    each = [settings(number + change) for number in range(count)]
    return {
        "bases": Counter(base for base, _, _ in each),
        "scalings": Counter(kind for _, _, kind in each),
        "stated": Counter(length for _, length, kind in each),
        "trained": Counter(length // 4 for _, length, kind in each if kind in ("yarn", "llama3")),
    }


def counted(found: dict[str, Any]) -> dict[str, Counter[Any]]:
    lengths = {name: Counter(dict(map(tuple, found["lengths"][name]))) for name in ("stated", "trained")}
    return {**{name: Counter(dict(map(tuple, found[name]))) for name in ("bases", "scalings")}, **lengths}


def test_what_is_counted_was_known_before_and_the_second_run_fetches_nothing(tmp_path: Path, hub: Hub) -> None:
    many, out = names(tmp_path), tmp_path / "out"
    first = taken(many, out)
    want = expected()
    # A config under a scaling that starts from another length states what the scaling extends to, or what it states.
    assert {key: counted(first)[key] for key in ("bases", "scalings", "trained")} == {
        key: want[key] for key in ("bases", "scalings", "trained")
    }
    assert first["states"] == [["read", COUNT]]
    assert first["answers"] == {"content": COUNT, "retries": 0}
    assert first["kinds"] == [["rope", COUNT]]
    assert sum(count for _, count in first["model_types"]) == COUNT
    second = taken(many, out)
    assert hub.seen["304"] == COUNT
    assert hub.seen["200"] == COUNT
    assert second == {**first, "answers": {"unchanged": COUNT, "retries": 0}}
    assert len(lines(out)) == COUNT
    hub.change = 1
    third = taken(many, out)
    assert third["answers"]["content"] == COUNT
    assert counted(third)["bases"] == expected(change=1)["bases"]
    assert len(lines(out)) == 2 * COUNT


def test_faults_of_a_hub_are_told_apart_and_none_stops_the_census(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # from a folder two below the root, one of the names would be a file
    hub.retry_after = "1"
    hub.faults |= {
        name_of(1): [429],
        name_of(2): [500, 503],
        name_of(3): ["slow"],
        name_of(4): ["cut", "close"],
        name_of(5): ["drip"],
        name_of(6): [f"/{name_of(6)}{RESOLVE}"],
    }
    hub.always |= {name_of(10): 401, name_of(11): 418, name_of(12): 502, name_of(13): "http://127.0.0.1:9/config.json"}
    hub.bodies |= {
        name_of(14): b"{",
        name_of(15): b" " * MOST_BYTES + b"{}",
        name_of(16): b'{"model_type": "never-heard-of"}',
        name_of(17): b'{"model_type": "llama", "rope_theta": NaN}',
        name_of(18): b'{"model_type": ["llama"]}',
    }
    wrong = (
        "../../etc/passwd",
        "<script>alert(1)</script>",
        "http://",
        f"{hub.address}/{name_of(7)}{RESOLVE}",
        "org/none",
    )
    began = time.monotonic()
    found = taken(names(tmp_path, *wrong, count=20), tmp_path / "out")
    assert time.monotonic() - began >= 1  # Retry-After
    assert dict(found["states"]) == {
        "read": 20 - 9 + 1, "unread": 4, "gated": 1, "refused": 2, "no answer": 2, "too large": 1, "missing": 2,
        "no name": 1,
    }  # fmt: skip
    assert found["unknown_types"] == [["never-heard-of", 1]]
    assert found["answers"]["retries"] == 1 + 2 + 1 + 2 + 1 + 2 + 2
    states = {one["name"]: one["state"] for one in lines(tmp_path / "out")}
    assert states[name_of(10)] == "gated"
    assert states[name_of(13)] == "refused"
    assert states[name_of(15)] == "too large"
    assert states["org/none"] == "missing"
    assert hub.seen[name_of(12)] == FAST.tries


def test_a_hub_that_is_silent_takes_nothing_away_and_ends_the_census(tmp_path: Path, hub: Hub) -> None:
    many, out = names(tmp_path, count=40), tmp_path / "out"
    taken(many, out)
    hub.always |= {name_of(number): 503 for number in range(2, 40)}
    with pytest.raises(BadInput, match=f"{IN_A_ROW} checkpoints in a row had no answer, the last one: status 503"):
        taken(many, out)
    hub.always.clear()
    found = taken(many, out)
    assert found["states"] == [["read", 40]]
    # The two that had answered before were not asked again.
    assert (hub.seen[name_of(0)], hub.seen[name_of(1)]) == (2, 2)
    assert len(lines(out)) == 40


def test_a_wait_that_is_too_long_is_not_waited_for(hub: Hub) -> None:
    hub.retry_after = "86400"
    hub.always[name_of(0)] = 429
    began = time.monotonic()
    with closing(Client(limits=FAST)) as client:
        answer = client.get(f"{hub.address}/{name_of(0)}{RESOLVE}")
    assert (answer.state, hub.seen[name_of(0)]) == ("no answer", 1)
    assert "asks to wait 86,400 s" in answer.why
    assert time.monotonic() - began < 1


def test_the_rate_is_kept_by_all_workers_together(tmp_path: Path, hub: Hub) -> None:
    taken(names(tmp_path, count=24), tmp_path / "out", rate=40, workers=Workers(2))
    assert len(hub.times) == 24
    assert max(sum(start <= one < start + 0.5 for one in hub.times) for start in hub.times) <= 0.5 * 40 + 2


def test_nothing_is_lost_or_doubled_by_kills(tmp_path: Path, hub: Hub) -> None:
    """SIGKILL at five moments; also with half a line at the end, as a kill within a write leaves it."""
    many, out = names(tmp_path), tmp_path / "out"
    for kill in range(5):
        pid = os.fork()
        if pid == 0:
            try:
                taken(many, out, end=False)
            finally:
                os._exit(0)
        while not (out / "record.jsonl").exists() or len(lines_of_bytes(out)) < 20 * (kill + 1):
            time.sleep(0.001)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        with (out / ("record.jsonl", "pass.jsonl")[kill % 2]).open("ab") as file:
            file.write(b'{"name": "org0/model-0", "ke')
    asked = sum(hub.seen[name_of(number)] for number in range(COUNT))
    found = taken(many, out)
    kept = [one["name"] for one in lines(out)]
    assert len(kept) == len(set(kept)) == COUNT
    assert counted(found)["bases"] == expected()["bases"]
    assert found["answers"]["content"] + found["answers"].get("unchanged", 0) == COUNT
    # A kill costs at most the batch that was on its way.
    assert asked <= 100 + 6 * 8 + 8 * 5
    assert not (out / "pass.jsonl").exists()


def lines_of_bytes(out: Path) -> list[bytes]:
    return (out / "record.jsonl").read_bytes().splitlines()


def test_a_query_of_the_hub_is_listed_page_by_page_and_once_a_pass(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ropewalk.checkpoints.census.list.PAGE", 7)
    found = taken("hub:author=x&limit=16", tmp_path / "out", end=False)
    assert found["states"] == [["read", 16]]
    assert hub.seen["200"] == 3 + 16
    taken("hub:author=x&limit=16", tmp_path / "out")
    assert hub.seen["200"] == 3 + 16  # the list was kept, and nobody is asked twice
    with pytest.raises(BadInput, match="limit: none is not a whole number"):
        taken("hub:sort=downloads&limit=none", tmp_path / "other")


def test_other_rules_make_other_rows(tmp_path: Path, hub: Hub) -> None:
    many, out = names(tmp_path, count=4), tmp_path / "out"
    taken(many, out)
    with Census(many, out, ["mlx"]) as census:
        census.fetch(rate=10_000, workers=Workers(), limits=FAST)
        assert census.summary()["engines"]["mlx"]["loads"] == 4
    assert len(lines(out)) == 8


def test_a_folder_is_of_one_census_at_a_time(tmp_path: Path) -> None:
    with Record(tmp_path, "r") as record:
        record.add([Found("a/b", "content", "k", None, {"state": "read"})])
        with pytest.raises(BadInput, match="is in use by another census"):
            Record(tmp_path, "r")


def test_keys_that_are_not_looked_at_change_no_row(tmp_path: Path) -> None:
    """On whole configs, as they are published."""
    path, dropped = tmp_path / "config.json", 0
    for file in sorted(WHOLE.glob("*.json")):
        config = json.loads(file.read_text(encoding="utf-8"))
        kept = {key: value for key, value in config.items() if key not in SILENT}
        dropped += len(config) - len(kept)
        found = []
        for one in (config, kept):
            path.write_text(json.dumps(one), encoding="utf-8")
            try:
                found.append(row(inspect(path, engines=ENGINES)))
            except BadInput as error:
                found.append({"why": error.problem})
        assert found[0] == found[1], file.name
        looked = look(path, path.read_bytes(), ENGINES)
        assert {key: looked[key] for key in found[0]} == found[0] or looked["state"] == "unread"
    assert dropped > 100


def test_the_command_writes_a_table_a_page_and_an_answer(tmp_path: Path, hub: Hub) -> None:
    many, out = names(tmp_path, str(PUBLISHED / "gpt2.json"), count=16), tmp_path / "out"
    command = [sys.executable, "-m", "ropewalk", "inspect", "--many", many, "--out", str(out), "--rate", "1000",
               "--workers", "2"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("17 checkpoints. Engines ")
    assert "scalings             linear: 5, none: 5, yarn: 5, llama3: 1\n" in done.stdout
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = {row["name"]: row for row in parquet.read_table(out / "census.parquet").to_pylist()}
    assert len(rows) == 17
    for number in range(16):
        base, _, kind = settings(number)
        assert rows[name_of(number)]["bases"] == [base]
        assert rows[name_of(number)]["scalings"] == ([] if kind == "none" else [kind])
        assert rows[name_of(number)]["model_type"] == json.loads(generated(number))["model_type"]
    assert (out / "census.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_state_that_is_known_adds_no_line_and_a_cut_line_is_taken_away(tmp_path: Path) -> None:
    """A kill between the record and the pass asks again, and finds what is there."""
    config = Found("org/a", "content", "ab" * 32, '"1"', {"kind": "rope"})
    gone = Found("org/b", "missing", "missing", None, {"kind": None})
    with Record(tmp_path, "rules") as record:
        record.add([config, gone])
    (tmp_path / "pass.jsonl").unlink()
    with (tmp_path / "record.jsonl").open("ab") as file:
        file.write(b'{"name": "org/c", "key')
    with Record(tmp_path, "rules") as record:
        record.add([config, gone])
        assert [row["name"] for row in record.rows(["org/a", "org/b", "org/c"])] == ["org/a", "org/b"]
        assert record.broken == 0
    assert len((tmp_path / "record.jsonl").read_bytes().splitlines()) == 2
    with Record(tmp_path, "other rules") as record:
        record.add([config])
    assert len((tmp_path / "record.jsonl").read_bytes().splitlines()) == 3
