"""The colours of palette.yaml, by name, on a light page or a dark one."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import yaml

DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1.5, 1.5), (7, 2, 1.5, 2), (3, 1.5), (9, 3))
"""On and off, in widths of the line; the first is a solid one."""


class Palette:
    def __init__(self, dark: bool = False) -> None:
        self.dark = dark
        self._named: dict[str, Any] = yaml.safe_load((files("ropewalk.plot") / "palette.yaml").read_text("utf-8"))

    def page(self, name: str) -> str:
        """page, ink, soft, line or wash."""
        return self._named[name][self.dark]

    def tone(self, name: str) -> str:
        """Of a line and of words: a tone, `ink` or `soft`, or `graded:0.25` for a place in an order."""
        if name.startswith("graded:"):
            return mixed(self.scale("graded"), float(name.partition(":")[2]))
        return self._named["tones"][name][self.dark] if name in self._named["tones"] else self.page(name)

    def fill(self, name: str) -> str:
        return self._named["fills"][name][self.dark]

    def scale(self, name: str) -> list[str]:
        return self._named[name][self.dark]

    @property
    def tones(self) -> list[str]:
        return list(self._named["tones"])

    def swaps(self) -> dict[str, str]:
        """Each colour of the light page to that of the dark one."""
        pairs = [self._named[name] for name in ("page", "ink", "soft", "line", "wash")]
        pairs += [*self._named["tones"].values(), *self._named["fills"].values()]
        pairs += [list(pair) for name in ("kinds", "trio", "graded") for pair in zip(*self._named[name], strict=True)]
        found = dict(pairs)
        assert all(found[light] == dark for light, dark in pairs), "one light colour would become two dark ones"
        return found


def mixed(scale: Sequence[str], share: float) -> str:
    """The colour at a share of the way along a scale."""
    place = min(max(share, 0.0), 1.0) * (len(scale) - 1)
    low = min(int(place), len(scale) - 2)
    ends = [[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in scale[low : low + 2]]
    return "#" + "".join(f"{round(a + (b - a) * (place - low)):02x}" for a, b in zip(*ends, strict=True))
