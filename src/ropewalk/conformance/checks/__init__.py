"""The checks, one function for each requirement of the spec. A file holds those that look at one side of a target."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.target import Target

Body = Callable[[Target, Findings], None]


@dataclass(frozen=True, kw_only=True)
class Check:
    id: str
    title: str
    bounds: tuple[float, ...]
    unit: str
    needs: tuple[str, ...]
    kinds: tuple[str, ...]
    sides: str | None
    body: Body

    def run(self, target: Target, found: Findings) -> None:
        """On the target as it is, then on what it would hide, as far as the check is about that. What a side cannot
        take is noted: what was compared before, or on another side, counts."""
        sides = [side for side in target.hidden() if self.sides is not None and side.has(self.sides)]
        for side in (target, *sides):
            try:
                self.body(side, found)
            except NotApplicable as reason:
                found.note(str(reason))

    def refusal(self, target: Target) -> str | None:
        """Why a target cannot take it."""
        if self.kinds and target.spec.kind not in self.kinds:
            return f"for {', '.join(self.kinds)}; this is {target.spec.kind}"
        missing = [need.replace("|", " or ") for need in self.needs if not target.has(need)]
        return f"the target offers no {', no '.join(missing)}" if missing else None


_FOUND: dict[str, Check] = {}


def check(
    id: str,
    title: str,
    *,
    bound: float | tuple[float, ...] = (),
    unit: str = "",
    needs: tuple[str, ...] = (),
    kinds: tuple[str, ...] = (),
    sides: str | None = None,
) -> Callable[[Body], Body]:
    """Registers the check of one requirement. `needs`: offers it cannot do without, "a|b" for either; `kinds`: whose
    truth it knows, all if empty; `sides`: it is asked again of each hidden side of the target that has this."""

    def register(body: Body) -> Body:
        bounds = bound if isinstance(bound, tuple) else (bound,)
        _FOUND[id] = Check(
            id=id, title=title, bounds=bounds, unit=unit, needs=needs, kinds=kinds, sides=sides, body=body
        )
        return body

    return register


def every() -> dict[str, Check]:
    """All checks by id, N before C."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(sorted(_FOUND.items(), key=lambda item: (item[0][0] != "N", item[0])))
