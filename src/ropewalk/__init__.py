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

# For editors and type checkers alone, and the same names as _HOME and _MODULES give. Of the name itself they make True.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ropewalk import attention as attention
    from ropewalk import encodings as encodings
    from ropewalk import plot as plot
    from ropewalk import positions as positions
    from ropewalk import scaling as scaling
    from ropewalk.attention import Cache as Cache
    from ropewalk.attention import Rule as Rule
    from ropewalk.attention import Score as Score
    from ropewalk.attention import attend as attend
    from ropewalk.checkpoints.export.convert import export as export
    from ropewalk.checkpoints.inspect.report import inspect as inspect
    from ropewalk.checkpoints.load.model import load as load
    from ropewalk.checkpoints.load.patch import patch as patch
    from ropewalk.conformance import verify as verify
    from ropewalk.encodings import Encoding as Encoding
    from ropewalk.encodings import Signal as Signal
    from ropewalk.models import Transformer as Transformer
    from ropewalk.models import TransformerConfig as TransformerConfig
    from ropewalk.models import complete as complete
    from ropewalk.models import generate as generate
    from ropewalk.models import preset as preset
    from ropewalk.plan import Plan as Plan
    from ropewalk.positions import Positions as Positions

__version__ = "0.1.0"

_HOME = {
    "Cache": "ropewalk.attention",
    "Encoding": "ropewalk.encodings",
    "Plan": "ropewalk.plan",
    "Positions": "ropewalk.positions",
    "Rule": "ropewalk.attention",
    "Score": "ropewalk.attention",
    "Signal": "ropewalk.encodings",
    "Transformer": "ropewalk.models",
    "TransformerConfig": "ropewalk.models",
    "attend": "ropewalk.attention",
    "complete": "ropewalk.models",
    "export": "ropewalk.checkpoints.export.convert",
    "generate": "ropewalk.models",
    "inspect": "ropewalk.checkpoints.inspect.report",
    "load": "ropewalk.checkpoints.load.model",
    "patch": "ropewalk.checkpoints.load.patch",
    "preset": "ropewalk.models",
    "verify": "ropewalk.conformance",
}
_MODULES = ("attention", "encodings", "plot", "positions", "scaling")

__all__ = [  # noqa: PLE0604  names come from one table
    *sorted((*_HOME, *_MODULES)),
]


if not TYPE_CHECKING:  # a checker that sees it takes every misspelt name for something there is

    def __getattr__(name: str) -> "Any":
        if name in _MODULES:
            return import_module(f"ropewalk.{name}")
        if name in _HOME:
            return getattr(import_module(_HOME[name]), name)
        raise AttributeError(f"module 'ropewalk' has no attribute {name!r}; {_instead(name)}")


def _instead(name: str) -> str:
    """What was meant by a name that is not here. Only a class's is looked for further, since that imports torch, and
    `from ropewalk import module` comes here with every module's name."""
    there_are = f"it has {', '.join(__all__)}"
    if not name[:1].isupper():
        return there_are
    from difflib import get_close_matches

    homes = {**_classes("scaling"), **_classes("encodings")}
    homes |= {public.lower(): f"ropewalk.{public}" for public in __all__}
    near = get_close_matches(name.lower(), homes, n=1)
    return f"did you mean {homes[near[0]]}?" if near else there_are


def _classes(module: str) -> dict[str, str]:
    """The public classes of a module, by their names in small letters."""
    every = dir(import_module(f"ropewalk.{module}"))
    return {public.lower(): f"ropewalk.{module}.{public}" for public in every if public[:1].isupper()}


def __dir__() -> list[str]:
    dunders = [name for name in globals() if name.startswith("__") and name.endswith("__")]
    return [*dunders, *__all__]
