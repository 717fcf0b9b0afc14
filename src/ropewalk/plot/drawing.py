"""A chart with matplotlib, which is imported here and nowhere else, and only when something is drawn.

    draw(chart, axes)      in axes of the caller's, or of a new figure
    svg(chart), png(chart) bytes of a file, the same for the same chart

In SVG words are text, laid out by the font that comes with matplotlib and shown in the reader's; the page is light or
dark as the reader's is. PNG has the words as dots, so Chinese needs a font that has its signs.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from xml.sax.saxutils import escape

from ropewalk.plot.chart import Arrow, Axis, Cell, Chart, Heat, Level, Line, Note, Panel, Shade, number, texts
from ropewalk.plot.layout import LINE_HEIGHT, Box, about_lines, boxes, inches, label_places, total_height
from ropewalk.plot.palette import DASHES, Palette, mixed
from ropewalk.plot.words import wide

FONTS = (
    "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'PingFang SC', 'Microsoft YaHei', 'Noto Sans CJK SC', "
    "sans-serif"
)
PLAIN = "DejaVu Sans"
CHINESE = (
    *("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN", "PingFang SC", "Heiti SC"),
    *("Hiragino Sans GB", "Microsoft YaHei", "SimHei", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Noto Sans CJK JP"),
    *("Noto Serif CJK SC", "Arial Unicode MS", "Droid Sans Fallback"),
)
"""Fonts with Chinese signs, the best first."""
WIDTH = 9.0
"""Inches; 720 dots at 80 to an inch."""
FEWEST = 480
"""Dots on a side of a heat map, however few cells it has."""
DOTS = 160
"""To an inch, of PNG: twice what 720 needs."""


def draw(chart: Chart, axes: Any = None, *, dark: bool = False) -> Any:
    """In the caller's axes, which become the frame of the panels, or in a new figure. Returns those axes."""
    family = _family(chart)
    palette = Palette(dark)
    with _style(family, palette):
        if axes is None:
            from matplotlib import pyplot

            height = total_height(chart, WIDTH)
            figure = pyplot.figure(figsize=(WIDTH, height), facecolor=palette.page("page"))
            axes = figure.add_axes((0, 0, 1, 1))
        _draw(chart, axes, palette)
    return axes


def svg(chart: Chart, *, dark: bool = False) -> str:
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    palette, out = Palette(dark), io.StringIO()
    with _style([PLAIN], palette):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        FigureCanvasSVG(_figure(chart, palette)).print_svg(out, metadata={"Title": chart.title, **nothing})
    text = out.getvalue().replace(f"'{PLAIN}'", FONTS)
    told = f"<title>{escape(chart.title)}</title>\n <desc>{escape(chart.about)}</desc>\n"
    style = "" if dark else f"<style>{_dark_page(chart, palette)}</style>\n"
    return re.sub(r"(<svg [^>]*?)>", lambda found: f'{found[1]} role="img">\n {told} {style}', text, count=1)


def png(chart: Chart, *, dark: bool = False) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    palette, out = Palette(dark), io.BytesIO()
    with _style(_family(chart), palette):
        canvas = FigureCanvasAgg(_figure(chart, palette))
        canvas.figure.set_dpi(DOTS)
        canvas.print_png(out, metadata={"Software": None, "Title": None})
    return out.getvalue()


def _figure(chart: Chart, palette: Palette) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, total_height(chart, WIDTH)), facecolor=palette.page("page"))
    _draw(chart, figure.add_axes((0, 0, 1, 1)), palette)
    return figure


@contextmanager
def _style(family: list[str], palette: Palette) -> Iterator[None]:
    import matplotlib as mpl

    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": "ropewalk",
        "font.family": family,
        "font.size": 10.5,
        "text.color": palette.page("ink"),
        "axes.unicode_minus": False,
        "text.parse_math": False,
    }
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


