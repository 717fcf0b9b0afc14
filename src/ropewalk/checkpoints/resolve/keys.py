"""Reading a foreign config one key at a time: every value checked, every key ticked off, every source remembered.

What nobody has ticked off at the end is what an engine would have silently ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ropewalk.checkpoints.errors import BadInput

LARGEST_SIZE = 2**24
"""Of a width, a count of heads, a vocabulary."""
LARGEST_LENGTH = 2**40
LARGEST_HEAD = 4096
"""Features of a head that rotate: 512 are the most that are published, and an answer must not take seconds."""
MOST_LAYERS = 10_000


class Keys:
    """One JSON object, with what its architecture takes where a key is left out."""

    def __init__(
        self,
        data: Mapping[str, Any],
        where: str,
        path: str = "",
        *,
        defaults: Mapping[str, Any] | None = None,
        owner: str = "",
    ) -> None:
        self.data, self.where, self.path, self.owner = data, where, path, owner
        self.defaults = {} if defaults is None else defaults
        self.read: set[str] = set()

    def source(self, key: str) -> str:
        """Where the value of a key came from."""
        if self.data.get(key) is None and key in self.defaults:
            return f"transformers default for {self.owner}"
        return f"{self.where}:{self.path}{key}"

    def bad(self, key: str, problem: str, remedy: str = "") -> BadInput:
        return BadInput(self.where, f"{self.path}{key}", problem, remedy)

    def stated(self, key: str) -> Any:
        """The value as it stands in the file; None where it is absent or null."""
        self.read.add(key)
        return self.data.get(key)

    def raw(self, key: str) -> Any:
        """The value, or the architecture's default."""
        value = self.stated(key)
        if value is None and key not in self.data:
            return self.defaults.get(key)
        return value

    def integer(self, key: str, least: int = 1, most: int = LARGEST_SIZE) -> int | None:
        value = self.raw(key)
        if value is None:
            return None
        if isinstance(value, float) and math.isfinite(value) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.bad(key, f"{shown(value)} is not a whole number", f"give one from {least:,} to {most:,}")
        if not least <= value <= most:
            raise self.bad(key, f"{shown(value)} is outside {least:,} to {most:,}", "correct it")
        return value

    def needed(self, key: str, least: int = 1, most: int = LARGEST_SIZE) -> int:
        value = self.integer(key, least, most)
        if value is None:
            raise self.bad(key, "is missing, and no default is assumed", f"add it as {self.owner} has it")
        return value

    def number(self, key: str, above: float, most: float) -> float | None:
        value = self.raw(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not above < value <= most:
            raise self.bad(key, f"{shown(value)} is not a number above {above:g} and up to {most:g}", "correct it")
        return float(value)

    def flag(self, key: str) -> bool | None:
        value = self.raw(key)
        if value is not None and not isinstance(value, bool):
            raise self.bad(key, f"{shown(value)} is not true or false", "correct it")
        return value

    def text(self, key: str) -> str | None:
        value = self.raw(key)
        if value is not None and not isinstance(value, str):
            raise self.bad(key, f"{shown(value)} is not a name", "correct it")
        return value

    def mapping(self, key: str) -> Mapping[str, Any] | None:
        value = self.raw(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.bad(key, f"{shown(value)} is not an object", "write for example {} or null")
        return value

    def listed(self, key: str, count: int, allowed: Sequence[Any]) -> tuple[Any, ...] | None:
        """One allowed value for each layer."""
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            raise self.bad(key, f"{shown(value)} is not a list", "give one entry a layer")
        if len(value) != count:
            raise self.bad(key, f"has {len(value):,} entries for {count:,} layers", "give one entry a layer")
        for place, entry in enumerate(value):
            if type(entry) is not type(allowed[0]) or entry not in allowed:
                known = ", ".join(map(str, allowed))
                raise self.bad(f"{key}[{place}]", f"{shown(entry)} is not known", f"there are {known}")
        return tuple(value)

    def inside(self, key: str, data: Mapping[str, Any]) -> Keys:
        """The keys of an object within this one."""
        return Keys(data, self.where, f"{self.path}{key}.", owner=self.owner)


def shown(value: Any, most: int = 60) -> str:
    """A foreign value in a message."""
    try:
        said = repr(value)
    except (ValueError, RecursionError):  # an integer too long to print, an object too deep
        said = f"a {type(value).__name__}"
    return said if len(said) <= most else said[: most - 3] + "..."
