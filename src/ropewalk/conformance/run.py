"""Runs the checks on a target, and reports: the verdict first, then what failed, then how to reproduce it."""

from __future__ import annotations

import logging
import math
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from ropewalk.amounts import brief, counted
from ropewalk.conformance.checks import Check, every
from ropewalk.conformance.findings import LENGTH, Difference, Findings, Result
from ropewalk.conformance.spec import MERGED, VERSION, page
from ropewalk.conformance.target import Target

DOT = " \u00b7 "


@dataclass(repr=False)
class Report:
    """What a target was found to be."""

    target: str
    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0
    command: str | None = None
    """What to type to run it again."""

    def __getitem__(self, id: str) -> Result:
        return next(result for result in self.results if result.id == id)

    def of(self, *statuses: str) -> list[Result]:
        return [result for result in self.results if result.status in statuses]

    @property
    def failed(self) -> list[Result]:
        return self.of("failed")

    def raise_for_failures(self) -> None:
        if self.failed:
            raise AssertionError(f"{self.target}: {self}")

    def to_dict(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "spec": VERSION,
            "torch": torch.__version__,
            "seconds": round(self.seconds, 2),
            "counts": self.counts,
            "results": [result.to_dict() for result in self.results],
        }

    @property
    def counts(self) -> dict[str, int]:
        found = {status: len(self.of(status)) for status in ("passed", "float32", "failed", "expected")}
        return {"requirements": len(self.results), "apply": sum(found.values()), **found}

    @property
    def verdict(self) -> str:
        counts = self.counts
        parts = [counted(counts["requirements"], "requirement"), counted(counts["apply"], "applies", "apply")]
        parts += [f"{counts['passed']} passed"]
        parts += [f"{counts['float32']} within float32's error"] if counts["float32"] else []
        parts += [f"{counts['expected']} known"] if counts["expected"] else []
        parts += [f"{counts['failed']} failed"]
        fixed = [result.id for result in self.results if result.fixed]
        parts += [f"fixed: {', '.join(fixed)}"] if fixed else []
        return DOT.join(parts)

    def __repr__(self) -> str:
        failed = [f"  {result.id}  {result.title}" for result in self.failed]
        return brief("\n".join([f"{self.target}: {self.verdict}", *failed]))

    def __str__(self) -> str:
        lines = [f"{self.verdict:<78}  {self.seconds:.1f} s"]
        same: dict[Any, list[Result]] = {}
        for result in [*self.failed, *self.of("expected"), *self.of("float32")]:
            # What raises in `build` raises in every requirement: it is told once.
            cause = (result.status, result.why) if result.measured is None else result.id
            same.setdefault(cause, []).append(result)
        for first, *others in same.values():
            lines += ["", *describe(first)]
            lines += [f"       the same in {', '.join(other.id for other in others)}"] if others else []
        return "\n".join(lines)


def describe(result: Result) -> list[str]:
    """One requirement that failed, or that is shown with -v."""
    if result.status == "not applicable":
        return [f"  {result.id}  {result.title:<59}  not applicable: {result.why}"]
    state = {"float32": "within float32's error", "expected": "known"}.get(result.status, result.status)
    if state in ("failed", "known") and result.first_position is not None:
        state += f" from position {result.first_position:,}"
    lines = [f"  {result.id}  {result.title:<59}  {state:<28}  {size(result)}".rstrip()]
    if result.status == "float32":
        return [
            *lines,
            f'       {result.what}; claim it with angles="float32", and it is judged by that',
            f"       {result.page}",
        ]
    for text in (result.what if result.status == "failed" else None, result.why):
        lines += [f"       {text}"] if text else []
    if result.status in ("failed", "expected"):
        lines += [
            f"       {'reproduce: ' if not n else '           '}{line}"
            for n, line in enumerate((result.reproduction or "").splitlines())
        ]
        lines += [f"       upstream: {result.issue}"] if result.issue else []
        lines += [f"       {result.page}"]
    return lines


def size(result: Result) -> str:
    """0.0076 rad within its length, 1.2 at 4,294,967,296 (bound 1e-06): what matters to the target stands first."""
    if result.measured is None:
        return ""
    unit = f" {result.unit}" if result.unit else ""
    text = f"{result.measured:.3g}{unit}"
    if result.within is not None:
        text = f"{result.within:.3g}{unit} below {LENGTH:,}, {result.measured:.3g}"
    if result.at is not None:
        text += f" at {result.at:,}"
    if result.bound is None:
        return f"{text}  (no bound)"
    return f"{text}  (bound {result.bound:g}{', declared by the target' if result.declared else ''})"


def verify(
    target: Any,
    *,
    only: Iterable[str] | str | None = None,
    seed: int = 0,
    name: str | None = None,
    expected: Mapping[str, Mapping[str, str]] | None = None,
    progress: Callable[[Check], None] | None = None,
) -> Report:
    """Runs every check that applies to a target, or `only` some: verify(target, only="N1,C4").

    `expected` are failures of a library that are known, by id: {"reason", "issue", "reproduction"}.
    """
    target = target if isinstance(target, Target) and name is None else Target(target, name)
    check_bounds(target)
    report = Report(target.name)
    began = time.perf_counter()
    for check in chosen(only):
        if progress is not None:
            progress(check)
        report.results.append(run(check, target, seed, (expected or {}).get(check.id)))
    report.seconds = time.perf_counter() - began
    return report