def _family(chart: Chart) -> list[str]:
    """Fonts that have every sign of the chart."""
    if not any(wide(sign) for text in texts(chart) for sign in text):
        return [PLAIN]
    if (name := _chinese_font()) is not None:
        return [PLAIN, name]
    raise ValueError(
        "No font with Chinese signs is installed, and this picture would show boxes. Install one (Debian, Ubuntu: "
        "apt install fonts-noto-cjk; elsewhere Noto Sans SC), or write .svg, which uses the reader's fonts"
    )


def _chinese_font() -> str | None:
    from matplotlib import font_manager

    fonts = font_manager.fontManager
    for fresh in (False, True):
        if fresh:  # matplotlib remembers what was installed when it first looked
            known = {entry.fname for entry in fonts.ttflist}
            for path in sorted(set(font_manager.findSystemFonts()) - known):
                with suppress(Exception):  # a file that is no font it can read
                    fonts.addfont(path)
        installed = set(fonts.get_font_names())
        for name in CHINESE:
            if name in installed:
                return name
    return None


def _dark_page(chart: Chart, palette: Palette) -> str:
    """A stylesheet that changes each colour where the reader's page is dark; without it a picture is light."""
    swaps, other = palette.swaps(), Palette(dark=True)
    for tone in (mark.tone for panel in chart.panels for mark in panel.marks if isinstance(mark, Line)):
        swaps[palette.tone(tone)] = other.tone(tone)
    rules = [
        f'[style*="{what}: {light}"]{{{what}:{dark}!important}}'
        for light, dark in sorted(swaps.items())
        for what in ("fill", "stroke")
    ]
    rules.append("image{filter:invert(1) hue-rotate(180deg)}")
    return f"@media (prefers-color-scheme:dark){{{''.join(rules)}}}"


def _draw(chart: Chart, host: Any, palette: Palette) -> None:
    size = host.get_window_extent().size / host.figure.dpi
    width, height = float(size[0]), float(size[1])
    host.set_axis_off()
    top = height - 0.30
    host.text(0.15 / width, top / height, chart.title, transform=host.transAxes, fontsize=13, fontweight="bold")
    for line in about_lines(chart, width):
        top -= LINE_HEIGHT
        host.text(0.15 / width, top / height, line, transform=host.transAxes, color=palette.page("soft"))
    for panel, box in zip(chart.panels, boxes(chart, width, top), strict=True):
        inner = host.inset_axes((box.left / width, box.bottom / height, box.width / width, box.height / height))
        _panel(inner, panel, box, palette)


def _panel(axes: Any, panel: Panel, box: Box, palette: Palette) -> None:
    soft = palette.page("soft")
    axes.set(facecolor="none", xscale="log" if panel.x.log else "linear", yscale="log" if panel.y.log else "linear")
    axes.set_xlim(panel.x.low, panel.x.high)
    axes.set_ylim(panel.y.low, panel.y.high)
    axes.spines[:].set_visible(False)
    for axis, given in ((axes.xaxis, panel.x), (axes.yaxis, panel.y)):
        marks = given.marks() if panel.frame or given.ticks is not None else []
        axis.set_ticks([value for value, _ in marks], [text for _, text in marks])
        axis.set_ticks([], minor=True)
    axes.tick_params(length=0, labelsize=9.5, labelcolor=soft, pad=4)
    if panel.frame and not any(isinstance(mark, Heat) for mark in panel.marks):
        axes.grid(color=palette.page("line"), linewidth=0.6)
        axes.set_axisbelow(True)
    _headings(axes, panel, box, palette)
    for mark in panel.marks:
        _MARKS[type(mark)](axes, panel, mark, box, palette)
    _line_labels(axes, panel, box, palette)


