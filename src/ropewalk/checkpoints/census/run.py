"""A census: who is asked, by whom, at which rate, and what is kept of the answers.

    with Census("hub:llama", Path("DIR")) as census:
        census.fetch(rate=5, workers=Workers(4))
        census.summary()
        census.end()

Workers fetch and look; this process alone writes. All of them together ask no faster than the rate.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

from ropewalk.checkpoints.census.fetch import CONTENT, MISSING, NO_ANSWER, UNCHANGED, Client, Limits
from ropewalk.checkpoints.census.list import QUERY, Target, address, in_file, in_hub, target
from ropewalk.checkpoints.census.look import UNREAD, look, look_at_path, rules
from ropewalk.checkpoints.census.record import LIST, Found, Record
from ropewalk.checkpoints.census.summary import summary
from ropewalk.checkpoints.errors import BadInput, plain
from ropewalk.checkpoints.files.hub import endpoint, offline
from ropewalk.checkpoints.inspect.report import counted_engines
from ropewalk.trials.jobs import Workers, mapped

BATCH = 8
"""Checkpoints of one job: few are asked again after a kill."""
SILENT = 24
"""Checkpoints in a row without an answer, after which the hub is taken to be down."""
SAME = "same"
NO_NAME = "no name"


class Ask(NamedTuple):
    target: Target
    key: str | None
    etag: str | None


class Shared(NamedTuple):
    """What every worker is told once."""

    hub: str
    engines: tuple[str, ...]
    interval: float
    """Seconds between two requests of one worker."""
    limits: Limits


class Census:
    def __init__(self, many: str, folder: Path, engines: Collection[str] | None = None) -> None:
        self.many, self.folder, self.engines = many, folder, counted_engines(engines)
        self.targets: list[Target] = []
        self.record: Record

    def __enter__(self) -> Self:
        if not self.many.startswith(QUERY):
            self.targets = in_file(Path(self.many))
        self.record = Record(self.folder, rules(self.engines))
        return self

    def __exit__(self, *_: object) -> None:
        self.record.__exit__()

    def fetch(
        self,
        *,
        rate: float,
        workers: Workers,
        limits: Limits | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """Ask for every config that was not asked for in this pass."""
        limits = limits or Limits()
        if self.many.startswith(QUERY):
            with closing(Client(1 / rate, limits)) as client:
                self.targets = self._listed(client)
        left = [one for one in self.targets if one.name not in self.record.asked]
        if any(one.place == "hub" for one in left) and (variable := offline()):
            raise BadInput(self.many, "hub", f"{variable} is set", f"unset {variable}, or list paths and URLs only")
        shared = Shared(endpoint(), self.engines, workers.count / rate, limits)
        done, silent = len(self.targets) - len(left), 0
        progress(done, len(self.targets))
        try:
            for batch in mapped(visit, shared, self._jobs(left), workers):
                self.record.add(batch)
                done += len(batch)
                progress(done, len(self.targets))
                for one in batch:
                    silent = silent + 1 if one.answer == NO_ANSWER else 0
                    if silent == SILENT:
                        why = (one.row or {}).get("why", "")
                        problem = f"{SILENT} checkpoints in a row had no answer, the last one: {why}"
                        raise BadInput(self.many, "hub", problem, "check the connection; the same command continues")
        finally:
            if workers.here:
                _client(shared.interval, limits).close()

    def summary(self) -> dict[str, Any]:
        names = [one.name for one in self.targets]
        return summary(self.record.rows(names), self.record.answers(), self.engines, len(names))

    def rows(self) -> Iterator[dict[str, Any]]:
        return self.record.rows([one.name for one in self.targets])

    def end(self) -> None:
        self.record.end()

    def _listed(self, client: Client) -> list[Target]:
        """The hub's list, kept for this pass: by the next start its order may be another."""
        kept = self.folder / LIST
        if kept.exists():
            return [target(line) for line in kept.read_text(encoding="utf-8").splitlines()]
        found = list(in_hub(self.many.removeprefix(QUERY), client))
        partial = kept.with_suffix(".part")
        partial.write_text("".join(f"{one.name}\n" for one in found), encoding="utf-8")
        os.replace(partial, kept)
        return found

    def _jobs(self, left: Sequence[Target]) -> Iterator[list[Ask]]:
        every = iter(left)
        while some := list(islice(every, BATCH)):
            yield [self._ask(one) for one in some]

    def _ask(self, one: Target) -> Ask:
        known = self.record.current(one.name)
        return Ask(one, None, None) if known is None else Ask(one, known.key, known.etag)


@cache
def _client(interval: float, limits: Limits) -> Client:
    """One for each process: connections and pace outlive a job."""
    return Client(interval, limits)


def visit(shared: Shared, asks: Sequence[Ask]) -> list[Found]:
    """What a worker does with one job."""
    with tempfile.TemporaryDirectory(prefix="ropewalk-census-") as folder:
        return [_visited(shared, ask, Path(folder) / "config.json") for ask in asks]


def _visited(shared: Shared, ask: Ask, scratch: Path) -> Found:
    one = ask.target
    if one.place == "none":
        return _without(one.name, NO_NAME, "is no org/name, no URL and no path")
    if one.place == "path":
        return _at_path(shared, ask)
    answer = _client(shared.interval, shared.limits).get(address(one, shared.hub), ask.etag)
    if answer.state == UNCHANGED:
        return Found(one.name, UNCHANGED, ask.key or "", ask.etag, retries=answer.retries)
    if answer.state != CONTENT:
        return _without(one.name, answer.state, answer.why)._replace(retries=answer.retries)
    key = hashlib.sha256(answer.data).hexdigest()
    if key == ask.key:
        return Found(one.name, SAME, key, answer.etag, retries=answer.retries)
    scratch.write_bytes(answer.data)
    return Found(one.name, CONTENT, key, answer.etag, look(scratch, answer.data, shared.engines), answer.retries)


def _at_path(shared: Shared, ask: Ask) -> Found:
    name = ask.target.name
    if not Path(name).exists():
        return _without(name, MISSING, "there is no such path")
    try:
        key, row = look_at_path(Path(name), shared.engines)
    except BadInput as error:
        return Found(
            name, UNREAD, UNREAD, None, {"state": UNREAD, "field": error.field, "why": plain(error.problem, 300)}
        )
    return Found(name, SAME, key) if key == ask.key else Found(name, CONTENT, key, None, row)


def _without(name: str, state: str, why: str) -> Found:
    """A checkpoint whose config is not there to be read."""
    return Found(name, state, state, None, {"state": state, "why": plain(why, 300)})
