"""The checks, one function for each requirement of the spec. A file holds those that look at one side of a target."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.target import Target

Body = Callable[[Target, Findings], None]

GRAPHS = ("C29", "C30")
"""What is asked of torch's graphs."""

PER_CALL = ("C09", "C10", "C21", "C29", "C30", "C31")
"""What no implementation can do whose frequencies depend on the largest position of a call."""


@dataclass(frozen=True, kw_only=True)
class Check:
    id: str
    title: str
    bounds: tuple[float, ...]
    parts: tuple[str, ...]
    """What each bound is of, where they are of different things; empty: they have one unit."""
    unit: str
    needs: tuple[str, ...]
    kinds: tuple[str, ...]
    sides: str | None
    declares: str | None
    """What a spec must declare for it to be asked."""
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
        if target.spec.per_call and target.spec.length_dependent and self.id in PER_CALL:
            return "the length of each call sets the frequencies, by the definition of the method"
        if self.declares is not None and getattr(target.spec, self.declares) is None:
            return f"its spec declares no {self.declares}"
        missing = [need.replace("|", " or ") for need in self.needs if not target.has(need)]
        if missing:
            return f"the target offers no {', no '.join(missing)}"
        if self.id in GRAPHS and getattr(target.given, "outside_torch", False):
            return "it computes outside torch: there is no graph of it to compile or export"
        return None

    def declared(self, own: Mapping[str, float | Mapping[str, float]]) -> tuple[float, ...]:
        """The bounds with those in place that a target declares: one number for all, or one for each part."""
        said = own.get(self.id)
        if said is None:
            return self.bounds
        if not isinstance(said, Mapping):
            if self.parts:
                written = " or ".join(
                    f'{{"{part}": {bound:g}}}' for part, bound in zip(self.parts, self.bounds, strict=True)
                )
                raise ValueError(
                    f"bounds: {self.id} bounds {' and '.join(self.parts)}, which {said:g} cannot both be; "
                    f'write {{"{self.id}": {written}}}'
                )
            return tuple(said for _ in self.bounds) or (said,)
        if unknown := [part for part in said if part not in self.parts]:
            known = f"it has {', '.join(self.parts)}" if self.parts else f'write {{"{self.id}": NUMBER}}'
            raise ValueError(f"bounds: {self.id} has no part {unknown[0]!r}; {known}")
        return tuple(said.get(part, bound) for part, bound in zip(self.parts, self.bounds, strict=True))


_FOUND: dict[str, Check] = {}


def check(
    id: str,
    title: str,
    *,
    bound: float | tuple[float, ...] | dict[str, float] = (),
    unit: str = "",
    needs: tuple[str, ...] = (),
    kinds: tuple[str, ...] = (),
    sides: str | None = None,
    declares: str | None = None,
) -> Callable[[Body], Body]:
    """Registers the check of one requirement. `bound`: several have one unit, unless they have names; `needs`: offers
    it cannot do without, "a|b" for either; `kinds`: whose truth it knows, all if empty; `sides`: it is asked again of
    each hidden side of the target that has this; `declares`: a field of the spec without which it is not asked."""

    def register(body: Body) -> Body:
        parts = tuple(bound) if isinstance(bound, dict) else ()
        bounds = tuple(bound.values()) if isinstance(bound, dict) else bound if isinstance(bound, tuple) else (bound,)
        _FOUND[id] = Check(
            id=id,
            title=title,
            bounds=bounds,
            parts=parts,
            unit=unit,
            needs=needs,
            kinds=kinds,
            sides=sides,
            declares=declares,
            body=body,
        )
        return body

    return register


def every() -> dict[str, Check]:
    """All checks by id, N before C."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(sorted(_FOUND.items(), key=lambda item: (item[0][0] != "N", item[0])))