def _headings(axes: Any, panel: Panel, box: Box, palette: Palette) -> None:
    """The title, the label of y and that of x, all level: a reader need not turn the head."""
    left, soft = -(box.left - box.outer) / box.width, palette.page("soft")
    above = 1 + 0.13 / box.height
    if panel.y.label:
        axes.text(left, above, panel.y.label, transform=axes.transAxes, color=soft, fontsize=9.5)
        above += 0.20 / box.height
    if panel.title:
        axes.text(left, above, panel.title, transform=axes.transAxes, fontsize=10.5, fontweight="bold")
    if panel.x.label:
        under = -(0.39 if panel.x.marks() and (panel.frame or panel.x.ticks) else 0.2) / box.height
        axes.text(0.5, under, panel.x.label, transform=axes.transAxes, color=soft, fontsize=9.5, ha="center")


def _line(axes: Any, panel: Panel, mark: Line, box: Box, palette: Palette) -> None:
    color = palette.tone(mark.tone)
    if mark.low is not None and mark.high is not None:
        axes.fill_between(mark.x, mark.low, mark.high, color=color, alpha=0.18, linewidth=0)
    (drawn,) = axes.plot(
        mark.x, mark.y, color=color, linewidth=2.8 if mark.thick else 1.7, solid_capstyle="round", clip_on=True,
        marker="o" if mark.dots else None, markersize=4 if mark.joined else 6, zorder=4 if mark.thick else 3,
        linestyle="-" if mark.joined else "none",
    )  # fmt: skip
    if mark.joined and DASHES[mark.dashes]:
        drawn.set_dashes(DASHES[mark.dashes])


def _level(axes: Any, panel: Panel, mark: Level, box: Box, palette: Palette) -> None:
    soft = palette.page("soft")
    across = axes.axvline if mark.axis == "x" else axes.axhline
    across(mark.at, color=soft, linewidth=1.1, dashes=(4, 3), zorder=2)
    if not mark.label:
        return
    if mark.axis == "x":
        share = panel.x.share(mark.at)
        near, align = (0.06, "left") if share < 0.6 else (-0.06, "right")
        axes.text(share + near / box.width, 1 - 0.15 / box.height, mark.label, transform=axes.transAxes, color=soft,
                  fontsize=9.5, ha=align)  # fmt: skip
    else:
        up = panel.y.share(mark.at) + 0.05 / box.height
        axes.text(0.06 / box.width, up, mark.label, transform=axes.transAxes, color=soft, fontsize=9.5)


def _shade(axes: Any, panel: Panel, mark: Shade, box: Box, palette: Palette) -> None:
    axes.axhspan(mark.low, mark.high, color=palette.page("wash"), linewidth=0, zorder=0)
    if mark.label:
        top = max(panel.y.share(mark.low), panel.y.share(mark.high)) - 0.19 / box.height
        axes.text(0.06 / box.width, top, mark.label, transform=axes.transAxes, color=palette.page("soft"), fontsize=9.5)


