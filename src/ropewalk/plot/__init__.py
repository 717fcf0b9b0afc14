"""Pictures of encodings, checkpoints and runs.

    import ropewalk as rw

    rw.plot.wavelengths("Llama-3.2-1B")                             # draws, in a notebook or in your own axes
    numbers = rw.plot.data.scalings("Llama-3.2-1B", to=131072)      # only the numbers
    rw.plot.write(numbers, "scalings.svg", lang="zh")               # .svg, .png or .json

Drawing needs matplotlib (pip install "ropewalk[plot]"); the numbers, and pictures in characters, need nothing more.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ropewalk.plot.catalogue import NAMES, chart_of, find
from ropewalk.plot.chart import Data

if TYPE_CHECKING:
    from ropewalk.plot import data as data


class Draws(Protocol):
    def __call__(
        self, thing: Any = None, *, ax: Any = None, lang: str = "en", dark: bool = False, **settings: Any
    ) -> Any:
        """Draws in `ax`, or in a new figure, and returns the axes."""
        ...


if TYPE_CHECKING:
    sinusoids: Draws
    wavelengths: Draws
    scalings: Draws
    distance: Draws
    unseen: Draws
    biases: Draws
    masks: Draws
    layouts: Draws
    loss: Draws
    run: Draws
    attention: Draws
    clocks: Draws
    products: Draws
    buckets: Draws
    engines: Draws
    norms: Draws
    sections: Draws

FORMATS = (".svg", ".png", ".json")

__all__ = [*sorted((*NAMES, "data", "text", "write"))]  # noqa: PLE0604  one table of names


def write(data: Data, path: str | Path, *, lang: str = "en", dark: bool = False) -> None:
    """Writes a picture's data as .svg, .png or .json; the same data gives the same bytes.

    An SVG is light or dark as the page of its reader, a PNG light unless `dark`.
    """
    path = Path(path)
    kind = check_format(path)
    if kind == ".json":
        path.write_text(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
        return
    from ropewalk.plot import drawing

    chart = chart_of(data, lang)
    if kind == ".svg":
        path.write_text(drawing.svg(chart, dark=dark), encoding="utf-8", newline="\n")
    else:
        path.write_bytes(drawing.png(chart, dark=dark))


def check_format(path: str | Path) -> str:
    """The ending that says what to write."""
    kind = Path(path).suffix.lower()
    if kind not in FORMATS:
        raise ValueError(f"{path} does not say what to write; end it in {', '.join(FORMATS)}")
    return kind


def text(data: Data, *, lang: str = "en", plain: bool = False) -> str:
    """The picture in characters, 80 columns wide; plain: in ASCII alone, as far as its words are."""
    from ropewalk.plot.characters import characters

    return characters(chart_of(data, lang), plain=plain)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "data":
            return import_module("ropewalk.plot.data")
        if name not in NAMES:
            raise AttributeError(f"module 'ropewalk.plot' has no attribute {name!r}; it has {', '.join(__all__)}")
        picture = find(name)

        def draws(thing: Any = None, *, ax: Any = None, lang: str = "en", dark: bool = False, **settings: Any) -> Any:
            from ropewalk.plot import drawing

            return drawing.draw(picture.chart(picture.data(thing, picture.options(settings)), lang), ax, dark=dark)

        return import_module("ropewalk.plot.data").described(draws, name)


def __dir__() -> list[str]:
    return list(__all__)
