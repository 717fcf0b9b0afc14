"""What `ropewalk compare` says: losses of text and shares of tasks with their verdicts, and what is left to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ropewalk.amounts import counted, duration
from ropewalk.cli.output import write, write_table


def show(found: dict[str, Any], out: Path, quiet: bool) -> None:
    if found["text"] is not None:
        _show_text(found["text"], found["reference"], quiet)
    if found["tasks"] is not None:
        _show_tasks(found["tasks"], found["reference"], quiet)
    if said := not_done(found):
        write(said)
    if not quiet:
        cost = found["timing"]["cost"]
        write(f"cost: {counted(cost['trials'], 'trial')}, {duration(cost['seconds'])} if run one at a time")
        write(f"report: {out / 'report.html'}")


def not_done(found: dict[str, Any]) -> str:
    from ropewalk.compare.derived import budget_used_up

    missing = found["trials"]["missing"]
    if not missing:
        return ""
    if budget_used_up(found):
        left = counted(len(missing), "trial")
        return (
            f"the budget of {found['study']['budget']:g} hours is used up: {left} not started; raise budget to run them"
        )
    return f"{counted(len(missing), 'trial')} not finished; run the same command to continue"


def _show_text(text: dict[str, Any], reference: str, quiet: bool) -> None:
    lengths = [str(n) for n in text["lengths"]]
    rows = []
    for name, arm in text["arms"].items():
        cells = [_loss(arm["same_tokens"].get(n)) for n in lengths]
        said = [text["verdicts"][n if n in text["verdicts"] else int(n)].get(name, {}) for n in lengths]
        judged = [one.get("verdict", "reference") for one in said]
        rows.append((name, *(f"{cell} {_sign(one)}".rstrip() for cell, one in zip(cells, judged, strict=True))))
    if not quiet:
        write(
            f"text: nats per token of the same last {text['tail']} tokens, by length, these included; trained on "
            f"{text['trained']}; + better and - worse than {reference}, = tie"
        )
    write_table(("encoding", *lengths), rows)
    pays = text["context_pays"]
    if not pays["pays"]:
        gain = "not known" if pays["gain"] is None else f"{pays['gain']:.3f} nats"
        write(f"no verdicts on text: context lowers the loss of {reference} by {gain}, {pays['least']} are required")
    if not quiet:
        write("")


def _show_tasks(tasks: dict[str, Any], reference: str, quiet: bool) -> None:
    from ropewalk.compare.derived import asked_alike

    lengths = [str(n) for n in tasks["lengths"]]
    for task in tasks["tasks"]:
        (shares, solved), other = ([], []), asked_alike(tasks, task)[1]
        for name, arm in tasks["arms"].items():
            exact = arm["exact"][task]
            judged = tasks["verdicts"][task].get(name, {}).get("lengths", {})
            signs = [_sign(judged.get(n, {}).get("verdict", "")) for n in lengths]
            shares.append(
                (name, *(f"{_share(exact[n])} {sign}".rstrip() for n, sign in zip(lengths, signs, strict=True)))
            )
            mark = " other questions" if name in other else ""
            solved.append((name, *(f"{_solved(exact[n])}{mark}" for n in lengths)))
        if not quiet:
            about = f"exact match of each seed in %, by symbols; trained up to {tasks['longest']}"
            write(f"{task}: {about}; + better and - worse than {reference}, = tie")
        write_table(("encoding", *lengths), shares)
        if not quiet:
            write(f"{task}: seeds that solve it (at least {tasks['solved']:.0%} correct), 95 % Wilson interval in %")
        write_table(("encoding", *lengths), solved)
        if not quiet:
            write("")


def _loss(values: Any) -> str:
    if isinstance(values, str) or not values:
        return values or "-"
    # A mean of the seeds that are left would flatter.
    lost = values.count(None)
    return f"{lost} of {len(values)} lost" if lost else f"{sum(values) / len(values):.3f}"


def _sign(verdict: str) -> str:
    signs = {"better": "+", "worse": "-", "tie": "=", "other text": verdict, "other questions": verdict}
    return signs.get(verdict, "")


def _share(one: dict[str, Any]) -> str:
    points = one["points"]
    return points if isinstance(points, str) else " ".join(f"{100 * p:.0f}" for p in points) or "-"


def _solved(one: dict[str, Any]) -> str:
    if isinstance(one["points"], str) or not one["points"]:
        return one["points"] or "-"
    return f"{one['solved']}/{one['of']} [{100 * one['low']:.0f}, {100 * one['high']:.0f}]"
