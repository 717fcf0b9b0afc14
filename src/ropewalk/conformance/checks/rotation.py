"""Which features turn, and with which: C01, C02."""

from __future__ import annotations

import torch

from ropewalk.conformance import diagnose, oracles
from ropewalk.conformance.checks import check
from ropewalk.conformance.checks.scores import turned
from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.places import below, start_near
from ropewalk.conformance.target import Target


@check("C01", "layout matches the spec", bound=1e-4, unit="of |x|", needs=("rotation",), kinds=("rope",))
def layout(target: Target, found: Findings) -> None:
    spec = target.spec
    positions = torch.tensor(below(spec, [1, 2, 5, 19]))
    x = found.normal(1, spec.heads, len(positions), spec.head_width)
    got = turned(target, target.build(), x, positions)
    size = x.abs().amax() * oracles.gains(spec)[0]
    result = found.compare(
        "rotate(x)", got, oracles.rotate(x, positions[None], spec), found.bound, positions, dim=2, scale=size
    )
    if not result.holds:
        other = spec.model_copy(update={"layout": "pairs" if spec.layout == "half" else "half"})
        name, unit = "rotate" if target.has("rotate") else "rotate_query", f"torch.eye({spec.head_width})[:1]"
        result.reproduce = f"target.{name}(built, {unit}.expand(1, {spec.heads}, 1, -1), torch.tensor([[1]]))"
        if float((got - oracles.rotate(x, positions[None], other)).abs().amax() / size) < found.bound:
            result.why = f"the layout is {other.layout}, the spec says {spec.layout}"
        elif float((got - oracles.rotate(x, -positions[None], spec)).abs().amax() / size) < found.bound:
            result.why = "it turns the other way"
        else:
            result.why = diagnose.cause(target, target.build())


@check(
    "C02",
    "partial rotary: frequencies, and features left untouched",
    bound={"frequencies": 1e-5, "other features": 0.0},
    needs=("rotation",),
    kinds=("rope",),
)
def partial(target: Target, found: Findings) -> None:
    spec = target.spec
    if spec.rotary == spec.head_width:
        raise NotApplicable("the whole head turns")
    start = start_near(spec, 1_000, 4)
    positions = torch.arange(start, start + 3)
    x, built = found.normal(1, spec.heads, 3, spec.head_width), target.build()
    got = turned(target, built, x, positions)
    rest, still = got[..., spec.rotary :], x.double()[..., spec.rotary :]
    found.compare(
        "features that do not turn",
        rest,
        still,
        found.bounds[-1],
        positions,
        dim=2,
        why=f"features from {spec.rotary} on must pass bit for bit",
    )
    omega, reach = diagnose.estimate(target, built)
    result = found.measure("frequencies", diagnose.frequency_errors(omega, reach, spec), found.bound)
    if not result.holds:
        result.why = diagnose.cause(target, built)
