"""The numbers of each picture, without a drawing library: `data.NAME(thing, setting=...) -> dict`.

    ropewalk.plot.data.wavelengths("config.json")["wavelengths"]

What comes back holds lists, numbers and words alone, so it can be written as JSON and compared.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ropewalk.plot.catalogue import NAMES, find
from ropewalk.plot.chart import Data
from ropewalk.plot.words import load

__all__ = [*NAMES]  # noqa: PLE0604  one table of names


def __getattr__(name: str) -> Callable[..., Data]:
    if name not in NAMES:
        raise AttributeError(f"module 'ropewalk.plot.data' has no attribute {name!r}; it has {', '.join(NAMES)}")
    picture = find(name)

    def numbers(thing: Any = None, **settings: Any) -> Data:
        return picture.data(thing, picture.options(settings))

    return described(numbers, name)


def described(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """With the name, the words and the settings of its picture, for help() and notebooks."""
    options = inspect.signature(find(name).module.Options).parameters.values()
    own = [one for one in inspect.signature(function).parameters.values() if one.kind is not one.VAR_KEYWORD]
    settings = [one.replace(annotation=inspect.Parameter.empty) for one in options]
    function.__signature__ = inspect.Signature([*own, *settings])  # type: ignore[attr-defined]
    function.__name__ = function.__qualname__ = name
    function.__doc__ = load(name)["en"]["shows"]
    return function


def __dir__() -> list[str]:
    return list(NAMES)