def check_bounds(target: Target) -> None:
    """Raises where one that is declared cannot be: it would be reported as a failed requirement, or not at all."""
    if unknown := [name for name in target.spec.bounds if name not in every()]:
        raise ValueError(f"bounds: {no_such(unknown[0])}")
    for check in every().values():
        check.declared(target.spec.bounds)


def chosen(only: Iterable[str] | str | None) -> list[Check]:
    """The checks of these ids; N1 is read as N01."""
    checks = every()
    if only is None:
        return list(checks.values())
    texts = only.split(",") if isinstance(only, str) else [part for text in only for part in text.split(",")]
    wanted = []
    for text in (text.strip() for text in texts):
        match = re.fullmatch(r"([NCnc])(\d{1,2})", text)
        full = f"{match[1].upper()}{int(match[2]):02}" if match else text
        if full not in checks:
            raise ValueError(no_such(full))
        wanted.append(full)
    return [check for check in checks.values() if check.id in wanted]


def no_such(id: str) -> str:
    if id in MERGED:
        return f"{id} is part of {MERGED[id]} now; write {MERGED[id]}"
    numbers = {letter: [name for name in every() if name[0] == letter] for letter in "NC"}
    known = " and ".join(f"{each[0]} to {each[-1]}" for each in numbers.values())
    return f"no requirement {id!r}; there are {known} (ropewalk verify --list)"


def run(check: Check, target: Target, seed: int = 0, expected: Mapping[str, str] | None = None) -> Result:
    """One check on one target. A check that raises has failed, with what was raised as the reason."""
    told = {"id": check.id, "title": check.title, "page": page(check.id)}
    refusal = check.refusal(target)
    if refusal is not None:
        return Result(status="not applicable", why=refusal, **told)
    spec = target.spec
    found = Findings(check.id, check.declared(spec.bounds), seed, spec.angles, spec.longest or LENGTH)
    began = time.perf_counter()
    try:
        with _apart():
            check.run(target, found)
        worst = found.worst
    except Exception as error:
        text = " ".join(str(error).split())
        said = f"raised {type(error).__name__}: {text[:300] + '...' if len(text) > 300 else text}"
        # What failed before it raised is kept: it may tell more. What float32 explains would hide that it raised.
        earlier = next((each for each in found.compared if not each.holds and not each.float32), None)
        worst = earlier or Difference(name="", measured=math.nan, bound=None, why=said)
    seconds = time.perf_counter() - began
    notes = "; ".join(found.notes) or None
    if worst is None:
        why = notes or "nothing of it could be compared"
        return Result(status="not applicable", why=why, seconds=seconds, **told)
    failed = not worst.holds or math.isnan(worst.measured)
    status = "passed" if not failed else "float32" if worst.float32 else "failed" if expected is None else "expected"
    script = (expected or {}).get("reproduction") if status == "expected" else None
    shown = f"python {script}   # without ropewalk" if script else reproduction(target, check.id, worst)
    return Result(
        status=status,
        measured=None if math.isnan(worst.measured) else worst.measured,
        bound=worst.bound,
        unit=check.unit if worst.unit is None else worst.unit,
        first_position=worst.first_position,
        at=worst.at,
        within=worst.within,
        what=worst.name or None,
        why=(worst.why or notes) if failed else notes,
        reproduction=shown if failed else None,
        seconds=seconds,
        declared=_declared(worst, target.spec.bounds.get(check.id)),
        fixed=status == "passed" and expected is not None,
        issue=None if expected is None else expected.get("issue"),
        compared=tuple(found.compared),
        **told,
    )


def _declared(found: Difference, said: float | Mapping[str, float] | None) -> bool:
    return found.bound in said.values() if isinstance(said, Mapping) else said is not None


def reproduction(target: Target, id: str, found: Difference) -> str:
    """Two lines to paste: the instance, and the call that shows it; without a call, the command."""
    again = f"ropewalk verify {target.name} --only {id} -v"
    if found.reproduce is None:
        return again
    place, _, name = target.name.partition(":")
    source = getattr(target.given, "source", None)  # a line that makes `target`, where it has no import path
    if source is None and name.isidentifier():
        source = f"from {place} import {name} as target"
    made = "built = target.build()" if source else f"import torch; built = target.build()   # target: {target.name}"
    return f"import torch; {source}; {made}\n{found.reproduce}" if source else f"{made}\n{found.reproduce}"


@contextmanager
def _apart() -> Iterator[None]:
    """A check leaves torch as it found it, whatever the target does to it."""
    dtype, precision = torch.get_default_dtype(), torch.get_float32_matmul_precision()
    silent, threads = logging.root.manager.disable, torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are small: waiting for a second thread costs more than it gains
    logging.disable(logging.ERROR)  # a graph that cannot be captured is told in the result, not in pages of log
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        try:
            yield
        finally:
            logging.disable(silent)
            torch.set_num_threads(threads)
            torch.set_default_dtype(dtype)
            torch.set_float32_matmul_precision(precision)
