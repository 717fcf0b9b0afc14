"""Ropewalk: where a Transformer's sense of position is made, tested and lengthened.

    import ropewalk as rw

    rope = rw.encodings.RoPE(head_width=64, base=500_000, scaling=rw.scaling.YaRN(factor=4, trained=8192))
    signal = rope.at(positions)                                   # int64 positions; exact to 2**40
    q, k = signal.rotate(q, "query"), signal.rotate(k, "key")

Everything is loaded when first asked for, so that importing ropewalk does not import torch.
"""
# Nothing is imported up here that Python has not loaded by now, not even __future__ or typing (see outside.py).
# ruff: noqa: I002

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Cache": "ropewalk.attention",
    "Encoding": "ropewalk.encodings",
    "Plan": "ropewalk.plan",
    "Positions": "ropewalk.positions",
    "Rule": "ropewalk.attention",
    "Signal": "ropewalk.encodings",
    "Transformer": "ropewalk.models",
    "TransformerConfig": "ropewalk.models",
    "attend": "ropewalk.attention",
    "complete": "ropewalk.models",
    "export": "ropewalk.checkpoints.export",
    "generate": "ropewalk.models",
    "inspect": "ropewalk.checkpoints.inspect",
    "load": "ropewalk.checkpoints.load",
    "patch": "ropewalk.checkpoints.patch",
    "preset": "ropewalk.models",
    "verify": "ropewalk.conformance",
}
_MODULES = ("attention", "encodings", "positions", "scaling")

__all__ = [  # noqa: PLE0604  names come from one table
    *sorted((*_HOME, *_MODULES)),
]


def __getattr__(name: str) -> "Any":
    if name in _MODULES:
        return import_module(f"ropewalk.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'ropewalk' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    dunders = [name for name in globals() if name.startswith("__") and name.endswith("__")]
    return [*dunders, *__all__]
