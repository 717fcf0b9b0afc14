"""The tables of an extension: finalists, rounds, search, training, what was written, which documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ropewalk.evaluate.battery import FAR_TOKENS
from ropewalk.extend.candidates.base import STILL, by_reason
from ropewalk.extend.tails import SOME
from ropewalk.report.eval_page import interval
from ropewalk.report.extension.shown import Shown, words
from ropewalk.report.markup import Html, element, html
from ropewalk.report.parts import Heading, fold, table


def judged(shown: Shown) -> Html:
    heads = [
        words("candidate"),
        *(Heading(said=words(key), number=True) for key in ("factor", "gain", "far", "needles", "short")),
        words("proven"),
    ]
    rows = []
    for name in shown.order:
        one = shown.found["judged"][name]
        candidate = one["candidate"]
        state = "yes_better" if name in shown.said["proven"] else "not_better"
        rows.append(
            [
                element("strong", name) if name == shown.said["winner"] and name in shown.said["tied"] else name,
                words("stopped") if candidate["factor"] >= STILL else f"{candidate['factor']:.4g}",
                *shown.measured(one),
                words(state if candidate["text"] == "whole" else "reference"),
            ]
        )
    return table(heads, rows, label=words("judged_title"), stacks=True)


def rounds(shown: Shown) -> Html:
    rounds = shown.found["rounds"]
    heads = [words("candidate"), *(Heading(said=_round(one), number=True) for one in rounds)]
    last = {name: number for number, one in enumerate(rounds) for name in one["losses"]}
    order = sorted(last, key=lambda name: (-last[name], rounds[last[name]]["losses"][name]))
    rows = [
        [name, *(f"{one['losses'][name]:.4f}" if name in one["losses"] else "" for one in rounds)] for name in order
    ]
    said = [
        element(
            "p",
            words(
                "correlation",
                probes=len(one["probes"]),
                value=f"{one['correlation']:.2f}",
                used=words("was_used" if one["used"] else "was_not_used"),
            ),
        )
        for one in rounds
        if "correlation" in one
    ]
    title = words("rounds_title")
    return html(
        [
            element("h2", title),
            element("p", words("rounds_about")),
            said,
            table(heads, rows, label=title, stacks=True),
        ]
    )


def searched(searched: Mapping[str, Any]) -> Html:
    title, select = words("searched_title"), searched["select"]
    number, what = Heading(said=words("value"), number=True), words("number")
    numbers = [[words(f"ramp_{name}"), f"{value:.4g}"] for name, value in searched["ramp"].items()]
    about = words(
        "searched_about",
        settings=len(searched["trials"]),
        near=sum(one["formula"] is not None for one in searched["trials"]),
        given_up=sum(one["value"] is None for one in searched["trials"]),
        passes=searched["passes"],
        refined=refinement(searched),
    )
    made_small = "objective" if searched["with_needles"] else "objective_without_needles"
    names = {"ramp": words("select_ramp"), "refined": words("select_refined")}
    order = sorted(select, key=select.__getitem__)
    rows = [[names.get(name, name), f"{select[name]:.4f}"] for name in order]
    return html(
        [
            element("h2", title),
            element("p", about),
            table([words("candidate"), Heading(said=words(made_small), number=True)], rows, label=title),
            element("p", words("ramp_about")),
            table([what, number], numbers, label=words("ramp_about")),
        ]
    )


def refinement(searched: Mapping[str, Any]) -> dict[str, str]:
    """What became of refining the slow pairs, in each language."""
    select = searched["select"]
    if searched["refined"]:
        return words("refined_taken")
    if "refined" in select:
        return words("refined_not_taken")
    # Of equal ones a formula stands first, and then nothing is refined.
    return words("refined_no_step" if min(select, key=select.__getitem__) == "ramp" else "refined_not_refined")


def tuned(shown: Shown, tuned: Mapping[str, Any]) -> Html:
    title, start = words("tuned_title"), tuned["start"]
    numbers = [Heading(said=words(key), number=True) for key in ("gain", "far", "needles", "short")]
    rows = [
        [name, *shown.measured(one)]
        for name, one in ((words("tuned_name"), tuned["judged"]), (start, shown.found["judged"][start]))
    ]
    about = words(
        "tuned_about", steps=f"{tuned['steps']:,}", minutes=f"{tuned['seconds'] / 60:.1f}", start=start,
        texts=tuned["texts"], alike=tuned.get("alike", 0), trained=f"{shown.found['trained']:,}", to=shown.to,
        own=str(interval(tuned["own"])),
    )  # fmt: skip
    made = table([words("candidate"), *numbers], rows, label=title, stacks=True)
    skipped = [element("p", words("not_measured", what=what), class_="soft") for what in tuned["not_measured"]]
    return html([element("h2", title), element("p", about), made, skipped])


def written(shown: Shown) -> Html:
    written, tuned = shown.found["written"], shown.found.get("tuned")
    if written is None:
        return html([element("h2", words("commands_title")), element("p", _not_written(shown, tuned))])
    one = tuned["judged"] if tuned and tuned["kind"] == "take" else shown.first
    cost = interval(one["tail"]["short_cost"])
    engines = [[name, str(cost) if why is None else why] for name, why in written["engines"].items()]
    proofs = [
        [one["engine"], "", "", "", words("not_run", why=one["not_run"])]
        if one["not_run"]
        else [one["engine"], f"{one['mean']:.1e}", f"{one['most']:.1e}", _allowed(one), _against(one)]
        for one in written["proofs"]
    ]
    numbers = [Heading(said=words(key), number=True) for key in ("mean", "most", "bound")]
    proof = words("proof_title", path=written["path"])
    return html(
        [
            element("h2", words("engines_title")),
            element("p", words("engines_about")),
            table([words("engine"), words("short")], engines, label=words("engines_title"), stacks=True),
            [
                element("h2", proof),
                element("p", words("proof_about", to=shown.to)),
                table([words("engine"), *numbers, words("against")], proofs, label=proof, stacks=True),
            ]
            if proofs
            else None,
            element("h2", words("commands_title")),
            [element("pre", line) for line in written["commands"].values()],
        ]
    )


def _not_written(shown: Shown, tuned: Mapping[str, Any] | None) -> dict[str, str]:
    """A verdict that asks for a change is left to the reader where the model is ropewalk's own, and by a campaign,
    which only measures."""
    # Before this was kept, what was not written was ropewalk's own.
    native = shown.found.get("native", True)
    if tuned and tuned["kind"] == "take":
        return words("own_tuned" if native else "measured_tuned")
    scaling = None if shown.said["winner"] == "crop" else shown.first["candidate"]["scaling"]
    if scaling is not None:
        return words("own_model" if native else "measured_model", scaling=json.dumps(scaling))
    if shown.said["kind"] == "too few":
        return words("undecided")
    if shown.said["winner"] == "crop":
        return words("serve_cropped", crop=f"{shown.first['tail']['best_crop']:,}")
    return words("nothing_written")


def how(shown: Shown) -> Html:
    found = shown.found
    rows = [
        [words(name), one["name"], element("code", one["sha256"][:16])]
        for name, each in found["sets"].items()
        for one in each
    ]
    documents = words("documents")
    return html(
        [
            element("h2", words("how_title")),
            element("p", words("how", tail=f"{found['tail_tokens']:,}", some=SOME)),
            element("p", _rule(found)),
            [element("p", words("not_measured", what=what), class_="soft") for what in found["not_measured"]],
            [
                element("p", words("not_tried", name=", ".join(names), why=why), class_="soft")
                for why, names in by_reason(found["not_tried"]).items()
            ],
            fold(documents, table([words("set"), words("document"), "SHA-256"], rows, label=documents)),
            element("p", words("again", digest=found["digest"][:16]), class_="soft"),
        ]
    )


def _rule(found: Mapping[str, Any]) -> dict[str, str]:
    """The result has it in English."""
    sizes = {name: len(each) for name, each in found["sets"].items()}
    tokens = {"longest": found["to"], "tail": found["tail_tokens"], "near": found["near"]}
    commas = {name: f"{count:,}" for name, count in tokens.items()}
    return words("rule", rule=found["rule"], least=FAR_TOKENS, **commas, **sizes)


def _allowed(one: Mapping[str, Any]) -> str:
    """In the mean and of one token; an older result has the first alone."""
    return "; ".join(f"{one[key]:g}" for key in ("bound", "most_bound") if key in one)


def _against(one: Mapping[str, Any]) -> str | dict[str, str]:
    if one.get("failed"):
        return words("proof_failed", against=one["against"])
    return one["against"] if one.get("tells", True) else words("proof_blind", against=one["against"])


def _round(one: Mapping[str, Any]) -> dict[str, str]:
    kind = one["name"].partition(" at ")[0].replace(" ", "_")
    documents = words("one_document" if one["documents"] == 1 else "count_documents", count=one["documents"])
    return words(f"round_{kind}", length=f"{one['length']:,}", scored=f"{one['scored']:,}", documents=documents)
