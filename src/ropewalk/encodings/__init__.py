"""Position encodings, one file each; the file name is the kind that configs use."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ropewalk.encodings.base import Claims, Encoding, Signal
from ropewalk.encodings.find import AnyEncoding, build, find, names, parse
from ropewalk.rotation import compile_rotations

# For editors and type checkers alone: at run time the files are found and loaded when asked for.
if TYPE_CHECKING:
    from ropewalk.encodings.alibi import ALiBi as ALiBi
    from ropewalk.encodings.chain import Chain as Chain
    from ropewalk.encodings.fire import Fire as Fire
    from ropewalk.encodings.kerple import Kerple as Kerple
    from ropewalk.encodings.learned import Learned as Learned
    from ropewalk.encodings.none import NoPE as NoPE
    from ropewalk.encodings.rope import RoPE as RoPE
    from ropewalk.encodings.scalar import Scalar as Scalar
    from ropewalk.encodings.sinusoidal import Sinusoidal as Sinusoidal
    from ropewalk.encodings.t5 import T5 as T5
    from ropewalk.encodings.temperature import Temperature as Temperature
    from ropewalk.encodings.xpos import XPos as XPos

__all__ = ["AnyEncoding", "Claims", "Encoding", "Signal", "build", "compile_rotations", "find", "names", "parse"]

if not TYPE_CHECKING:  # a checker that sees it takes every misspelt name for something there is

    def __getattr__(name: str) -> Any:
        """`encodings.RoPE`, `encodings.ALiBi`: each class under its own name, loaded when asked for."""
        if name.startswith("__"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        for kind in names():
            encoding = find(kind)
            if encoding.__name__ == name:
                return encoding
        every = {public.lower(): public for public in __dir__() if not public.startswith("_")}
        near = get_close_matches(name.lower(), every, n=1)
        hint = f"did you mean {every[near[0]]}?" if near else f"there are {', '.join(sorted(every.values()))}"
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; {hint}")


def __dir__() -> list[str]:
    dunders = [name for name in globals() if name.startswith("__") and name.endswith("__")]
    return [*dunders, *__all__, *(find(kind).__name__ for kind in names())]
