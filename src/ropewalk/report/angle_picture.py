"""The picture of campaigns/results/angles.json: the error of RoPE's angles against position, as SVG.

    draw(json.loads(text), "en") -> one SVG file, the same for the same data

Libraries whose errors agree are one line with all their names. Words are text, in the reader's own fonts.
"""

from __future__ import annotations

import io
import math
import warnings
from importlib.resources import files
from typing import Any

import yaml

FONTS = (
    "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'PingFang SC', 'Microsoft YaHei', 'Noto Sans CJK SC', "
    "sans-serif"
)
INK, SOFT, LINE, OURS, THEIRS, CAST = "#1b1f24", "#59636e", "#d8dee4", "#0969da", "#cf222e", "#9a6700"
RAISED = str.maketrans("0123456789-", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b")
NEAR = 1.2
"""Errors within this ratio of one another are one line."""


def draw(data: dict[str, Any], language: str = "en") -> str:
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    words = yaml.safe_load((files("ropewalk.report") / "angle_words.yaml").read_text(encoding="utf-8"))[language]
    settings = {"svg.fonttype": "none", "svg.hashsalt": "ropewalk", "font.family": "DejaVu Sans", "text.color": INK}
    out = io.StringIO()
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure = Figure(figsize=(9, 4.8), facecolor="#ffffff")
        axes = figure.add_axes((0.065, 0.125, 0.915, 0.765))
        _frame(axes, words)
        for names in together(data["libraries"]):
            _line(axes, names, data, words)
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        FigureCanvasSVG(figure).print_svg(out, metadata={"Title": words["title"], **nothing})
    # Laid out by the metrics of the font that comes with matplotlib, shown in what the reader has.
    return out.getvalue().replace("'DejaVu Sans'", FONTS)


def together(libraries: dict[str, Any]) -> list[list[str]]:
    """Names whose errors agree wherever both were asked."""
    groups: list[list[str]] = []
    for name, found in libraries.items():
        for group in groups:
            both = zip(found["rad"], libraries[group[0]]["rad"], strict=False)
            if all(abs(math.log(mine / theirs)) < math.log(NEAR) for mine, theirs in both):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def _frame(axes: Any, words: dict[str, str]) -> None:
    axes.set(xscale="log", yscale="log", xlim=(8e2, 1.6e12), ylim=(1e-8, 5e1), facecolor="none")
    for axis, powers in ((axes.xaxis, range(3, 13)), (axes.yaxis, range(-8, 1))):
        axis.set_ticks([10.0**n for n in powers], ["10" + str(n).translate(RAISED) for n in powers])
        axis.set_ticks([], minor=True)
    axes.tick_params(length=0, labelsize=9.5, labelcolor=SOFT, pad=6)
    axes.grid(color=LINE, linewidth=0.6)
    axes.spines[:].set_visible(False)
    axes.set_title(words["title"], loc="left", fontsize=13, fontweight="bold", pad=10, x=-0.04)
    axes.set_xlabel(words["position"], fontsize=10, color=SOFT, labelpad=6)
    axes.axhline(math.pi, color=SOFT, linewidth=0.8, dashes=(4, 3))
    axes.text(1.4e12, 1.6 * math.pi, words["noise"], ha="right", fontsize=10.5, color=SOFT)


def _line(axes: Any, names: list[str], data: dict[str, Any], words: dict[str, str]) -> None:
    libraries, ours, cast = data["libraries"], "ropewalk" in names, "bfloat16" in names[0]
    color = OURS if ours else CAST if cast else THEIRS
    every: list[list[float]] = [libraries[name]["rad"] for name in names]
    rad = max(every, key=len)
    axes.plot(
        data["at"][: len(rad)],
        rad,
        color=color,
        linewidth=3 if ours else 2,
        solid_capstyle="round",
        zorder=2 if cast else 3,
    )
    style: dict[str, Any] = {"color": color, "fontsize": 10.5}
    if ours:
        axes.text(1.1e3, 2.2 * rad[0], words["ours"].format(worst=_at_most(max(rad))), fontweight="bold", **style)
    elif cast:
        axes.text(1.1e3, 1.6 * math.pi, words["cast"], **style)
    else:
        ended = [name for name in names if "ends" in libraries[name]]
        lines = [words["product"], words["comma"].join(name for name in names if name not in ended)]
        if ended:
            last = len(libraries[ended[0]]["rad"]) - 1
            axes.plot(data["at"][last], rad[last], "o", color=color, markersize=6, zorder=4)
            lines.append(words["table"].format(names=words["comma"].join(ended)))
        axes.text(2e6, 1.6e-2, "\n".join(lines), va="top", linespacing=1.6, **style)


def _at_most(value: float) -> str:
    """2.034e-07 as 2.1e-7: rounded up."""
    power = math.floor(math.log10(value))
    return f"{math.ceil(value / 10.0 ** (power - 1)) / 10}e{power}"
