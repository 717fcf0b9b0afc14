"""What `ropewalk extend` writes, proved; and a note of it, so that one stopped in its proof continues there.

OUT is taken for what a run writes only if the note has the same request: the weights, the options and the scaling. Any
other OUT that exists is refused, and where the request alone shows it, before anything is measured.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from json import dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ropewalk.cli.output import WRONG, say_error
from ropewalk.cli.scaling import status_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from ropewalk.extend.prove import Proof
    from ropewalk.extend.write import Written
    from ropewalk.scaling import Scaling

WRITTEN = "written.json"
"""In the directory of a run: what it wrote, and where."""


def write_and_prove(
    path: str, out: str, scaling: Scaling, to: int, sample: str | None, *, gguf: Path | None, silent: bool,
    engine: str = "ropewalk", noted: Path | None = None, run: dict[str, Any] | None = None, **more: Any,
) -> tuple[Written, list[Proof]]:  # fmt: skip
    """sample: the text of the proof; None: no proof. noted: where a run says what it wrote, so that it continues with
    that where its proof was stopped; run: its weights and options, as `made_here` is given them."""
    from ropewalk.extend.write import Written, with_gguf
    from ropewalk.extend.write import write as write_checkpoint

    asked = {**_asked(run, out, gguf), "from": path, "scaling": scaling.model_dump(mode="json")}
    before = None if noted is None else _noted(noted)
    if before is not None and before["asked"] == asked and os.path.lexists(out):
        file = None if before["gguf"] is None else Path(before["gguf"])
        lists = {key: tuple(before.get(key, ())) for key in ("left_out", "raised")}
        written = Written(path=Path(out), engines=before["engines"], gguf=file, **lists)
    else:
        written = write_checkpoint(path, out, scaling, to)
        _keep(noted, asked, written)
    if gguf is not None and written.gguf is None:
        written = with_gguf(written, gguf)
        _keep(noted, asked, written)
    if sample is None:
        return written, []
    from ropewalk.extend.prove import prove

    try:
        with status_line(silent) as show_line:
            return written, prove(
                Path(path),
                written.path,
                scaling,
                to,
                sample,
                by=engine,
                gguf=written.gguf,
                progress=show_line,
                **more,
            )
    except KeyboardInterrupt:
        say_error(f"{written.path} was written, and its proof was stopped; run the same command to prove it")
        raise


@contextmanager
def until_proved(path: str, out: str, to: int, gguf: Path | None) -> Iterator[dict[str, Any]]:
    """What `write_and_prove` is given so that a proof which is stopped continues with what was written: a note beside
    OUT, until the proof has ended."""
    from ropewalk.extend.write import free

    work, run = beside(out), {"weights": weights_of(path), "to": to}
    if not made_here(work, out, gguf, lambda: run):
        free(path, out, gguf)
    work.mkdir(exist_ok=True)
    try:
        yield {"noted": work / WRITTEN, "run": run}
        (work / WRITTEN).unlink(missing_ok=True)
    finally:
        if not any(work.iterdir()):
            work.rmdir()


def beside(out: str) -> Path:
    """The directory of a run, next to what it writes: OUT may end in a slash."""
    place = Path(out)
    return place.with_name(f"{place.name}.work")


def weights_of(path: str) -> str:
    from ropewalk.checkpoints.files.sniff import meant
    from ropewalk.evaluate.checkpoint import digest

    return digest(meant(Path(path)))


def made_here(work: Path, out: str, gguf: Path | None, run: Callable[[], dict[str, Any]]) -> bool:
    """Whether an earlier piece of this run wrote OUT, and perhaps the file beside it."""
    before = _noted(work / WRITTEN)
    if before is None or not os.path.lexists(out):
        return False
    return _asked(run(), out, gguf).items() <= before["asked"].items()


def _noted(file: Path) -> dict[str, Any] | None:
    return loads(file.read_text(encoding="utf-8")) if file.exists() else None


def _keep(noted: Path | None, asked: dict[str, Any], written: Written) -> None:
    if noted is None:
        return
    file = None if written.gguf is None else str(written.gguf)
    said = {"asked": asked, "engines": written.engines, "gguf": file}
    said |= {"left_out": written.left_out, "raised": written.raised}
    partial = noted.with_suffix(".partial")
    partial.write_text(dumps(said), encoding="utf-8")
    partial.replace(noted)


def _asked(run: dict[str, Any] | None, out: str, gguf: Path | None) -> dict[str, Any]:
    beside = None if gguf is None else os.path.abspath(gguf)
    return {"run": run, "out": os.path.abspath(out), "gguf": beside}


def check(written: Written, proofs: list[Proof], gguf: Path | None) -> None:
    if gguf is not None and written.gguf is None:
        say_error(f"{gguf}: {written.engines['llama.cpp']}; {written.path} was written")
        raise typer.Exit(WRONG)
    for one in filter(lambda one: one.failed, proofs):
        say_error(f"{one.engine} does not compute the intended result; {written.path} is kept for you to examine")
        raise typer.Exit(WRONG)
