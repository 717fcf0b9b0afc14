"""What is declared happens, and what cannot be read is refused: C06, C07, C33."""

from __future__ import annotations

from typing import Any

import torch

from ropewalk.conformance import diagnose, oracles
from ropewalk.conformance.checks import check
from ropewalk.conformance.checks.angles import read, rope_parameters
from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.places import below, settled
from ropewalk.conformance.target import Spec, Target


@check("C06", "a configured scaling is applied", bound=0.5, unit="of the change", needs=("angles",), kinds=("rope",))
def changes(target: Target, found: Findings) -> None:
    spec = target.spec
    if spec.scaling is None:
        raise NotApplicable("no scaling is declared")
    plain = spec.model_copy(update={"scaling": None, "arithmetic": "exact"})
    positions = torch.tensor([below(spec, [1, 17, 255, 1_021, 4_093, 8_191, 32_767, 131_071])])
    asked = settled(spec, positions)
    gain = oracles.gains(spec)[0]

    def change(cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        angle = oracles.angles(asked, oracles.frequencies(plain))
        return torch.hypot(cos.double() - angle.cos(), sin.double() - angle.sin())[:, : positions.shape[1]].mean()

    angle = oracles.angles(asked, oracles.frequencies(spec))
    want = change(gain * angle.cos(), gain * angle.sin())
    if want < 1e-9:
        raise NotApplicable(f"{spec.scaling} changes nothing at these lengths")
    got = change(*target.cos_sin(target.build(), asked))
    result = found.measure("cos and sin against plain RoPE's", (got / want - 1).abs(), found.bound)
    if not result.holds:
        result.why = f"{spec.scaling} is declared, and cos and sin are plain RoPE's" if got < want / 100 else None


FACTOR_ONE: dict[str, dict[str, Any]] = {
    "linear": {},
    "yarn": {"original_max_position_embeddings": 4096},
    "llama3": {"original_max_position_embeddings": 4096, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}


@check("C07", "factor 1 is the identity", bound=2.4e-7, needs=("frequencies",), kinds=("rope",))
def identity(target: Target, found: Findings) -> None:
    spec = target.spec
    plain = spec.model_copy(update={"scaling": None})
    common = rope_parameters(plain)
    # Its own rope type must do; of the others, those it knows.
    own = spec.scaling.kind if spec.scaling is not None else None
    for kind, keys in FACTOR_ONE.items():
        config = {**common, "rope_type": kind, "factor": 1.0, "max_position_embeddings": 4096, **keys}
        try:
            frequencies, gain = read(target, config)
        except Exception as error:
            if kind == own:
                raise
            found.note(f"{kind} is not read: {type(error).__name__}")
            continue
        errors = diagnose.frequency_errors(frequencies, 2**40, plain)
        why = f"{kind} with factor 1 is not plain RoPE"
        reproduce = f"target.frequencies({config!r})"
        found.measure(f"frequencies, {kind}", errors, found.bound, why=why, reproduce=reproduce)
        if gain is not None:
            found.measure(f"gain, {kind}", abs(gain - 1), found.bound, why=why, reproduce=reproduce)
    if not found.compared:
        raise NotApplicable("it reads no rope type that has a factor")


@check(
    "C33",
    "invalid configs raise errors",
    bound=0.0,
    unit="read without an error",
    needs=("frequencies",),
    kinds=("rope",),
)
def refusals(target: Target, found: Findings) -> None:
    config = rope_parameters(target.spec)
    read(target, config)
    for name, changed in bad_configs(target.spec, config):
        try:
            read(target, changed)
        except Exception:  # any refusal will do; that there is one is the requirement
            found.require(name, True, "")
        else:
            found.require(name, False, f"{name}: accepted without an error", f"target.frequencies({changed!r})")


def bad_configs(spec: Spec, config: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    bad = [
        ("rope_theta is missing", {key: value for key, value in config.items() if key != "rope_theta"}),
        ("an unknown rope_type", {**config, "rope_type": "no_such_type"}),
        ("an unknown key", {**config, "facotr": 4.0}),
        ("rope_type and type contradict", {**config, "rope_type": "linear", "type": "llama3", "factor": 2.0}),
        ("a factor on plain RoPE", {**rope_parameters(spec.model_copy(update={"scaling": None})), "factor": 4.0}),
    ]
    if spec.scaling is not None and "factor" in config and config.get("rope_type") != "longrope":
        bad.append(("factor is missing", {key: value for key, value in config.items() if key != "factor"}))
    return bad
