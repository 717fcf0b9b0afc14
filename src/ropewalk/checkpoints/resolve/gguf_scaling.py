"""The scaling of a GGUF file, from its keys or from the divisors its converter worked out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ropewalk.checkpoints.architectures.in_engines import InGGUF
from ropewalk.checkpoints.resolve.keys import LARGEST_LENGTH, Keys
from ropewalk.scaling import Linear, Llama3, LongRoPE, Scaling, YaRN
from ropewalk.scaling.exact import ladder

if TYPE_CHECKING:
    from ropewalk.checkpoints.files.gguf import GGUF

Sources = dict[str, str]
_LLAMA3_LENGTHS = (8192, 4096, 2048, 16_384, 32_768)


def read_scaling(
    file: GGUF, keys: Keys, known: InGGUF, width: int, length: int, notes: list[str]
) -> tuple[Scaling | None, Sources]:
    """The scaling, and where its fields came from."""
    name = keys.text("rope.scaling.type")
    factor = _factor(keys)
    trained = keys.integer("rope.scaling.original_context_length", least=2, most=LARGEST_LENGTH)
    attention = keys.number("rope.scaling.attn_factor", 0, 1e6)
    said = {"scaling": keys.source("rope.scaling.type")}
    try:
        short, long = _divisors(file, keys, "short", width), _divisors(file, keys, "long", width)
        if short is not None and long is not None:
            _refuse_beside("rope_factors_long.weight", keys, name, factor, None)  # the gain is LongRoPE's
            return _longrope(keys, short, long, trained, attention, length, said)
        if name == "longrope":
            raise keys.bad("rope.scaling.type", "longrope, and the file holds no rope_factors tensors", "convert again")
        baked = _divisors(file, keys, "freqs", width)
        if baked is not None and all(value == 1 for value in baked):
            notes.append("rope_freqs.weight divides by 1")
        elif baked is not None:
            _refuse_beside("rope_freqs.weight", keys, name, factor, attention)
            return _llama3(keys, baked, width, trained, length, said, notes)
        if name == "yarn":
            return _yarn(keys, known, factor, trained, attention, length, said, notes)
        if name not in (None, "none", "linear"):
            raise keys.bad("rope.scaling.type", f"{name!r} is not known", "there are none, linear, yarn and longrope")
        if attention not in (None, 1.0):
            raise keys.bad(
                "rope.scaling.attn_factor", f"{attention:g} is only supported with yarn or longrope", "remove it"
            )
        if factor in (None, 1.0) or name == "none":
            if trained is not None and trained != length:
                notes.append(f"rope.scaling.original_context_length {trained:,} is ignored: there is no scaling")
            return None, {}
        said["factor"] = _factor_source(keys)
        return Linear(factor=factor or 1.0), {**said, "scaling": said["factor"]}
    except ValueError as error:
        if hasattr(error, "field"):
            raise
        raise keys.bad("rope.scaling", str(error)) from None


def _factor(keys: Keys) -> float | None:
    """0 says none, and so does an absent key; `rope.scale_linear` is the older name."""
    for key in ("rope.scaling.factor", "rope.scale_linear"):
        value = keys.number(key, -1e-30, 4096)
        if value is not None:  # llama.cpp asks for the older name only where the newer is absent
            return value or None
    return None


def _refuse_beside(divisors: str, keys: Keys, name: str | None, factor: float | None, attention: float | None) -> None:
    """llama.cpp divides by the tensor's numbers and scales by the keys too."""
    key, value = ("factor", factor) if factor not in (None, 1.0) and name != "none" else ("attn_factor", attention)
    if value not in (None, 1.0):
        problem = f"{value:g} beside the divisors of {divisors}: llama.cpp applies both, and ropewalk one"
        raise keys.bad(f"rope.scaling.{key}", problem, "remove one of the two")


def _factor_source(keys: Keys) -> str:
    return keys.source("rope.scaling.factor" if keys.data.get("rope.scaling.factor") else "rope.scale_linear")


