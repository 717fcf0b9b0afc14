"""Answers each file of the corpus in a child of its own, and judges: refused in words, or really loaded.

    python -m tests.checkpoints.bad.bad_files_run [--from 0] [--count 1000]        (JSON on stdout)

This process imports everything once and forks for each file. The child may neither start a program, nor open a socket
or a file for writing (an audit hook ends it), and has limits on memory and time. A file passes if it is refused with a
BadInput, or a ValueError that names it, or if it is valid and every tensor was read; within 2 s in one of three tries,
not counting what it waited for a processor; with memory that grows by at most 75 MB and 1.1 times the file (a process
with torch and the readers imported has 225 MB, which makes 300 MB); and leaves no file, and no change in one.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Never

from tests.checkpoints.bad.bad_files import Case, Folder, Hollow, Late, Link, Pipe, corpus

SECONDS = 2.0
TRIES = 3
"""Answers to a file before it is called slow: a virtual machine may stand still for seconds, a slow reader is slow
every time."""
MEGABYTES, TIMES = 75.0, 1.1
HANGS = 20.0
"""Seconds after which a child is ended."""
SPACE = 4 << 30
"""Address space a child may take beyond its parent's."""

FORBIDDEN = (
    *("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile", "pty.spawn"),
    *("subprocess.Popen", "socket.", "urllib.Request", "ftplib.", "smtplib.", "pickle.find_class"),
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown"),
    *("os.utime", "os.putenv", "os.unsetenv", "shutil.", "tempfile.", "ctypes.dlopen", "os.kill"),
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Forbidden(BaseException):
    """Not an Exception, so that nothing catches it by accident."""


def sniff(path: Path) -> None:
    from ropewalk.checkpoints.files.sniff import kind_of

    kind_of(path)


def resolve(path: Path) -> None:
    from ropewalk.checkpoints.resolve.read import read

    read(path)


def weights(path: Path) -> None:
    from ropewalk.checkpoints.files.weights import open_weights

    opened = open_weights(path)
    for name in opened.names:
        assert tuple(opened.read(name).shape) == opened.shape(name)


def inspect(path: Path) -> None:
    from ropewalk.checkpoints.inspect.report import inspect

    json.dumps(inspect(path).to_dict(), allow_nan=False)


def load(path: Path) -> None:
    from ropewalk.checkpoints.load.model import load

    load(path)


def tokenizer(path: Path) -> None:
    from ropewalk.checkpoints.tokens.tokenizer import of

    of(path).encode("the cat sat")


def about(path: Path) -> None:
    from ropewalk.checkpoints.export.about import from_gguf
    from ropewalk.checkpoints.export.about_hf import from_directory
    from ropewalk.checkpoints.files.gguf import GGUF
    from ropewalk.checkpoints.tokens import tokenizer

    str(from_directory(path, tokenizer.of(path)) if path.is_dir() else from_gguf(GGUF(path)))


ENTRY_POINTS: dict[str, Callable[[Path], None]] = {
    "sniff": sniff,
    "resolve": resolve,
    "inspect": inspect,
    "weights": weights,
    "load": load,
    "tokenizer": tokenizer,
    "about": about,
}
"""Everything that is given a file of the corpus. A case names which of them it is for."""
NEEDED = (
    "torch",
    "gguf",
    "safetensors",
    "tokenizers",
    "encodings.unicode_escape",
    "ropewalk.checkpoints.export.about_hf",
    "ropewalk.checkpoints.tokens.gguf",
    "ropewalk.checkpoints.files.weights",
    "ropewalk.checkpoints.resolve.read",
    "ropewalk.checkpoints.load.native",
)


class Answer(NamedTuple):
    entry: str
    error: str
    """The type's name; empty if every entry point took the file."""
    message: str
    good: bool
    """Whether the error is one that may be given."""


class Result(NamedTuple):
    case: Case
    verdict: str
    """refused, valid, or what is wrong."""
    answer: Answer | None
    seconds: float
    megabytes: float
    """By which memory grew, beyond TIMES the file."""


def answer(case: Case, directory: Path) -> Answer:
    """All entry points of the case in turn: the first error that may not be given, else the first that may."""
    from ropewalk.checkpoints.errors import BadInput

    path = directory / case.target
    names = {directory.name, *case.files}
    given = Answer("", "", "", True)
    for entry in case.entries:
        try:
            ENTRY_POINTS[entry](path)
        except Exception as error:
            message = str(error)
            named = any(name in message for name in names)
            good = named and ((isinstance(error, BadInput) and bool(error.field)) or type(error) is ValueError)
            if not good:
                return Answer(entry, type(error).__name__, message[:300], good)
            if not given.error:
                given = Answer(entry, type(error).__name__, message[:300], good)
    return given


OURS = tuple({sys.prefix, sys.base_prefix, str(Path(__file__).parents[3] / "src"), "<frozen"})
"""Where code may come from that is imported while a file is answered."""


def forbid(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        if arguments[2] & WRITING:
            raise Forbidden(f"open {arguments[0]!r} for writing")
    elif event == "compile":
        if not os.fsdecode(arguments[1] or "").startswith(OURS):
            raise Forbidden(f"compile {arguments[1]!r}")
    elif event == "exec":
        if not arguments[0].co_filename.startswith(OURS):
            raise Forbidden(f"run {arguments[0]!r}")
    elif event.startswith(FORBIDDEN):
        raise Forbidden(f"{event} {str(arguments)[:200]}")


def child(case: Case, directory: Path, pipe: int) -> Never:
    """Answers in the forked process and ends it."""
    status = 1
    # Pages of libraries are not in a child until it touches them, so its own start is what it grows from.
    start = resident()
    try:
        os.chdir(directory)
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (taken + SPACE,) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (int(HANGS),) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.addaudithook(forbid)
        given = answer(case, directory)
        os.write(pipe, json.dumps((waited(), start, given)).encode())
        status = 0
    except BaseException as error:
        os.write(pipe, json.dumps((0.0, start, ("", type(error).__name__, str(error)[:300], False))).encode())
    finally:
        os._exit(status)


def waited() -> float:
    """Seconds that this process was ready to run and others ran, where the system tells."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def resident() -> float:
    """Megabytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def write(case: Case, directory: Path) -> None:
    """The case's files, those made late by a process of their own."""
    for name, content in case.files.items():
        path = directory / name
        match content:
            case Link(to):
                path.symlink_to(to)
            case Pipe():
                os.mkfifo(path)
            case Folder():
                path.mkdir()
            case Hollow(size, start):
                with path.open("wb") as file:
                    file.write(start)
                    file.truncate(size)
            case Late(make):
                if (pid := os.fork()) == 0:
                    try:
                        path.write_bytes(make())
                    finally:
                        os._exit(0)
                os.waitpid(pid, 0)
            case _:
                path.write_bytes(content)


def size_of(directory: Path) -> int:
    """Bytes on the disk, of which a hollow file has few."""
    return sum(min(path.lstat().st_size, path.lstat().st_blocks * 512) for path in directory.iterdir())


def state(directory: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        found[str(path)] = (status.st_size, status.st_mtime_ns, status.st_mode)
    return found


def judge(case: Case, scratch: Path) -> Result:
    # A folder above, for what a case may try to reach beside it.
    above = Path(tempfile.mkdtemp(dir=scratch))
    directory = above / "model"
    directory.mkdir()
    (above / "outside").write_bytes(b"\2\0\0\0\0\0\0\0{}")
    try:
        write(case, directory)
        size = size_of(directory)
        before = state(above)
        for _ in range(TRIES):
            told, status, seconds, used = forked(case, directory)
            megabytes = used - TIMES * size / 1e6
            verdict = verdict_of(case, told, status, seconds, megabytes)
            if verdict != "slow":
                break
        if state(above) != before:
            verdict = "left or changed a file"
        # Without its files: what is kept here counts as the next child's memory.
        return Result(case._replace(files={}), verdict, told, seconds, megabytes)
    finally:
        shutil.rmtree(above)


def forked(case: Case, directory: Path) -> tuple[Answer | None, int, float, float]:
    """The child's answer, how it ended, seconds, and megabytes by which it grew."""
    reading, writing = os.pipe()
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        child(case, directory, writing)
    os.close(writing)
    if not select.select([reading], [], [], HANGS)[0]:
        os.kill(pid, signal.SIGKILL)
    told = os.read(reading, 65_536)
    os.close(reading)
    _, status, used = os.wait4(pid, 0)
    seconds = time.monotonic() - start
    if not told:
        return None, status, seconds, 0.0
    waited, own, given = json.loads(told)
    return Answer(*given), status, seconds - waited, used.ru_maxrss * 1024 / 1e6 - own


def verdict_of(case: Case, told: Answer | None, status: int, seconds: float, megabytes: float) -> str:
    if told is None:
        return f"ended by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "ended without an answer"
    if told.error == "Forbidden":
        return "did what is forbidden"
    if not told.good:
        return "another error than a reader gives"
    if told.error and case.expected == "valid":
        return "refused, and valid"
    if not told.error and case.expected == "bad":
        return "accepted, and bad"
    if seconds > SECONDS:
        return "slow"
    if megabytes > MEGABYTES:
        return "large"
    return "refused" if told.error else "valid"


def run(cases: Iterable[Case]) -> list[Result]:
    import torch

    for module in NEEDED:
        importlib.import_module(module)
    from ropewalk import encodings

    for kind in encodings.names():  # a config of our own may name each
        encodings.find(kind)
    torch.set_num_threads(1)
    sys.dont_write_bytecode = True
    for entry in ENTRY_POINTS.values():  # what is imported at the first use is then there
        for warm in corpus(0, 8):
            with tempfile.TemporaryDirectory() as directory:
                write(warm, Path(directory))
                try:
                    entry(Path(directory) / warm.target)
                except (ValueError, NotImplementedError):
                    continue
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page of its parent's objects
    with tempfile.TemporaryDirectory() as scratch:
        return [judge(case, Path(scratch)) for case in cases]


def summary(results: list[Result]) -> dict[str, Any]:
    """Counts by group and verdict, the extremes, and every failure."""
    groups: dict[str, Counter[str]] = {}
    failures = []
    for each in results:
        group = each.case.name.partition(":")[0].partition(" ")[0]
        groups.setdefault(group, Counter())[each.verdict] += 1
        if each.verdict not in ("refused", "valid"):
            told = each.answer or Answer("", "", "", False)
            failures.append({"case": each.case.name, "verdict": each.verdict, **told._asdict()})
    slowest = max(results, key=lambda each: each.seconds)
    largest = max(results, key=lambda each: each.megabytes)
    return {
        "files": len(results),
        "failures": failures,
        "groups": {group: dict(sorted(counts.items())) for group, counts in sorted(groups.items())},
        "slowest": {"case": slowest.case.name, "seconds": round(slowest.seconds, 3)},
        "largest": {"case": largest.case.name, "megabytes": round(largest.megabytes, 1)},
        "parent": {"megabytes": round(resident(), 1)},
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--from", type=int, default=0, dest="start")
    options.add_argument("--count", type=int, default=1000)
    given = options.parse_args()
    found = summary(run(corpus(given.start, given.count)))
    json.dump(found, sys.stdout, indent=2)
    print()
    return 1 if found["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
