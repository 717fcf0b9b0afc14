"""Times the rotation of queries and keys (1 x 16 x 4096 x 128) against a copy of them, and against other libraries; and
of one token, of 1 text and of 16, as in decoding.

    python benchmarks/rope.py [--rounds 31] [--json]

Everything runs in one process, interleaved: each candidate right after a clone of the tensors it rotates. A figure is
the median over the rounds of the ratio of the two; times themselves depend on the machine and are not shown.
Tables of cosines and sines are made beforehand, except where a library makes them each time it rotates.
`default` is what nobody has to ask for; `kernel` is compiled once, with ROPEWALK_COMPILE=1 or `compile_rotations()`.
Exits with 1 where a bar does not hold. `measured` counts in copies too: 1 is the time of cloning the two tensors.
"""

from __future__ import annotations

import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import bars

COPIES = {"kernel": 1.35, "default float32": 3.2, "default bfloat16": 5.5}
TIMES_FASTER = {"default": 5.0, "compiled": 1.5}
"""Of the compiled kernel over others as they are, and of a compiled model over a compiled model."""
BOTH_WAYS, DECODING = 1.0, 1.0
"""The same, at least, of a forward and backward pass, and of one token as nobody has to ask for it."""
B, H, L, K = 1, 16, 4096, 128
TEXTS = (1, 16)

Rotate = Callable[[Any, Any], tuple[Any, Any]]


def run(rounds: int) -> dict[str, Any]:
    import torch

    measured: dict[str, float] = {}
    versions = bars.versions(RIVALS)
    for dtype in (torch.float32, torch.bfloat16):
        present = [package for package in RIVALS if versions[package] != "absent"]
        measured |= of_dtype(dtype, present, rounds)
        for batch in TEXTS:
            measured |= decoding(dtype, present, batch, 20 * rounds)
    return {"bars": held(measured), "measured": measured, "versions": versions}


def of_dtype(dtype: Any, packages: list[str], rounds: int) -> dict[str, float]:
    import torch

    from ropewalk.rotation import backend

    torch.manual_seed(0)
    q, k = (torch.randn(B, H, L, K).to(dtype) for _ in range(2))
    views = [torch.randn(B, L, H, K).to(dtype).transpose(1, 2) for _ in range(2)]
    leaves = [t.clone().requires_grad_() for t in (q, k)]
    gradients = [torch.randn_like(t) for t in (q, k)]
    positions = torch.arange(L)
    named = str(dtype).removeprefix("torch.")
    ways: dict[str, tuple[str, Rotate]] = {}
    cases: dict[str, Callable[[], Any]] = {}
    for layout in ("half", "pairs"):
        rope, rotate = ours(layout, L)
        ways |= {f"kernel {layout}": (layout, rotate), f"compiled model {layout}": (layout, torch.compile(rotate))}
        cases[f"default {layout}"] = lambda rotate=rotate: uncompiled(rotate, q, k)
        cases[f"kernel {layout}, transposed storage"] = lambda rotate=rotate: rotate(*views)
        cases[f"tables {layout}"] = lambda rope=rope: rope.at(positions)
    for package in packages:
        layout, build = RIVALS[package]
        rotate = build(dtype, L)
        ways |= {f"{package} default": (layout, rotate), f"{package} compiled": (layout, torch.compile(rotate))}
    agree(ways, q, k)
    for name, (_, rotate) in ways.items():
        cases[name] = lambda rotate=rotate: rotate(q, k)
        cases[f"{name}, forward and backward"] = lambda rotate=rotate: torch.autograd.grad(
            rotate(*leaves), leaves, gradients
        )
    ratios = timed(cases, lambda: (q.clone(), k.clone()), rounds)
    if backend() != "compiled":
        print(f"ropewalk did not compile: {backend()}", file=sys.stderr)
    return {f"{name}, {named}": ratio for name, ratio in ratios.items()}


def decoding(dtype: Any, packages: list[str], batch: int, rounds: int) -> dict[str, float]:
    """One token of each text: what a call costs, more than what it computes."""
    import torch

    q, k = (torch.randn(batch, H, 1, K).to(dtype) for _ in range(2))
    rotations = {f"ropewalk {layout}": ours(layout, 1)[1] for layout in ("half", "pairs")}
    rotations |= {package: RIVALS[package][1](dtype, 1) for package in packages}
    cases = {name: lambda rotate=rotate: uncompiled(rotate, q, k) for name, rotate in rotations.items()}
    named = str(dtype).removeprefix("torch.")
    ratios = timed(cases, lambda: (q.clone(), k.clone()), rounds)
    return {f"{name}, one token of {batch}, {named}": ratio for name, ratio in ratios.items()}