def _divisors(file: GGUF, keys: Keys, which: str, width: int) -> tuple[float, ...] | None:
    name = "rope_freqs.weight" if which == "freqs" else f"rope_factors_{which}.weight"
    if name not in file.tensors:
        return None
    shape = file.tensors[name].shape
    if shape != (width // 2,):
        raise keys.bad(
            name, f"has shape {shape}, and {width} rotated features have {width // 2} frequencies", "convert again"
        )
    values = tuple(float(value) for value in file.floats(name))
    if any(not math.isfinite(value) or value <= 0 for value in values):
        raise keys.bad(name, "holds a divisor that is not finite and positive", "convert it again")
    return values


def _longrope(
    keys: Keys,
    short: tuple[float, ...],
    long: tuple[float, ...],
    trained: int | None,
    attention: float | None,
    length: int,
    said: Sources,
) -> tuple[Scaling, Sources]:
    said |= {"short": f"{keys.where}:rope_factors_short.weight", "long": f"{keys.where}:rope_factors_long.weight"}
    said["trained"] = keys.source("rope.scaling.original_context_length" if trained else "context_length")
    said["scaling"] = said["long"]
    if attention is not None:
        said["rotary_gain"] = keys.source("rope.scaling.attn_factor")
    found = LongRoPE(short=short, long=long, trained=trained or length, attention_factor=attention or 1.0)
    return found, said


def _llama3(
    keys: Keys, baked: tuple[float, ...], width: int, trained: int | None, length: int, said: Sources, notes: list[str]
) -> tuple[Scaling, Sources]:
    """The ramp the divisors were worked out from, if it is Llama 3.1's; else the divisors themselves."""
    said["scaling"] = f"{keys.where}:rope_freqs.weight"
    base = keys.number("rope.freq_base", 1, 1e12) or 10_000.0
    for candidate in (trained,) if trained else _LLAMA3_LENGTHS:
        ramp = Llama3(factor=max(baked), trained=candidate)
        plain = ladder(base, width)
        exact = [float(omega / scaled) for omega, scaled in zip(plain, ramp.frequencies(base, width), strict=True)]
        if all(math.isclose(one, other, rel_tol=3e-6) for one, other in zip(exact, baked, strict=True)):
            said |= {"factor": said["scaling"], "trained": f"{said['scaling']} (found by its ramp)"}
            return ramp, said
    notes.append("rope_freqs.weight is not Llama 3.1's ramp with low 1 and high 4; its divisors are taken as they are")
    return LongRoPE(short=baked, long=baked, trained=length, attention_factor=1.0, length=length), said


def _yarn(
    keys: Keys,
    known: InGGUF,
    factor: float | None,
    trained: int | None,
    attention: float | None,
    length: int,
    said: Sources,
    notes: list[str],
) -> tuple[Scaling, Sources]:
    if factor is None:
        raise keys.bad("rope.scaling.factor", "is missing, and yarn needs it", "add it")
    said["factor"] = _factor_source(keys)
    said["trained"] = keys.source("rope.scaling.original_context_length" if trained else "context_length")
    fast, slow = keys.number("rope.scaling.yarn_beta_fast", 0, 1e6), keys.number("rope.scaling.yarn_beta_slow", 0, 1e6)
    weight = keys.number("rope.scaling.yarn_log_multiplier", 0, 1e6)
    ext = keys.number("rope.scaling.yarn_ext_factor", -1e-30, 1e6)
    if ext not in (None, 1.0):
        raise keys.bad("rope.scaling.yarn_ext_factor", f"{ext:g} changes the ramp, and only 1 is supported", "use 1")
    stated = keys.number("rope.scaling.yarn_attn_factor", 0, 1e6)
    ours = YaRN(factor=factor, trained=trained or length, beta_fast=fast or 32.0, beta_slow=slow or 1.0)
    gain = None
    if stated is not None:
        gain, said["rotary_gain"] = stated, keys.source("rope.scaling.yarn_attn_factor")
        if stated != ours.rotary_gain:
            notes.append(
                f"rope.scaling.yarn_attn_factor {stated:g} is the model's gain; llama.cpp overwrites it with "
                f"{ours.rotary_gain:.5g}"
            )
    if attention not in (None, 1.0):
        gain, said["rotary_gain"] = (
            (gain or ours.rotary_gain) * (attention or 1.0),
            keys.source("rope.scaling.attn_factor"),
        )
    values = {**dict(ours), "attention_factor": gain}
    if weight is not None:
        if known.log_multiplier_in_tenths:
            whole = round(weight / 0.1, 6)
            values |= {"mscale": whole, "mscale_all_dim": whole, "dialect": "deepseek"}
        else:
            values |= {"mscale": 1.0, "mscale_all_dim": weight}
    return YaRN.model_validate(values), said
