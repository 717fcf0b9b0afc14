"""Models of our own: a config.json that says `model_type: ropewalk` and holds a TransformerConfig, which is the plan.

Building that config needs torch, which is imported when there is one to build.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ropewalk.checkpoints.errors import BadInput, few, plain
from ropewalk.checkpoints.files.strict_json import read_json
from ropewalk.checkpoints.resolve.resolved import Resolved

if TYPE_CHECKING:
    from ropewalk.models import TransformerConfig
    from ropewalk.models.config import Side
    from ropewalk.plan import Plan
    from ropewalk.scaling import Scaling

MODEL_TYPE = "ropewalk"
LLAMA: dict[str, Any] = {
    "stack": "decoder",
    "activation": "swiglu",
    "window": None,
    "keep_first": 0,
    "scale": None,
    "soft_cap": None,
    "sink": False,
    "qk_norm": None,
    "scale_embedding": False,
    "types": 0,
    "embedding_norm": False,
    "scale_output": False,
    "output": True,
    "output_transform": False,
    "output_bias": False,
    "output_cap": None,
}
"""What a config must say to be Llama's."""


def why_not_llama(config: TransformerConfig) -> str | None:
    """What of a config is not Llama's; None where all of it is."""
    from ropewalk.encodings.rope import RoPE

    for key, value in LLAMA.items():
        if getattr(config, key) != value:
            return f"{key} is {getattr(config, key)}"
    norm, encoding = config.norm, config.encoding
    if (norm.kind, norm.placement, norm.shifted) != ("rms", "pre", False):
        return f"the norm is {norm.kind}, {norm.placement}"
    if config.qkv_bias != config.out_bias or config.value_width != config.head_width:
        return "biases or widths differ inside a layer"
    if not isinstance(encoding, RoPE.Config) or not isinstance(config.layers, int):
        return f"positions are {encoding.kind}" if isinstance(config.layers, int) else "layers are of several kinds"
    if encoding.layout != "half" or encoding.rotary_width not in (None, config.head_width):
        return "heads are not rotated as in Llama"
    if encoding.frequencies is not None or encoding.sections is not None:
        return "its frequencies are its own" if encoding.frequencies is not None else "positions have several axes"
    return None if encoding.scaling is None else _unstated(encoding.scaling, encoding.base, config.head_width)


def _unstated(scaling: Scaling, base: float, width: int) -> str | None:
    """What of a scaling the keys of a Llama do not say."""
    from ropewalk.scaling import to_hf_v4

    if (length := getattr(scaling, "length", None)) is not None:
        return f"its {scaling.kind} is that of {length:,} tokens for every text"
    if scaling.logit_gain != 1:
        return f"its {scaling.kind} multiplies scores by {scaling.logit_gain:g}"
    try:
        to_hf_v4(scaling, base, width)
    except ValueError as error:
        return str(error).partition(";")[0]
    return None


def is_native(path: Path) -> bool:
    config = path / "config.json"
    return config.is_file() and read_json(config).get("model_type") == MODEL_TYPE


def config_in(file: Path, kinds: Collection[str] = ()) -> TransformerConfig:
    """The config in a config.json that says `model_type: ropewalk`."""
    return config_of(read_json(file).get("model"), file, kinds)


def config_of(said: Any, file: Path, kinds: Collection[str] = ()) -> TransformerConfig:
    """The config that a file says. kinds: of other packages, to be imported where it names them; it alone has nothing
    imported."""
    from ropewalk.encodings.find import ALLOWED, NotAllowed
    from ropewalk.models import TransformerConfig

    allowed = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    try:
        return TransformerConfig.model_validate(said, context={ALLOWED: allowed})
    except ValidationError as error:
        every = [(detail, detail.get("ctx", {}).get("error")) for detail in error.errors()]
        outside = {cause.kind: None for _, cause in every if isinstance(cause, NotAllowed)}
        first = next((each for each, cause in every if isinstance(cause, NotAllowed)), every[0][0])
        field = ".".join(("model", *map(str, first["loc"])))
        if outside:
            raise _not_allowed(file, field, list(outside), allowed) from None
        raise BadInput(file, field, first["msg"].removeprefix("Value error, "), "correct the config") from None
    except (RuntimeError, OverflowError) as error:  # sizes that torch has no tensor for
        raise BadInput(file, "model", f"cannot be built ({plain(error)})", "correct the config") from None


def _not_allowed(file: Path, field: str, outside: list[str], allowed: tuple[str, ...]) -> BadInput:
    problem = f"{few(map(repr, outside))} is code of another package, and a checkpoint does not decide what is imported"
    # Told to type are only names of modules, so that no file puts other words into somebody's shell.
    names = [*allowed, *(kind for kind in outside if all(part.isidentifier() for part in kind.split(".")))]
    options = " ".join(f"--allow-kind {name}" for name in names)
    remedy = f"if you trust that package: {options}, or in Python ropewalk.load(path, kinds={names!r})"
    return BadInput(file, field, problem, remedy if len(names) > len(allowed) else "correct the config")


def resolve_native(file: Path, name: str, kinds: Collection[str] = ()) -> Resolved:
    """What positions a model of our own uses: its config is the plan."""
    config, said = config_in(file, kinds), read_json(file)
    why = why_not_llama(config)
    shape = "it has Llama's form, but was not written as a Llama" if why is None else f"not a Llama: {why}"
    return Resolved(
        name=name,
        where=file.name,
        model_type=MODEL_TYPE,
        stack=config.stack,
        plans={**plans_of(config, said, file)},
        config=said,
        notes=(f"the model is ropewalk's own ({shape}), in a form that ropewalk alone reads",),
    )


def plans_of(config: TransformerConfig, said: dict[str, Any], file: Path) -> dict[Side, Plan]:
    """The plan of each side, with the lengths it was trained at."""
    plans: dict[Side, Plan] = {}
    for side in config.sides:
        # What an encoder-decoder reads has a length of its own.
        key = "trained_source_length" if (config.stack, side) == ("encoder-decoder", "encoder") else "trained_length"
        length = said.get(key)
        if length is not None and (type(length) is not int or not 0 < length <= 2**40):
            raise BadInput(file, key, f"{length!r} is not a number of tokens", "correct the config, or remove it")
        sources = () if length is None else (("trained", f"{file.name}:{key}"),)
        plans[side] = replace(config.plan(side), trained=length, sources=sources)
    return plans
