"""What surrounds an instance changes nothing of it: dtypes, devices, checkpoints, neighbours: N06, C03, C04, C34."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.conformance import diagnose, oracles
from ropewalk.conformance.checks import check
from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.places import below, settled
from ropewalk.conformance.target import Target

CLOSE = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-10}
"""An answer in a narrow dtype may be off by what storing it there costs, twice."""


def answer(target: Target, built: Any, dtype: torch.dtype = torch.float32) -> Tensor:
    """Something of this target at near and far positions, that depends on all it is; in the dtype it comes in."""
    spec, positions = target.spec, looked_at(target)
    if target.has("angles"):
        cos, sin = target.cos_sin(built, settled(spec, positions), dtype)
        return torch.cat([cos, sin], dim=-1)[:, : positions.shape[1]]
    if target.has("rotation"):
        ramp = torch.linspace(-1, 1, spec.head_width, dtype=torch.float32).expand(1, spec.heads, positions.shape[1], -1)
        return target.rotate(built, ramp.to(dtype), positions).movedim(1, 2)
    if target.has("bias"):
        return target.bias(built, positions[0], positions[0]).movedim(0, -1)
    ids = torch.arange(8)[None] % (target.spec.vocabulary or 64)
    return target.forward(built, ids, torch.arange(8)[None])[0]


def looked_at(target: Target) -> Tensor:
    """Far ones have a neighbour: a bias that is the difference of two rounded products is off most for near keys."""
    return torch.tensor([below(target.spec, [0, 1, 3, 100, 257, 2047, 8191, 131_070, 131_071, 1_000_000, 1_000_001])])


def size_of(target: Target, want: Tensor) -> Tensor | float:
    if target.has("angles"):
        return oracles.gains(target.spec)[0] if target.spec.kind == "rope" else 1.0
    return want.double().abs().clamp(min=1.0)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@check(
    "N06",
    "results do not depend on casts or the default dtype",
    bound=2.4e-7,
    needs=("angles|rotation|bias",),
    sides="angles|rotation|bias",
)
def casts(target: Target, found: Findings) -> None:
    want = answer(target, target.build())
    size = size_of(target, want)
    around: dict[str, tuple[Callable[[], Any], AbstractContextManager[Any], torch.dtype]] = {
        "under autocast to bfloat16": (target.build, torch.autocast("cpu", torch.bfloat16), torch.float32),
        "with matmul precision medium": (target.build, matmul_precision("medium"), torch.float32),
    }
    for dtype in (torch.bfloat16, torch.float64):
        name = str(dtype).removeprefix("torch.")
        around[f"with the default dtype {name}"] = (target.build, default_dtype(dtype), torch.float32)
    for dtype in (torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        around[f"built in {name}"] = (lambda d=dtype: target.build(dtype=d), nullcontext(), dtype)
        if isinstance(target.build(), nn.Module):
            around[f"after .to({name})"] = (lambda d=dtype: target.cast(d), nullcontext(), dtype)
    learned = target.spec.kind in ("t5", "other")
    whole = want
    for name, (make, ambient, dtype) in around.items():
        want, size = whole, size_of(target, whole)
        try:
            # Learned numbers are drawn in the default dtype, rightly; all else must not care.
            before = target.build() if learned and dtype == torch.float32 else None
            if learned and dtype != torch.float32:
                # What is learned is rounded with the weights, rightly; what is done with positions is not.
                rounded = make()
                if not isinstance(rounded, nn.Module):
                    continue
                want = answer(target, rounded.to(torch.float32))
                size = size_of(target, want)
                if target.has("rotation"):
                    # Each feature has the rounding of its whole vector, which xpos and temperature make longer.
                    size = want.double().abs().amax().clamp(min=1.0)
            with ambient:
                built = make() if before is None else before
                got = answer(target, built, dtype)
        except RuntimeError as error:
            if "not implemented" not in str(error) and not isinstance(error, NotImplementedError):
                raise
            found.note(f"{name}: {error}")
            continue
        bound = max(CLOSE.get(got.dtype, 0.0), found.bound)
        if target.spec.kind == "other" and ("autocast" in name or "matmul" in name):
            bound = CLOSE[torch.bfloat16]  # a learned network (FIRE's) is what these are for
        result = found.compare(
            f"{name}, answered in {str(got.dtype).removeprefix('torch.')}", got, want, bound, scale=size
        )
        if not result.holds:
            result.why = f"{name} the result changes"
            result.reproduce = in_words(target, name, dtype, learned=learned)
            if target.has("angles"):
                with ambient_again(name):
                    result.why = diagnose.cause(target, built, dtype) or result.why


def in_words(target: Target, name: str, dtype: torch.dtype, *, learned: bool = False) -> str | None:
    """The lines that show it, where a cast is all it takes."""
    last = looked_at(target)[0, -2:].tolist()
    where, length = f"torch.tensor([{last}])", len(last)
    if dtype == torch.float32:
        return None
    cast = f"target.build(dtype={dtype})" if "built" in name else f"target.build().to({dtype})"
    narrow = target.line(where, built=cast, length=length, dtype=str(dtype))
    wide = target.line(where, built=f"{cast}.to(torch.float32)" if learned else "built", length=length)
    return f"print({wide}, {narrow})"


def ambient_again(name: str) -> AbstractContextManager[Any]:
    return torch.autocast("cpu", torch.bfloat16) if "autocast" in name else nullcontext()


@check(
    "C03",
    "meta-device init and load give the same result",
    bound=2.4e-7,
    needs=("angles|rotation|bias|forward",),
    sides="angles|rotation|bias",
)
def from_meta(target: Target, found: Findings) -> None:
    fresh = target.build()
    if not isinstance(fresh, nn.Module):
        raise NotApplicable("what it builds is no nn.Module")
    want = answer(target, fresh)
    with torch.device("meta"):
        built = target.build(device="meta")
    if not isinstance(built, nn.Module):
        raise NotApplicable("what it builds on the meta device is no nn.Module")
    built.to_empty(device="cpu")
    for tensor in [*built.parameters(), *built.buffers()]:
        # to_empty leaves whatever was in memory; this is the worst of it.
        tensor.data.fill_(float("nan") if tensor.is_floating_point() or tensor.is_complex() else 0)
    if target.has("refill"):
        target.function("refill")(built)
    built.load_state_dict(fresh.state_dict(), strict=True)
    lost = [name for name, buffer in built.named_buffers() if buffer.is_floating_point() and buffer.isnan().any()]
    found.compare(
        "after to_empty and load_state_dict",
        answer(target, built),
        want,
        found.bound,
        scale=size_of(target, want),
        why=f"{', '.join(lost)} is in no state dict, and nothing fills it again" if lost else None,
    )


@check(
    "C04",
    "no position tables in the state dict, or harmless ones",
    bound=2.4e-7,
    needs=("angles|rotation|bias|forward",),
    sides="angles|rotation|bias",
)
def state_dict(target: Target, found: Findings) -> None:
    fresh = target.build()
    if not isinstance(fresh, nn.Module):
        raise NotApplicable("what it builds is no nn.Module")
    want = answer(target, fresh)
    parameters = {name for name, _ in fresh.named_parameters(remove_duplicate=False)}
    state = fresh.state_dict()
    tables = [name for name, value in state.items() if name not in parameters and value.is_floating_point()]
    rounded = {n: v.to(torch.bfloat16).to(v.dtype) if n in tables else v for n, v in state.items()}
    built = target.build()
    built.load_state_dict(rounded, strict=True)
    found.compare(
        "after loading a checkpoint in bfloat16",
        answer(target, built),
        want,
        found.bound,
        scale=size_of(target, want),
        why=f"{', '.join(tables)} is loaded from the checkpoint, rounded to bfloat16",
        reproduce=f"built.state_dict().keys()   # {', '.join(tables)}",
    )


@check(
    "C34",
    "instances share no state",
    bound={"difference": 2.4e-7, "angle": 3e-4},
    needs=("angles|rotation|bias",),
    sides="angles|rotation|bias",
)
def apart(target: Target, found: Findings) -> None:
    why = "what one instance was told, another one answers with"
    if target.has("angles") and target.spec.kind in ("rope", "sinusoidal"):
        after_a_narrow_one(target, found, why)
    first = target.build()
    want = answer(target, first).clone()
    size = size_of(target, want)
    try:
        answer(target, target.build(dtype=torch.bfloat16), torch.bfloat16)
    except Exception as error:
        found.note(f"no bfloat16 instance beside it: {error}")
    else:
        found.compare("after an instance in bfloat16", answer(target, first), want, found.bound, scale=size, why=why)
    other = target.build()
    answer(target, other)
    if target.has("cos_sin"):
        for part in target.cos_sin(other, settled(target.spec, looked_at(target))):
            # A caller may write into what it was given; a table handed out as it is would be spoilt for all.
            if part.is_floating_point() and not part.is_inference():
                part.mul_(0)
    if isinstance(other, nn.Module):
        for buffer in other.buffers():
            buffer.data.zero_()
    fresh = target.build()
    found.compare("after another was spoilt", answer(target, first), want, found.bound, scale=size, why=why)
    found.compare("made after another was spoilt", answer(target, fresh), want, found.bound, scale=size, why=why)


def after_a_narrow_one(target: Target, found: Findings, why: str) -> None:
    """Positions that an instance in bfloat16 is asked for first: a table kept for all would be in bfloat16.

    What is right there is told by an instance made before, at other positions: angle(p) = angle(p - 1) + angle(1),
    whatever the frequencies are. Where its own angles do not add, nothing can be told.
    """
    spec = target.spec
    p = torch.tensor(below(spec, [3, 11, 45, 131, 300]))
    if not len(p):
        return

    def wave(built: Any, positions: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        parts = target.cos_sin(built, settled(spec, positions[None]), dtype)
        return torch.complex(*(part[0, : len(positions)].double() for part in parts))

    def apart(whole: Tensor, *parts: Tensor) -> Tensor:
        return (parts[0] * parts[1] * whole.conj()).angle().abs().nan_to_num(torch.inf)

    one, before, earlier = (wave(alone, at) for alone in [target.build()] for at in (p[:1] * 0 + 1, p - 1, p - 2))
    if not bool((apart(before, earlier, one) <= found.bounds[-1]).all()):
        found.note("angles do not add in one instance alone, so that a table shared with one in bfloat16 is not seen")
        return
    try:
        wave(target.build(dtype=torch.bfloat16), p, torch.bfloat16)
    except Exception:  # told by what follows
        return
    errors = apart(wave(target.build(), p), before, one)
    found.measure("where one in bfloat16 was asked first", errors, found.bounds[-1], p, dim=0, why=why)
