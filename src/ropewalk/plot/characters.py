"""A chart in the signs of a terminal, 80 columns wide: less than a picture, and there at once.

Lines are letters, with their names below; heat maps are shades; cells are written as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.plot.chart import Axis, Cell, Chart, Heat, Level, Line, Note, Panel, number
from ropewalk.plot.words import columns, wrapped

WIDTH = 80
ROWS = 14
MARGIN = 9
CELLS_LEFT = 8
SHADES = " \u2591\u2592\u2593\u2588"
PLAIN_SHADES = " .:*#"
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def characters(chart: Chart, *, plain: bool = False) -> str:
    """plain: in ASCII shades, for a terminal that cannot show others."""
    lines = [chart.title, *wrapped(chart.about, WIDTH - 2)]
    for panel in chart.panels:
        lines.append("")
        if panel.title:
            lines.append(panel.title)
        if any(isinstance(mark, Cell) for mark in panel.marks):
            lines += _cells(panel)
            continue
        if panel.y.label:
            lines.append(panel.y.label)
        heats = [mark for mark in panel.marks if isinstance(mark, Heat)]
        lines += _heat(panel, heats[0], PLAIN_SHADES if plain else SHADES) if heats else _lines(panel)
    return "\n".join(line.rstrip() for line in lines)


def _cells(panel: Panel) -> list[str]:
    """Cells and notes by their places, each cell as wide as the widest; rows from the top."""
    marks: list[Cell | Note] = [mark for mark in panel.marks if isinstance(mark, Cell | Note)]
    cells = [mark for mark in marks if isinstance(mark, Cell)]
    left = min(cell.x for cell in cells)
    step = max(columns(cell.text) for cell in cells) + 1
    down = panel.y.high < panel.y.low
    names = [columns(mark.text) for mark in marks if isinstance(mark, Note) and mark.align == "right"]
    margin = max([CELLS_LEFT, *(width + 1 for width in names)])
    found: list[str] = []
    waiting: list[Cell | Note] = []
    for y in sorted({mark.y for mark in marks}, reverse=not down):
        row = waiting + [mark for mark in marks if mark.y == y]
        # The name of a row may stand a little above its cells.
        waiting = row if all(isinstance(mark, Note) and mark.align == "right" for mark in row) else []
        if waiting:
            continue
        line = ""
        for mark in sorted(row, key=lambda mark: mark.x):
            text = mark.text or "\u00b7"
            if isinstance(mark, Note) and mark.x < left and mark.align == "right":
                here = margin - 1 - columns(text)
            elif isinstance(mark, Note):
                back = {"left": 0, "center": columns(text) // 2, "right": columns(text)}[mark.align]
                here = margin + round((mark.x - left) * step) - back
            else:
                here = margin + round((mark.x - left) * step) + step - 1 - columns(text)
            here = max(here, columns(line) + bool(line))
            line += " " * (here - columns(line)) + text
        found.append(line if columns(line) <= WIDTH else f"{line[: WIDTH - 1]}\u2026")
    return [*found, f"{'':{margin}}{panel.x.label}"] if panel.x.label else found


def _lines(panel: Panel) -> list[str]:
    across = WIDTH - MARGIN - 2
    grid = [[" "] * across for _ in range(ROWS)]
    for level in (mark for mark in panel.marks if isinstance(mark, Level)):
        if level.axis == "x":
            column = _place(panel.x.share(level.at), across)
            for row in grid:
                row[column] = "|"
        else:
            grid[ROWS - 1 - _place(panel.y.share(level.at), ROWS)] = ["-"] * across
    drawn = [mark for mark in panel.marks if isinstance(mark, Line)]
    for letter, line in zip(LETTERS * 4, drawn, strict=False):
        _trace(grid, panel, line, letter if len(drawn) > 1 else "*")
    marks = {ROWS - 1 - _place(panel.y.share(value), ROWS): text for value, text in panel.y.marks()}
    found = [f"{marks.get(i, ''):>{MARGIN}} |{''.join(row)}" for i, row in enumerate(grid)]
    found += _below(panel.x, across)
    found += [f"{'':{MARGIN}}  {panel.x.label}"] if panel.x.label else []
    named = [f"{letter} {line.label}" for letter, line in zip(LETTERS * 4, drawn, strict=False) if line.label]
    if len(drawn) > 1:
        found += wrapped("   ".join(named), WIDTH - 2)
    found += [f"{'|' if m.axis == 'x' else '-'} {m.label}" for m in panel.marks if isinstance(m, Level) and m.label]
    return found


def _trace(grid: list[list[str]], panel: Panel, line: Line, letter: str) -> None:
    rows, across = len(grid), len(grid[0])
    before: tuple[int, int] | None = None
    for x, y in zip(line.x, line.y, strict=True):
        if y is None or y != y or (panel.x.log and x <= 0) or (panel.y.log and y <= 0):
            before = None
            continue
        column, height = panel.x.share(x), panel.y.share(y)
        if not (0 <= column <= 1 and -1e-9 <= height <= 1 + 1e-9):
            before = None
            continue
        here = _place(column, across), rows - 1 - _place(height, rows)
        before = before if line.joined else None
        steps = max(1, abs(here[0] - before[0])) if before else 1
        for step in range(1, steps + 1):
            start = before or here
            place = start[0] + (here[0] - start[0]) * step // steps, start[1] + (here[1] - start[1]) * step // steps
            grid[place[1]][place[0]] = letter
        before = here


def _heat(panel: Panel, heat: Heat, shades: str) -> list[str]:
    shares = {text: panel.y.share(value) for value, text in panel.y.marks()}
    margin = max([MARGIN, *map(columns, shares)])
    across = min(WIDTH - margin - 2, 2 * len(heat.rows[0]) if len(heat.rows[0]) < 24 else 64)
    rows = min(len(heat.rows), 20)
    levels = [mark for mark in panel.marks if isinstance(mark, Level) and mark.axis == "x"]
    struck = {_place(panel.x.share(level.at), across) for level in levels}
    kinds = bool(heat.names)
    signs = f"{shades[0]}{shades[1]}{shades[4]}" if kinds else shades
    picture = []
    for r in range(rows):
        part = heat.rows[
            r * len(heat.rows) // rows : max((r + 1) * len(heat.rows) // rows, r * len(heat.rows) // rows + 1)
        ]
        line = ""
        for c in range(across):
            low = c * len(part[0]) // across
            high = max((c + 1) * len(part[0]) // across, low + 1)
            values = [v for row in part for v in row[low:high] if v is not None and v == v]
            line += "|" if c in struck else _shade(values, heat, signs, kinds)
        picture.append(line)
    up = panel.y.high > panel.y.low
    marks = {_place(share if up else 1 - share, rows): text for text, share in shares.items()}
    picture = [f"{marks.get(i, ''):>{margin}} |{line}" for i, line in enumerate(picture)]
    found = picture[::-1] if up else picture
    found += _below(panel.x, across, margin)
    found += [f"{'':{margin}}  {panel.x.label}"] if panel.x.label else []
    found += [f"| {level.label}" for level in levels if level.label]
    if kinds:
        return [*found, "   ".join(f"[{sign}] {name}" for sign, name in zip(signs, heat.names, strict=True))]
    return [*found, f"[{signs[0]}] {number(heat.low)} ... [{signs[-1]}] {number(heat.high)}"]


def _shade(values: Sequence[float], heat: Heat, signs: str, kinds: bool) -> str:
    if not values:
        return " "
    if kinds:
        return signs[round(max(values))]
    share = (sum(values) / len(values) - heat.low) / (heat.high - heat.low)
    return signs[min(max(int(share * len(signs)), 0), len(signs) - 1)]


def _below(axis: Axis, across: int, margin: int = MARGIN) -> list[str]:
    """The marks of the horizontal axis, as many as do not touch."""
    line = ""
    for value, text in axis.marks():
        start = margin + 2 + _place(axis.share(value), across) - columns(text) // 2
        if start > columns(line) and start + columns(text) <= WIDTH:
            line += " " * (start - columns(line)) + text
    return [line]


def _place(share: float, cells: int) -> int:
    return min(max(int(share * cells), 0), cells - 1)