def timed(cases: dict[str, Callable[[], Any]], clone: Callable[[], Any], rounds: int) -> dict[str, float]:
    ratios: dict[str, list[float]] = {name: [] for name in cases}
    for case in cases.values():
        for _ in range(3):
            case()
    for _ in range(rounds):
        for name, case in cases.items():
            start = time.perf_counter()
            clone()
            middle = time.perf_counter()
            case()
            ratios[name].append((time.perf_counter() - middle) / (middle - start))
    return {name: statistics.median(found) for name, found in ratios.items()}


def held(measured: dict[str, float]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for dtype in ("float32", "bfloat16"):
        for layout in ("half", "pairs"):
            for way, bound in (("kernel", COPIES["kernel"]), ("default", COPIES[f"default {dtype}"])):
                value = measured[f"{way} {layout}, {dtype}"]
                name = f"{way} {layout}, {dtype}: copies, at most"
                found[name] = bars.bar(value, bound, at_least=False)
        for package, (layout, _) in RIVALS.items():
            pairs = [
                (f"kernel {layout}", f"{package} default", "", TIMES_FASTER["default"]),
                (f"compiled model {layout}", f"{package} compiled", "", TIMES_FASTER["compiled"]),
                (f"kernel {layout}", f"{package} default", ", forward and backward", BOTH_WAYS),
                (f"compiled model {layout}", f"{package} compiled", ", forward and backward", BOTH_WAYS),
                *((f"ropewalk {layout}", package, f", one token of {batch}", DECODING) for batch in TEXTS),
            ]
            for own, other, what, bound in pairs:
                if theirs := measured.get(f"{other}{what}, {dtype}"):
                    name = f"{own} over {other}{what}, {dtype}: times faster, at least"
                    found[name] = bars.bar(theirs / measured[f"{own}{what}, {dtype}"], bound, at_least=True)
    return found


def agree(ways: dict[str, tuple[str, Rotate]], q: Any, k: Any) -> None:
    """All rotate by the same angles; others round them, and in bfloat16 every step."""
    for name, (layout, rotate) in ways.items():
        got, want = rotate(q, k)[0], ways[f"kernel {layout}"][1](q, k)[0]
        error = (got.float() - want.float()).abs().max().item()
        if error > (0.01 if q.dtype.itemsize == 4 else 0.2):
            raise SystemExit(f"{name} does not rotate as ropewalk does: {error:.3g} apart")


def ours(layout: str, length: int) -> tuple[Any, Rotate]:
    import torch

    from ropewalk.encodings import RoPE

    rope = RoPE(head_width=K, base=1e4, layout=layout)
    signal = rope.at(torch.arange(length))
    return rope, lambda q, k: (signal.rotate(q, "query"), signal.rotate(k, "key"))


def uncompiled(rotate: Rotate, q: Any, k: Any) -> tuple[Any, Any]:
    with setting("ROPEWALK_COMPILE", "0"):
        return rotate(q, k)


@contextmanager
def setting(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def transformers(dtype: Any, length: int) -> Rotate:
    import torch

    config = importlib.import_module("transformers").LlamaConfig(head_dim=K, hidden_size=H * K, num_attention_heads=H)
    llama = importlib.import_module("transformers.models.llama.modeling_llama")
    cos, sin = llama.LlamaRotaryEmbedding(config)(torch.empty(0, dtype=dtype), torch.arange(length)[None])
    return lambda q, k: llama.apply_rotary_pos_emb(q, k, cos, sin)


def x_transformers(_: Any, length: int) -> Rotate:
    import torch

    module = importlib.import_module("x_transformers.x_transformers")
    angles, _scale = module.RotaryEmbedding(K)(torch.arange(length))
    turn = module.apply_rotary_pos_emb
    return lambda q, k: (turn(q, angles), turn(k, angles))


def rotary_embedding_torch(_: Any, length: int) -> Rotate:
    import torch

    module = importlib.import_module("rotary_embedding_torch")
    angles = module.RotaryEmbedding(K)(torch.arange(length).float()).detach()
    turn = module.apply_rotary_emb
    return lambda q, k: (turn(angles, q), turn(angles, k))


RIVALS: dict[str, tuple[str, Callable[[Any, int], Rotate]]] = {
    "transformers": ("half", transformers),
    "x-transformers": ("pairs", x_transformers),
    "rotary-embedding-torch": ("pairs", rotary_embedding_torch),
}


if __name__ == "__main__":
    sys.exit(bars.main(__doc__, run, rounds=31))
