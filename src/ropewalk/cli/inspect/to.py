"""`ropewalk inspect --to N` in words: what each scaling does to the pairs, then what to paste for each engine."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ropewalk.checkpoints.inspect.lengths import Reach, Stretch
    from ropewalk.checkpoints.inspect.pasted import Override


def title(reach: Reach) -> list[str]:
    """What is asked, and what to know first."""
    start = "" if reach.start is None else f" from {reach.start:,}"
    return [f"To reach {reach.to:,} tokens{start}:", *(f"  {words}" for words in reach.words)]


def headings(reach: Reach) -> tuple[str, ...]:
    logit = ("logit gain",) if scores_scaled(reach) else ()
    return ("scaling", "factor", "gain", *logit, "fastest pair changed", "pairs past their trained angle")


def scores_scaled(reach: Reach) -> bool:
    """Whether any of these multiplies the scores, which has a column then."""
    return any(one.logit_gain != 1 for one in reach.stretches)


def rows(reach: Reach) -> list[tuple[str, ...]]:
    logit = scores_scaled(reach)
    return [
        (
            one.scaling,
            f"{one.factor:.4g}",
            f"{one.gain:.5g}",
            *((f"{one.logit_gain:.5g}",) if logit else ()),
            "-" if one.first is None else f"{one.first} (wavelength {one.first_wavelength:,.4g})",
            str(one.past),
        )
        for one in reach.stretches
    ]


def to_paste(reach: Reach) -> list[str]:
    """One block a scaling; a text stands alone on its line, so that it can be taken as it is."""
    blocks = [one for one in reach.stretches if one.overrides]
    if not blocks:
        return []
    lines = [
        "What to paste. Each engine's rules then give these frequencies; the model was not measured at this length.",
    ]
    if reach.measured:
        measure = f"ropewalk extend {shlex.quote(reach.model)} --to {reach.to} --text PATH"
        lines.append(f"To measure which is best, and whether any beats cropping: {measure}")
    for one in blocks:
        lines += ["", *_block(one)]
    return lines


def _block(one: Stretch) -> list[str]:
    lines = [f"{one.scaling} x{one.factor:.4g}, not measured"]
    for override in one.overrides:
        lines += _told(override)
    return lines


def _told(override: Override) -> list[str]:
    if override.text is None:
        return [f"  {override.engine}: none, {override.why}"]
    place = f", keys for {override.into}" if override.into else ""
    return [f"  {override.engine}{place}:", f"    {override.text}", *(f"    but it {note}" for note in override.notes)]
