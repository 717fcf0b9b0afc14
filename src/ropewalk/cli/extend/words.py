"""What `ropewalk extend` says: the verdict, what was judged and what dropped, what was written, how to serve it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ropewalk.amounts import counted, duration
from ropewalk.checkpoints.errors import plain
from ropewalk.cli.output import write, write_table
from ropewalk.extend.candidates.base import STILL, by_reason

if TYPE_CHECKING:
    from ropewalk.extend.judging import Judged
    from ropewalk.extend.prove import Proof
    from ropewalk.extend.search.searched import Searched
    from ropewalk.extend.tournament import Result
    from ropewalk.extend.write import Written
    from ropewalk.scaling import Scaling

JUDGED = ("judged", "factor", "gain over cropping", "far tokens", "needles", "short cost")


def show(result: Result) -> None:
    from ropewalk.extend.sets import counts
    from ropewalk.extend.tails import SOME

    write(result.sentence)
    if result.tuned is not None:
        write(result.tuned.sentence)
    write("")
    every = [*result.judged.values(), *([] if result.tuned is None else [result.tuned.judged])]
    best = sorted(every, key=lambda one: -one.gain.mean)
    write_table(JUDGED, [_row(one) for one in best], records=True)
    write("")
    rows = []
    for one in result.rounds:
        order = sorted(one.losses, key=one.losses.__getitem__)
        rows += [
            (
                f"{one.name}, {counted(one.documents, 'document')}" if place == 0 else "",
                name,
                f"{one.losses[name]:.4f}",
                "" if name in one.kept else "dropped",
            )
            for place, name in enumerate(order)
        ]
    if rows:
        write_table(("round", "candidate", "nats per token", ""), rows)
        write("")
    for one in result.rounds:
        correlation = getattr(one, "correlation", None)
        if correlation is not None:
            used = "used" if getattr(one, "used", False) else "not used"
            write(f"{one.name}: rank correlation with the full length {correlation:.2f}, {used}")
    if result.searched is not None:
        for line in searched_lines(result.searched):
            write(line)
    if (tuned := result.tuned) is not None:
        on = counted(tuned.texts, "text")
        if tuned.alike:
            on += f" ({counted(tuned.alike, 'near-duplicate')} of measured texts excluded)"
        write(f"tune: {tuned.steps:,} steps from {tuned.start} on {on}, {duration(tuned.seconds)}; {tuned.model}")
    for what in result.not_measured:
        write(f"not measured: {what}")
    for why, names in by_reason(result.not_tried).items():
        write(f"not tried: {', '.join(names)}: {why}")
    some = f"short cost and sinks on the first {SOME}, " if len(result.sets.judge) > SOME else ""
    left = f"; left out: {counts(result.sets.left_out)}" if any(result.sets.left_out.values()) else ""
    write(f"{len(result.sets.judge)} documents, {some}nats per token, {result.engine}; {result.sets.rule}{left}")


def searched_lines(found: Searched) -> list[str]:
    """What the search did, and what the documents to select on say of it."""
    from ropewalk.report.extension.tables import refinement

    ramp = ", ".join(f"{name} {value:.4g}" for name, value in asdict(found.ramp).items())
    given_up = sum(one.value is None for one in found.trials)
    select = ", ".join(f"{name} {value:.4f}" for name, value in sorted(found.select.items(), key=lambda one: one[1]))
    least = "tail loss and needles" if found.with_needles else "tail loss, without needles,"
    return [
        f"search: {len(found.trials)} settings, {given_up} abandoned halfway, {found.passes} passes; {ramp}",
        f"search: {least} on the selection documents: {select}; {refinement(found.to_dict())['en']}",
    ]


def _row(one: Judged) -> tuple[str, ...]:
    far = one.tail.far_gain
    from ropewalk.extend.judging import found_share

    return (
        one.candidate.name,
        "stopped" if one.candidate.factor >= STILL else f"{one.candidate.factor:.4g}",
        str(one.gain),
        "-" if far is None else str(far),
        found_share(one.needles) if one.needles else "-",
        str(one.tail.short_cost) if one.candidate.scaling is not None and one.tail.has_short else "-",
    )


def written_data(written: Written, found: list[Proof], scaling: Scaling, to: int) -> dict[str, Any]:
    return {
        "path": str(written.path),
        "gguf": None if written.gguf is None else str(written.gguf),
        "scaling": scaling.model_dump(mode="json"),
        "engines": written.engines,
        "left_out": list(written.left_out),
        "raised": list(written.raised),
        "commands": written.commands(to),
        "proofs": [asdict(one) | {"failed": one.failed, "tells": one.tells} for one in found],
    }


def show_written(written: Written, found: list[Proof], scaling: Scaling, to: int, proof: bool) -> None:
    write(f"{written.path}: {scaling} for {to:,} tokens")
    for name, why in written.engines.items():
        write(f"  {name:<14} {'reads it as intended' if why is None else why}")
    for one in written.raised:
        write(f"  raised {one}")
    if written.left_out:
        write(f"  not copied: {', '.join(map(plain, written.left_out))}")
    write("")
    if not proof:
        write("not proved: --no-proof was given")
    rows = []
    for one in found:
        if one.not_run is not None:
            rows.append((one.engine, "-", "-", f"not run: {one.not_run}"))
        else:
            rows.append((one.engine, f"{one.mean:.1e}", f"{one.most:.1e}", one.words))
    if rows:
        write_table(("engine", "mean", "largest", f"difference on the last tokens of {to:,}, in nats"), rows)
    write("")
    for engine, command in written.commands(to).items():
        write(f"{engine:<10} {command}")
