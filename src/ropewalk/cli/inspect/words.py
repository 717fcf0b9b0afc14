"""The report of `ropewalk inspect` in words: verdict first, then the table, then why, then what to know."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ropewalk.amounts import consecutive
from ropewalk.checkpoints.engines.besides import FREQUENCIES, GAINS, WINDOWS

if TYPE_CHECKING:
    from ropewalk.checkpoints.inspect.report import Report, Row
    from ropewalk.plan import LayerPlan, Plan

DOT = " \u00b7 "
LAYER_HEADINGS = ("layers", "kind", "theta", "rotated", "scaling", "gain on cos/sin", "gain on logits", "window")
NAMES = {
    "alibi": "ALiBi",
    "learned": "learned table",
    "none": "no encoding (NoPE)",
    "t5": "T5 bias",
    "temperature": "no encoding (NoPE), query temperature",
}


def headline(report: Report) -> list[str]:
    resolved = report.resolved
    lines = []
    for side, plan in resolved.plans.items():
        where = resolved.stack if len(resolved.plans) == 1 else f"{resolved.stack}, {side}"
        count = len(plan.layers)
        start = f"{resolved.name}{DOT}{where}, {count} layer{'s' * (count != 1)}"
        groups = _groups(plan)
        if len(groups) == 1:
            lines.append(start + DOT + _layer(groups[0][0]))
        else:
            lines.append(start)
            lines += [f"  {len(numbers)} of {count}: {_layer(layer)}" for layer, numbers in groups]
        lines += filter(None, [_lengths(plan)])
    lines += [
        f"{report.resolved.where}: {key} is not understood: {why}" for key, why in resolved.not_understood.items()
    ]
    if resolved.refusal is not None:
        lines.append(f"ropewalk can inspect it but not load it: {resolved.refusal}")
    return lines


def _groups(plan: Plan) -> list[tuple[LayerPlan, list[int]]]:
    """Layers that a headline says the same of."""
    found: dict[str, tuple[LayerPlan, list[int]]] = {}
    for number, layer in enumerate(plan.layers):
        found.setdefault(_layer(layer), (layer, []))[1].append(number)
    return list(found.values())


def _layer(layer: LayerPlan) -> str:
    settings: dict[str, Any] = {key: value for key, value in json.loads(layer.settings).items() if value is not None}
    if layer.base is None and layer.frequencies:
        slow, fast = min(layer.frequencies), max(layer.frequencies)
        own = f"{len(layer.frequencies)} frequencies of its own, {fast:.6g} to {slow:.6g}"
        return f"RoPE ({layer.layout}), {own}{_window(layer)}"
    if layer.base is None:
        said = NAMES.get(layer.kind, layer.kind)
        if "longest" in settings:
            said += f" of {settings['longest']:,} positions"
        elif layer.kind == "t5":
            said += f", {settings.get('buckets')} buckets up to distance {settings.get('farthest')}"
        elif layer.kind == "chain":
            said = " + ".join(NAMES.get(part.get("kind"), str(part.get("kind"))) for part in settings.get("parts", []))
        return said + _window(layer)
    width = ""
    if layer.rotary_width != layer.head_width:
        width = f", {layer.rotary_width} of {layer.head_width} features"
    axes = f", sections {settings['sections']}" if settings.get("sections") else ""
    parts = [part["kind"] for part in settings.get("parts", [])]
    heat = ", query temperature" if settings.get("temperature") or "temperature" in parts else ""
    beside = "".join(f" + {NAMES.get(kind, kind)}" for kind in parts if kind not in ("rope", "temperature"))
    theta = f"theta {number(layer.base)}{_from(dict(layer.sources).get('base'))}"
    return f"RoPE ({layer.layout}{width}{axes}), {theta}{beside}{heat}{_window(layer)}"


def _window(layer: LayerPlan) -> str:
    kept = f" and the first {layer.keep_first:,}" if layer.keep_first else ""
    return "" if layer.window is None else f", window {layer.window:,}{kept}{_from(dict(layer.sources).get('window'))}"


def _lengths(plan: Plan) -> str:
    sources = dict(plan.sources)
    known = (("trained", plan.trained), ("stated", plan.stated))
    said = [f"{name} {length:,}{_from(sources.get(name))}" for name, length in known if length is not None]
    scaled = _scalings(plan)
    if plan.extended is not None and scaled:
        said.append(f"extended {plan.extended:,} by {joined(scaled)}")
    else:
        said += scaled
    if plan.table is not None:
        said.append(f"the table ends at {plan.table:,}, and nothing is defined past it")
    return DOT.join(said)


def _scalings(plan: Plan) -> list[str]:
    """Each scaling with where it stands, and with its layers where not all that rotate have it."""
    found: dict[str, int] = {}
    for layer in plan.layers:
        if layer.scaling is not None:
            text = f"{_scaling(layer)}{_from(_scaling_source(layer))}"
            found[text] = found.get(text, 0) + 1
    turning = sum(layer.base is not None for layer in plan.layers)
    whole = f" of {len(plan.layers)} layers"
    return [text if count == turning else f"{text} in {count}{whole}" for text, count in found.items()]


def _scaling(layer: LayerPlan) -> str:
    factor = getattr(layer.scaling, "factor", None) or getattr(layer.scaling, "ratio", None)
    kind = "" if layer.scaling is None else layer.scaling.kind
    return kind if factor in (None, 1) else f"{kind} x{factor:g}"


def _scaling_source(layer: LayerPlan) -> str | None:
    sources = dict(layer.sources)
    return sources.get("factor") or sources.get("scaling")


def engine_headings(report: Report) -> tuple[str, ...]:
    headings = ["engine", "frequencies", "gain on cos/sin", "gain on logits"]
    headings += ["windows"] if WINDOWS in report.applicable else []
    headings += ["length"]
    return (*headings, *(["decides"] if _moving(report) else []))


def engine_rows(report: Report) -> list[tuple[str, ...]]:
    return [_engine_row(report, name, row) for name, row in report.rows.items()]


def _moving(report: Report) -> bool:
    return any(row.reading.switch != "static" for row in report.rows.values())


def _engine_row(report: Report, name: str, row: Row) -> tuple[str, ...]:
    reading = row.reading
    if reading.refusal is not None:
        return (reading.engine, "does not load it", *["-"] * (len(engine_headings(report)) - 2))
    cells = [
        reading.engine + "*" * (name in report.at_odds),
        _apart(report, row),
        *(
            "not compared" if GAINS in reading.unknown else _several(gains)
            for gains in (
                [layer.rotary_gain for layer in reading.layers],
                [layer.logit_gain for layer in reading.layers],
            )
        ),
    ]
    cells += [_windows(report, row)] if WINDOWS in report.applicable else []
    cells += ["-" if reading.length is None else f"{reading.length:,}"]
    return (*cells, *([reading.switch] if _moving(report) else []))


def _windows(report: Report, row: Row) -> str:
    besides = row.reading.besides
    if besides is None:
        return "-"
    if WINDOWS in row.reading.unknown:
        return "not compared"
    if besides.windows == report.besides.windows:
        return "= plan"
    widths = dict.fromkeys(filter(None, besides.windows))
    return " / ".join(f"{width:,}" for width in widths) or "none"


def _apart(report: Report, row: Row) -> str:
    def size(apart: float) -> str:
        return "= plan" if apart == 1 else f"up to {apart:.3g}x" if math.isfinite(apart) else "other pairs"

    if FREQUENCIES in row.reading.unknown:
        return "not compared"
    trained = _within(report)
    moves = any(ours.frequencies != ours.stretched for ours in report.planned)
    if moves and row.reading.length is not None and row.reading.length <= trained:
        return f"{size(row.apart)} to {row.reading.length:,}, its end"
    if row.apart == row.apart_long:
        return size(row.apart)
    return f"{size(row.apart)} to {trained:,}, then {size(row.apart_long)}"


def _within(report: Report) -> int:
    """The length it was trained at, or the stated one where that is not known."""
    return report.resolved.plan.trained or report.resolved.plan.stated or 0


def _several(values: list[float]) -> str:
    return " / ".join(dict.fromkeys(f"{value:.5g}" for value in values)) or "1"


def disagreements(report: Report) -> list[str]:
    """Each once, with all the engines it is true of; a star where it counts."""
    said: dict[tuple[str, str], list[str]] = {}
    marked: set[tuple[str, str]] = set()
    lines: list[str] = []
    if not report.rotates:
        return lines
    for row in report.rows.values():
        for note in row.reading.notes:
            text = (note.what, note.why + _from(note.issue))
            said.setdefault(text, []).append(row.reading.engine)
            if note.counts:
                marked.add(text)
    for (what, why), engines in said.items():
        lines += [f"{'*' if (what, why) in marked else '-'} {joined(engines)}: {what};", f"    {why}"]
    for row in report.rows.values():
        if row.reading.refusal is not None:
            lines.append(f"- {row.reading.engine} does not load it: {row.reading.refusal}")
    return lines


def verdict(report: Report) -> str:
    unclear = report.resolved.not_understood
    if not unclear:
        return _engines_verdict(report)
    keys = f"{listed_keys(unclear)} {'is' if len(unclear) == 1 else 'are'} not understood"
    return f"{keys}: the model may use other positions than this plan. By the rest: {_engines_verdict(report)}"


def listed_keys(keys: Collection[str], most: int = 20) -> str:
    """Names out of a file, each cut, and only so many."""
    shown = [key if len(key) <= 60 else key[:57] + "..." for key in list(keys)[:most]]
    return ", ".join(shown) + (f" and {len(keys) - most:,} more" if len(keys) > most else "")


def _engines_verdict(report: Report) -> str:
    """Which engines depart from the checkpoint and in what, what the others agree on, and what was not compared."""
    if report.resolved.model_type == "ropewalk":
        return "Only ropewalk reads it: the other engines have no model of this type."
    if not report.rotates:
        return "Nothing rotates here: there are no frequencies to compare, and nothing else was compared."
    if not report.loading:
        return "None of the engines loads it."
    told = [
        f"{report.rows[name].reading.engine}{' departs from the checkpoint' * (place == 0)} in "
        f"{joined(list(report.rows[name].departs))}"
        for place, name in enumerate(report.at_odds)
    ]
    agreeing = tuple(name for name in report.loading if name not in report.at_odds)
    if agreeing:
        alone = len(agreeing) == 1
        told.append(f"{_who(report, agreeing)} agree{'s' * alone} on {joined(list(report.compared))}")
    said = [("; " if agreeing else ", ").join([", ".join(told[:-1]), told[-1]] if told[1:] else told) + "."]
    for aspect, names in report.unknown.items():
        said.append(f"Not compared: {aspect} in {_listed(report, names)}.")
    paper = report.rows.get("paper")
    if paper is not None and not paper.agrees and not report.at_odds:
        said.append(
            f"The {paper.reading.engine.removesuffix(', paper')}'s formula differs from what the engines compute."
        )
    return " ".join(said)


def _who(report: Report, agreeing: tuple[str, ...]) -> str:
    several = len(agreeing)
    if several == 1 or report.at_odds:
        return _listed(report, agreeing)
    counted = "Both engines" if several == 2 else f"All {_words(several)} engines"
    return counted + " that load it" * (several < len(report.counted))


def _listed(report: Report, names: tuple[str, ...]) -> str:
    return joined([report.rows[name].reading.engine for name in names])


def joined(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def notes(report: Report) -> list[str]:
    found = list(report.resolved.notes)
    if report.resolved.not_looked_at:
        found.append(f"keys not looked at: {listed_keys(report.resolved.not_looked_at)}")
    plan = report.resolved.plan
    scaled = next((layer.scaling for layer in plan.layers if layer.scaling is not None), None)
    if scaled is not None and scaled.kind in ("yarn", "linear", "llama3", "ntk"):
        found.append(f"{scaled.kind} is static: it changes short texts too, so measure those as well.")
    served = {row.reading.engine: row.reading.length for row in report.rows.values() if row.reading.length}
    if len(set(served.values())) > 1:
        found.append("lengths differ: " + ", ".join(f"{name} {length:,}" for name, length in served.items()))
    elif plan.extended is not None and served and max(served.values()) < plan.extended:
        found.append(
            f"engines will limit requests to {max(served.values()):,} (max_position_embeddings), below the extended "
            f"{plan.extended:,}; raise max_position_embeddings, or set the length in the engine"
        )
    if report.rotates:
        engines = [row.reading for name, row in report.rows.items() if name != "paper"]
        versions = [f"{one.engine} ({one.version})" for one in engines]
        found.append("the rules come from the source code of " + joined(versions))
    return [f"- {note}" for note in found]


def wave_lines(report: Report) -> list[str]:
    trained = _within(report)
    lines = []
    for wave in report.waves:
        place = "" if len(report.waves) == 1 else f"layers {spans(wave.layers, 24)}: "
        still = wave.pairs - wave.turning
        lines.append(
            f"{place}{wave.unfinished} of {wave.pairs} pairs never complete a turn within {trained:,} tokens; "
            f"the slowest takes {wave.longest:,.0f}{f'; {still} do not turn at all' * bool(still)}"
        )
    return lines


def layer_rows(report: Report) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for side, plan in report.resolved.plans.items():
        before = f"{side} " if len(report.resolved.plans) > 1 else ""
        for layer, numbers in plan.groups().items():
            rotated = "-" if layer.rotary_width is None else f"{layer.rotary_width}/{layer.head_width}"
            cells = (
                before + spans(numbers),
                layer.kind,
                "-" if layer.base is None else number(layer.base),
                rotated,
                "-" if layer.scaling is None else str(layer.scaling),
                f"{layer.rotary_gain:.5g}",
                f"{layer.logit_gain:.5g}",
                "-" if layer.window is None else f"{layer.window:,}",
            )
            rows.append(cells)
    return rows


def drift_lines(report: Report) -> list[str]:
    assert report.against is not None
    if not report.drifts:
        return [f"Its positions are those of {report.against.name}."]
    lines = [f"Its positions differ from those of {report.against.name}:"]
    for drift in report.drifts:
        place = f", layers {spans(drift.layers)}" if drift.layers else ""
        side = f"{drift.side} " if len(report.resolved.plans) > 1 else ""
        ours, theirs = _value(drift.ours) + _from(drift.source), _value(drift.theirs)
        lines.append(f"  {side}{drift.field}{place}: {ours} here, {theirs} there")
    return lines


def _value(value: Any) -> str:
    if value is None:
        return "none"
    said = number(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    return said if len(said) <= 60 else said[:57] + "..."


def number(value: float) -> str:
    return f"{value:,.10g}"


def spans(numbers: list[int] | tuple[int, ...], most: int = 60) -> str:
    """0-3, 5, 7-9; cut at so many characters."""
    said = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in consecutive(numbers))
    return said if len(said) <= most else said[:most].rpartition(",")[0] + f", ... ({len(numbers)} layers)"


def _from(source: str | None) -> str:
    return f" [{source}]" if source else ""


def _words(count: int) -> str:
    return {3: "three", 4: "four", 5: "five", 6: "six"}.get(count, str(count))
