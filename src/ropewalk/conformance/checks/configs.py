"""What a config says is read, and what cannot be read is refused: C07, C33."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ropewalk.conformance.checks import check
from ropewalk.conformance.checks.angles import read, rope_parameters
from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.target import Spec, Target

FACTOR_ONE: dict[str, dict[str, Any]] = {
    "linear": {},
    "yarn": {"original_max_position_embeddings": 4096},
    "llama3": {"original_max_position_embeddings": 4096, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}


@check("C07", "factor 1 is the identity", bound=2.4e-7, needs=("frequencies",), kinds=("rope",))
def identity(target: Target, found: Findings) -> None:
    spec = target.spec
    # A config has no key for the ladders of several axes.
    plain = spec.model_copy(update={"scaling": None, "sections": None, "arrangement": "blocks"})
    common = rope_parameters(plain)
    # Its own rope type must do; of the others, those it knows.
    own = spec.scaling.kind if spec.scaling is not None else None
    own_plain = read(target, common)[0]  # what they are is N07's matter
    for kind, keys in FACTOR_ONE.items():
        config = {**common, "rope_type": kind, "factor": 1.0, "max_position_embeddings": 4096, **keys}
        try:
            frequencies, gain = read(target, config)
        except Exception as error:
            if kind == own:
                raise
            found.note(f"{kind} is not read: {type(error).__name__}")
            continue
        errors = (frequencies - own_plain).abs() / own_plain.abs().clamp(min=2.0**-40)
        why = f"{kind} with factor 1 is not plain RoPE"
        reproduce = f"target.frequencies({config!r})"
        found.measure(f"frequencies, {kind}", errors, found.bound, why=why, reproduce=reproduce)
        if gain is not None:
            found.measure(f"gain, {kind}", abs(gain - 1), found.bound, why=why, reproduce=reproduce)
    if not found.compared:
        raise NotApplicable("it reads no rope type that has a factor")


@check(
    "C33",
    "invalid configs are refused or warned of",
    bound=0.0,
    unit="read silently",
    needs=("frequencies",),
    kinds=("rope",),
)
def refusals(target: Target, found: Findings) -> None:
    config = rope_parameters(target.spec)
    read(target, config)
    for name, changed in bad_configs(target.spec, config):
        try:
            with heard() as said:
                read(target, changed)
        except Exception:  # any refusal will do; that there is one is the requirement
            found.require(name, True, "")
        else:
            why = f"{name}: accepted without an error or a warning"
            found.require(name, bool(said), why, f"target.frequencies({changed!r})")
            if said:
                found.note(f"{name}: only warned of")


@contextmanager
def heard() -> Iterator[list[str]]:
    """What is said while it lasts: warnings of the module, and log records of that level and above."""
    said: list[str] = []
    handle, disabled = logging.Logger.handle, logging.root.manager.disable

    def listening(self: logging.Logger, record: logging.LogRecord) -> None:
        said.extend([record.getMessage()] if record.levelno >= logging.WARNING else [])

    logging.disable(logging.NOTSET)
    logging.Logger.handle = listening  # type: ignore[method-assign]
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield said
        said.extend(str(one.message) for one in caught)
    finally:
        logging.Logger.handle = handle  # type: ignore[method-assign]
        logging.disable(disabled)


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
