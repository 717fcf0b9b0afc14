"""One function over many jobs, by several workers: results come in the order of the jobs, whoever made them.

    for result in mapped(encode, tokenizer, jobs, Workers(4)):                  encode(tokenizer, job) for each
    for result in mapped(encode, tokenizer, jobs, Workers(64, on="ray")):

A job is a pure function of `shared`, which each worker gets once, and of itself. A worker that dies takes nothing with
it: its job is given to another, which is said. An exception that a job raises is raised here. Jobs are taken from their
iterator as workers become free, and only so many results wait to be asked for.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from importlib import import_module
from itertools import chain
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from ropewalk.system import tell

AHEAD = 4
"""Jobs begun for each worker before the first of them is asked for."""
TRIES = 3
"""Of one job: one that ends each of its workers, for want of memory perhaps, would do so for ever."""

Shared = TypeVar("Shared")
Job = TypeVar("Job")
Result = TypeVar("Result")


class Workers(NamedTuple):
    count: int = 1
    on: Literal["local", "ray"] = "local"
    environment: dict[str, str] = {}  # noqa: RUF012
    """Variables that the workers get."""
    say: Callable[[str], None] = tell
    tries: int = TRIES
    """Of one job. More for jobs that continue where a worker died."""
    cpus: int = 1
    """Of a Ray node that one job needs."""
    gpus: float = 0

    @property
    def here(self) -> bool:
        """This process does it all."""
        return self.on == "local" and self.count == 1


class _Lost(Exception):
    """A worker died with its job."""


class _Pool(Protocol):
    def begin(self, job: Any) -> Any: ...
    def wait(self, begun: list[Any]) -> list[Any]: ...
    def result(self, handle: Any) -> tuple[Any, BaseException | None]: ...
    def close(self) -> None: ...


def mapped(
    function: Callable[[Shared, Job], Result], shared: Shared, jobs: Iterable[Job], workers: Workers
) -> Iterator[Result]:
    """function(shared, job) of each job, in order."""
    with closing(Pool(function, shared, workers)) as pool:
        yield from pool(jobs)


class Pool(Generic[Shared, Job, Result]):
    """Workers for several calls: what they open at the first job stays open. They start when there is a job."""

    def __init__(self, function: Callable[[Shared, Job], Result], shared: Shared, workers: Workers) -> None:
        self.function, self.shared, self.workers = function, shared, workers
        self._pool: _Pool | None = None

    def __call__(self, jobs: Iterable[Job]) -> Iterator[Result]:
        if self.workers.here:
            yield from (self.function(self.shared, job) for job in jobs)
            return
        # Taken one by one, since whether there is another may depend on when that is asked.
        numbered = enumerate(jobs)
        if (first := next(numbered, None)) is None:
            return
        if self._pool is None:
            self._pool = (_Ray if self.workers.on == "ray" else _Local)(self.function, self.shared, self.workers)
        try:
            yield from _in_order(self._pool, chain([first], numbered), self.workers)
        except BaseException:
            self.close()  # some are at work still
            raise

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _in_order(pool: _Pool, numbered: Iterator[tuple[int, Any]], workers: Workers) -> Iterator[Any]:
    begun: dict[Any, tuple[int, Any]] = {}
    lost: deque[tuple[int, Any]] = deque()
    tries: dict[int, int] = {}
    ready: dict[int, Any] = {}
    asked, more = 0, True
    while True:
        while len(begun) < workers.count and (lost or (more and len(begun) + len(ready) < AHEAD * workers.count)):
            job = lost.popleft() if lost else next(numbered, None)
            if job is None:
                more = False
                break
            begun[pool.begin(job[1])] = job
        if not begun:
            return
        for handle in pool.wait(list(begun)):
            number, job = begun.pop(handle)
            try:
                ready[number], error = pool.result(handle)
            except _Lost as why:
                tries[number] = tries.get(number, 0) + 1
                if tries[number] == workers.tries:
                    raise RuntimeError(f"job {number + 1} ended {workers.tries} workers, the last one: {why}") from None
                workers.say(f"a worker was lost ({why}); its job is done again by another")
                lost.append((number, job))
                continue
            if error is not None:
                raise error
        while asked in ready:
            yield ready.pop(asked)
            asked += 1


def _answer(function: Callable[[Any, Any], Any], shared: Any, job: Any) -> tuple[Any, BaseException | None]:
    try:
        return function(shared, job), None
    except Exception as error:
        return None, error


class _Local:
    """Processes started afresh, each on a pipe of its own: forking a process that has threads is not safe."""

    def __init__(self, function: Callable[[Any, Any], Any], shared: Any, workers: Workers) -> None:
        self.context = multiprocessing.get_context("spawn")
        self.arguments = (function, shared, workers.environment)
        self.processes: dict[Connection, Any] = {}
        self.idle = [self._start() for _ in range(workers.count)]

    def begin(self, job: Any) -> Connection:
        pipe = self.idle.pop()
        with suppress(OSError):  # it died while it waited: `result` says so
            pipe.send(job)
        return pipe

    def wait(self, begun: list[Connection]) -> list[Any]:
        return wait(begun)

    def result(self, handle: Connection) -> tuple[Any, BaseException | None]:
        try:
            answer = handle.recv()
        except (EOFError, OSError):
            process = self.processes.pop(handle)
            process.join()
            handle.close()
            self.idle.append(self._start())
            raise _Lost(_ended(process.exitcode)) from None
        self.idle.append(handle)
        return answer

    def close(self) -> None:
        for pipe, process in self.processes.items():
            process.kill()
            process.join()
            pipe.close()

    def _start(self) -> Connection:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_serve, args=(theirs, *self.arguments), daemon=True)
        process.start()
        theirs.close()
        self.processes[ours] = process
        return ours


def _serve(pipe: Connection, function: Callable[[Any, Any], Any], shared: Any, environment: dict[str, str]) -> None:
    """What a local worker does until its parent closes the pipe, or dies."""
    # Ctrl-C reaches every process of a terminal: the parent ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(environment)
    Thread(target=_die_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            answer = _answer(function, shared, pipe.recv())
            try:
                pipe.send(answer)
            except (pickle.PicklingError, TypeError, AttributeError) as error:  # it cannot be sent
                pipe.send((None, RuntimeError(f"{answer[1] or type(answer[0])}: {error}")))


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _ended(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class _Ray:
    """Tasks of a Ray cluster: the one that RAY_ADDRESS names or that runs on this machine, or else one started here."""

    def __init__(self, function: Callable[[Any, Any], Any], shared: Any, workers: Workers) -> None:
        ray: Any = import_module("ray")

        self.ray = ray
        self.mine = not ray.is_initialized()
        if self.mine:
            ray.init(logging_level=logging.ERROR, log_to_driver=False)
        # Ray's own tries are silent.
        self.task = ray.remote(_answer).options(
            num_cpus=workers.cpus,
            num_gpus=workers.gpus,
            max_retries=0,
            runtime_env={"env_vars": dict(workers.environment)},
        )
        self.function, self.shared = function, ray.put(shared)

    def begin(self, job: Any) -> Any:
        return self.task.remote(self.function, self.shared, job)

    def wait(self, begun: list[Any]) -> list[Any]:
        return self.ray.wait(begun)[0]

    def result(self, handle: Any) -> tuple[Any, BaseException | None]:
        try:
            return self.ray.get(handle)
        except self.ray.exceptions.RayTaskError:
            raise
        except self.ray.exceptions.RayError as error:
            raise _Lost(type(error).__name__) from None

    def close(self) -> None:
        if self.mine:
            self.ray.shutdown()