def _heat(axes: Any, panel: Panel, mark: Heat, box: Box, palette: Palette) -> None:
    scale = palette.scale(mark.scale)
    table = [[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in (mixed(scale, k / 255) for k in range(256))]
    span = mark.high - mark.low
    clear = [0, 0, 0, 0]
    pixels = [
        [
            clear
            if value is None or value != value
            else [*table[round(255 * _clamped((value - mark.low) / span))], 255]
            for value in row
        ]
        for row in mark.rows
    ]
    _image(axes, pixels, panel.x, panel.y)
    if mark.bar:
        _bar(axes, mark, table, box, palette)


def _image(axes: Any, pixels: list[list[list[int]]], x: Axis, y: Axis) -> None:
    import numpy as np

    extent = (x.low, x.high, min(y.low, y.high), max(y.low, y.high))
    # Enlarged here, since many viewers blur an image that they enlarge.
    array = np.asarray(pixels, dtype=np.uint8)
    for side in (0, 1):
        array = array.repeat(-(-FEWEST // array.shape[side]), axis=side)
    axes.imshow(array, extent=extent, aspect="auto", interpolation="none", origin="lower", zorder=1)
    axes.set_xlim(x.low, x.high)
    axes.set_ylim(y.low, y.high)


def _bar(axes: Any, mark: Heat, table: list[list[int]], box: Box, palette: Palette) -> None:
    """At the right, above the panel: what the colours mean."""
    soft, above = palette.page("soft"), 1 + 0.10 / box.height
    if mark.names:
        right = 1.0
        for kind in reversed(range(len(mark.names))):
            share = (kind - mark.low) / (mark.high - mark.low)
            right -= inches(mark.names[kind], 9.5) / box.width
            axes.text(right, above, mark.names[kind], transform=axes.transAxes, color=soft, fontsize=9.5)
            right -= 0.2 / box.width
            _swatch(axes, right, above, box, mixed(palette.scale(mark.scale), share), palette)
            right -= 0.18 / box.width
        return
    low, high = (number(float(f"{end:.3g}")) for end in (mark.low, mark.high))
    right = 1 - inches(high, 9.5) / box.width
    axes.text(1.0, above, high, transform=axes.transAxes, color=soft, fontsize=9.5, ha="right")
    wide_bar = 1.1 / box.width
    left = right - 0.08 / box.width - wide_bar
    inner = axes.inset_axes((left, above, wide_bar, 0.11 / box.height))
    inner.set_axis_off()
    _image(inner, [[[*color, 255] for color in table[::4]]], Axis(low=0, high=1), Axis(low=0, high=1))
    axes.text(left - 0.08 / box.width, above, low, transform=axes.transAxes, color=soft, fontsize=9.5, ha="right")


def _swatch(axes: Any, x: float, y: float, box: Box, color: str, palette: Palette) -> None:
    from matplotlib.patches import Rectangle

    size = 0.12
    axes.add_patch(
        Rectangle((x, y), size / box.width, size / box.height, transform=axes.transAxes, facecolor=color,
                  edgecolor=palette.page("soft"), linewidth=0.5, clip_on=False)
    )  # fmt: skip


def _cell(axes: Any, panel: Panel, mark: Cell, box: Box, palette: Palette) -> None:
    from matplotlib.patches import Rectangle

    corner = (mark.x - 0.5, mark.y - 0.5)
    if not mark.faint:
        axes.add_patch(
            Rectangle(corner, 1, 1, facecolor=palette.fill(mark.fill), edgecolor=palette.page("line"), linewidth=0.8)
        )
    if mark.text:
        color = palette.page("soft" if mark.faint else "ink")
        axes.text(mark.x, mark.y, mark.text, ha="center", va="center_baseline", fontsize=9.5, color=color)


def _arrow(axes: Any, panel: Panel, mark: Arrow, box: Box, palette: Palette) -> None:
    shape = {"arrowstyle": "-" if mark.bare else "-|>,head_width=0.18,head_length=0.36", "linewidth": 1.3}
    color = palette.tone(mark.tone)
    drawn = axes.annotate("", mark.end, mark.start, arrowprops={**shape, "color": color, "shrinkA": 0, "shrinkB": 0})
    drawn.set_zorder(5)


def _note(axes: Any, panel: Panel, mark: Note, box: Box, palette: Palette) -> None:
    weight = "bold" if mark.bold else "normal"
    color = palette.tone(mark.tone)
    axes.text(mark.x, mark.y, mark.text, color=color, ha=mark.align, va="center_baseline", fontsize=9.5, weight=weight)


_MARKS: dict[type, Any] = {
    Line: _line,
    Level: _level,
    Shade: _shade,
    Heat: _heat,
    Cell: _cell,
    Arrow: _arrow,
    Note: _note,
}


def _line_labels(axes: Any, panel: Panel, box: Box, palette: Palette) -> None:
    lines = [mark for mark in panel.marks if isinstance(mark, Line) and mark.label]
    for line, share in zip(lines, label_places(panel, lines, box.height), strict=True):
        axes.text(1 + 0.08 / box.width, share, line.label, transform=axes.transAxes, color=palette.tone(line.tone),
                  fontsize=9.5, va="center_baseline")  # fmt: skip


def _clamped(share: float) -> float:
    return min(max(share, 0.0), 1.0)
