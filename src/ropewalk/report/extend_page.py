"""The page of `ropewalk extend`: the verdict first, then who was judged, why, what was written and how to serve it.

Made from the JSON of a tournament alone, so that a kept result can be shown again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ropewalk.extend.candidates.base import STILL
from ropewalk.plot.chart import Axis, Chart, Heat, Level, Line, Panel
from ropewalk.report.eval_page import at, ends, interval, signed, up
from ropewalk.report.markup import LANGUAGES, Content, Html, element, html
from ropewalk.report.page import page as whole_page
from ropewalk.report.parts import Heading, figure, fold, table, verdict
from ropewalk.report.words import Words

words = Words("extend")
TONES = ("orange", "blue", "green", "violet", "gold", "ink", "soft")
MOST = 64.0
"""The largest divisor that is drawn: a pair that is stopped has none."""


def page(model: str, found: Mapping[str, Any]) -> str:
    """One HTML file. found: what `ropewalk extend --json` prints."""
    shown = _Shown(found)
    body: list[Content] = [
        element("h1", words("title", model=model, to=shown.to)),
        element(
            "p",
            words(
                "intro",
                engine=found["engine"],
                trained=f"{found['trained']:,}",
                candidates=len(found["candidates"]),
                documents=len(found["sets"]["judge"]),
            ),
            class_="soft",
        ),
        shown.verdict(),
        shown.tuned_verdict(found["tuned"]) if found.get("tuned") else None,
        element("h2", words("judged_title")),
        element("p", words("judged_about", crop=f"{shown.first['tail']['best_crop']:,}", to=shown.to)),
        shown.judged(),
        shown.chart(shown.gains, "gains"),
        shown.chart(shown.where, "where") if any(one["by_position"] for one in found["judged"].values()) else None,
        shown.chart(shown.map, "map") if any(one["needles"] for one in found["judged"].values()) else None,
        shown.chart(shown.pairs, "pairs"),
        shown.rounds() if found["rounds"] else None,
        shown.searched(found["searched"]) if found.get("searched") else None,
        shown.tuned(found["tuned"]) if found.get("tuned") else None,
        shown.written(),
        shown.how(),
    ]
    return whole_page(words("page", model=model, to=shown.to), body)


class _Shown:
    def __init__(self, found: Mapping[str, Any]) -> None:
        self.found = found
        self.to = f"{found['to']:,}"
        self.said = found["verdict"]
        every = found["judged"]
        # The best first; its colour is the same in every figure.
        self.order = sorted(every, key=lambda name: -self._gain(every[name]).mean)
        self.tones = dict(zip(self.order, TONES * len(self.order), strict=False))
        self.name = self.said["best"] if self.said["winner"] == "crop" else self.said["winner"]
        self.first = every[self.name]

    def chart(self, made: Any, name: str) -> Html:
        return figure({language: made(language) for language in LANGUAGES}, name)

    def _gain(self, one: Mapping[str, Any]) -> Any:
        return interval(at(one["tail"]["gain"], self.found["to"]))

    def verdict(self) -> Html:
        kind, gain, over = self.said["kind"].replace(" ", "_"), self._gain(self.first), self.said.get("over_leaving")
        # A result from before has neither.
        own = "own_" if over or (self.said.get("own") and kind == "leave") else ""
        chinese = words(
            f"verdict_{own}{kind}",
            name=self.name,
            others="\u3001".join(name for name in self.said["tied"] if name != self.name),
            length=self.to,
            crop=f"{self.first['tail']['best_crop']:,}",
            gain=str(gain),
            over=str(interval(over)) if over else "",
            count=gain.documents,
            besides=self._besides(),
            doubt=words("doubt", finals=self._finals())["zh"] if gain.verdict != "no difference" else "",
        )
        good = {"extend": True, "tie": True, "leave": True, "crop better": False}.get(self.said["kind"])
        return verdict({"en": self.said["sentence"], **chinese}, good=good)

    def _finals(self) -> int:
        return sum(one["candidate"]["text"] == "whole" for one in self.found["judged"].values())

    def _besides(self) -> str:
        tail, parts = self.first["tail"], []
        if tail["far_tokens"] is not None:
            longest = max(int(length) for length in tail["crop"])
            over = "" if longest == tail["best_crop"] else words("besides_over", crop=f"{longest:,}")["zh"]
            parts.append(words("besides_far", over=over, far=str(interval(tail["far_tokens"])))["zh"])
        if self.first["needles"]:
            parts.append(words("besides_needles", needles=_share(self.first["needles"][-1]))["zh"])
        scaled = self.first["candidate"]["scaling"] is not None
        cost = str(interval(tail["short_cost"]))
        parts.append(words("besides_short", cost=cost)["zh"] if scaled else words("besides_same")["zh"])
        return "\uff1b".join(parts)

    def judged(self) -> Html:
        heads = [
            words("candidate"),
            *(
                Heading(said=words(key), number=True)
                for key in ("factor", "gain", "interval", "far", "needles", "short")
            ),
            words("proven"),
        ]
        rows = []
        for name in self.order:
            one = self.found["judged"][name]
            candidate = one["candidate"]
            state = "yes_better" if name in self.said["proven"] else "not_better"
            rows.append(
                [
                    element("strong", name) if name == self.said["winner"] and name in self.said["tied"] else name,
                    words("stopped") if candidate["factor"] >= STILL else f"{candidate['factor']:.4g}",
                    *self._measured(one),
                    words(state if candidate["text"] == "whole" else "reference"),
                ]
            )
        return table(heads, rows, label=words("judged_title"), stacks=True)

    def gains(self, language: str) -> Chart:
        """Each at the lengths that it was measured at."""
        lengths, lines = _lengths(self.first), []
        for name in reversed(self.order):
            one = self.found["judged"][name]
            each = [interval(at(one["tail"]["gain"], length)) for length in _lengths(one)]
            ours = name == self.name
            line = Line(
                x=_lengths(one),
                y=[one.mean for one in each],
                low=[one.low for one in each] if ours else None,
                high=[one.high for one in each] if ours else None,
                label=name,
                tone=self.tones[name],
                dots=True,
            )
            lines.append(line)
        ticks = [(float(length), f"{length:,}") for length in lengths]
        across = Axis(
            low=min(lengths[0], self.found["trained"]) * 0.9,
            high=lengths[-1] * 1.1,
            label=words("context")[language],
            log=True,
            ticks=ticks,
        )
        axis = up(lines, words("gain_axis")[language], zero=True)
        marks = [Level(axis="y", at=0.0), self._level(language), *lines]
        about = words("gains_about", winner=self.name)[language]
        return Chart(title=words("gains_title")[language], about=about, panels=[Panel(x=across, y=axis, marks=marks)])

    def _level(self, language: str) -> Level:
        return Level(axis="x", at=self.found["trained"], label=words("trained")[language])

    def where(self, language: str) -> Chart:
        lines = []
        for name in reversed(self.order):
            losses = self.found["judged"][name]["by_position"]
            if losses:
                x = [self.found["to"] * (part + 0.5) / len(losses) for part in range(len(losses))]
                lines.append(Line(x=x, y=losses, label=name, tone=self.tones[name]))
        panel = Panel(
            x=Axis(low=0, high=self.found["to"], label=words("position")[language]),
            y=up(lines, words("nats")[language]),
            marks=[self._level(language), *lines],
        )
        about = words("where_about", parts=len(lines[0].y), read=2)[language]
        return Chart(title=words("where_title")[language], about=about, panels=[panel])

    def map(self, language: str) -> Chart:
        found = {name: self.found["judged"][name]["needles"] for name in reversed(self.order)}
        last = {name: each[-1] for name, each in found.items() if each}
        rows = [one["by_depth"] for one in last.values()]
        ticks = [(number + 0.5, name) for number, name in enumerate(last)]
        panel = Panel(
            x=Axis(low=0, high=len(rows[0]), label=words("depth")[language], ticks=[]),
            y=Axis(low=0, high=len(rows), ticks=ticks),
            marks=[Heat(rows=rows, low=0, high=1, scale="rising")],
        )
        one = next(iter(last.values()))
        about = words("map_about", length=f"{one['length']:,}", passes=one["passes"])[language]
        height = 1.2 + 0.3 * len(rows)
        return Chart(title=words("map_title")[language], about=about, panels=[panel], height=height)

    def pairs(self, language: str) -> Chart:
        divisors = {one["name"]: one["divisors"] for one in self.found["candidates"]}
        whole = [name for name in self.order if self.found["judged"][name]["candidate"]["text"] == "whole"]
        lines = [
            Line(
                x=list(range(len(divisors[name]))),
                y=[min(value, MOST) for value in divisors[name]],
                label=name,
                tone=self.tones[name],
            )
            for name in reversed(whole)
        ]
        base, width = self.found["rope"]["base"], self.found["rope"]["width"]
        turns = [self.found["trained"] * base ** (-2 * i / width) / (2 * 3.141592653589793) for i in range(width // 2)]
        first = next((i for i, one in enumerate(turns) if one < 1), None)
        level = [] if first is None else [Level(axis="x", at=first - 0.5, label=words("unfinished")[language])]
        high = max(max(line.y) for line in lines)
        panel = Panel(
            x=Axis(low=-0.5, high=width // 2 - 0.5, label=words("pair")[language]),
            y=Axis(low=0.9, high=max(2.0, high * 1.15), label=words("divisor")[language], log=True),
            marks=[*level, *lines],
        )
        about = words("pairs_about", most=f"{MOST:g}")[language]
        return Chart(title=words("pairs_title")[language], about=about, panels=[panel])

    def rounds(self) -> Html:
        rounds = self.found["rounds"]
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

    def searched(self, searched: Mapping[str, Any]) -> Html:
        title, select = words("searched_title"), searched["select"]
        number, what = Heading(said=words("value"), number=True), words("number")
        numbers = [[words(f"ramp_{name}"), f"{value:.4g}"] for name, value in searched["ramp"].items()]
        # Of equal ones a formula stands first, and then nothing is refined.
        tried = "no_step" if min(select, key=select.__getitem__) == "ramp" else "not_refined"
        state = "taken" if searched["refined"] else "not_taken" if "refined" in select else tried
        about = words(
            "searched_about",
            settings=len(searched["trials"]),
            given_up=sum(one["value"] is None for one in searched["trials"]),
            passes=searched["passes"],
            refined=words(f"refined_{state}"),
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

    def tuned(self, tuned: Mapping[str, Any]) -> Html:
        title, start = words("tuned_title"), tuned["start"]
        numbers = [
            Heading(said=words(key), number=True) for key in ("gain", "interval", "far", "needles", "short")
        ]  # fmt: skip
        rows = [
            [name, *self._measured(one)]
            for name, one in ((words("tuned_name"), tuned["judged"]), (start, self.found["judged"][start]))
        ]
        about = words(
            "tuned_about", steps=f"{tuned['steps']:,}", minutes=f"{tuned['seconds'] / 60:.1f}", start=start,
            texts=tuned["texts"], alike=tuned.get("alike", 0), trained=f"{self.found['trained']:,}", to=self.to,
        )  # fmt: skip
        made = table([words("candidate"), *numbers], rows, label=title, stacks=True)
        return html([element("h2", title), element("p", about), made])

    def tuned_verdict(self, tuned: Mapping[str, Any]) -> Html:
        """Beside the verdict on the formulas, since it may say to take other weights."""
        kind, over = tuned["kind"].replace(" ", "_"), interval(tuned["over"])
        said = words(f"tuned_{kind}", start=tuned["start"], over=str(over), count=over.documents)
        return verdict(said, good={"take": True, "crop better": False, "worse": False}.get(tuned["kind"]))

    def _measured(self, one: Mapping[str, Any]) -> list[str]:
        gain, tail = self._gain(one), one["tail"]
        far, cost = tail["far_tokens"], tail["short_cost"]
        return [
            signed(gain.mean),
            ends(gain),
            "" if far is None else signed(interval(far).mean),
            f"{one['needles'][-1]['found']:.0%}" if one["needles"] else "",
            signed(interval(cost).mean) if cost and one["candidate"]["scaling"] is not None else "",
        ]

    def written(self) -> Html:
        written, tuned = self.found["written"], self.found.get("tuned")
        if written is None:
            return html([element("h2", words("commands_title")), element("p", self._not_written(tuned))])
        one = tuned["judged"] if tuned and tuned["kind"] == "take" else self.first
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
                    element("p", words("proof_about", to=self.to)),
                    table([words("engine"), *numbers, words("against")], proofs, label=proof, stacks=True),
                ]
                if proofs
                else None,
                element("h2", words("commands_title")),
                [element("pre", line) for line in written["commands"].values()],
            ]
        )

    def _not_written(self, tuned: Mapping[str, Any] | None) -> dict[str, str]:
        """A verdict that asks for a change is left to the reader where the model is ropewalk's own, and by a campaign,
        which only measures."""
        # Before this was kept, what was not written was ropewalk's own.
        native = self.found.get("native", True)
        if tuned and tuned["kind"] == "take":
            return words("own_tuned" if native else "measured_tuned")
        scaling = None if self.said["winner"] == "crop" else self.first["candidate"]["scaling"]
        if scaling is not None:
            return words("own_model" if native else "measured_model", scaling=json.dumps(scaling))
        return words("undecided" if self.said["kind"] == "too few" else "nothing_written")

    def how(self) -> Html:
        found = self.found
        rows = [
            [words(name), one["name"], element("code", one["sha256"][:16])]
            for name, each in found["sets"].items()
            for one in each
        ]
        title = words("how_title")
        return html(
            [
                element("h2", title),
                element("p", words("how", tail=f"{found['tail_tokens']:,}")),
                element("p", words("rule", rule=found["rule"])),
                [element("p", words("not_measured", what=what), class_="soft") for what in found["not_measured"]],
                [
                    element("p", words("not_tried", name=name, why=why), class_="soft")
                    for name, why in found["not_tried"].items()
                ],
                fold(title, table([words("set"), words("document"), "SHA-256"], rows, label=title)),
                element("p", words("again", digest=found["digest"][:16]), class_="soft"),
            ]
        )


def _lengths(one: Mapping[str, Any]) -> list[int]:
    return sorted(int(length) for length in one["tail"]["gain"])


def _share(one: Mapping[str, Any]) -> str:
    return f"{one['found']:.0%} [{one['low']:.0%}, {one['high']:.0%}]"


def _allowed(one: Mapping[str, Any]) -> str:
    """In the mean and of one token; an older result has the first alone."""
    return "; ".join(f"{one[key]:g}" for key in ("bound", "most_bound") if key in one)


def _against(one: Mapping[str, Any]) -> str | dict[str, str]:
    return words("proof_failed", against=one["against"]) if one.get("failed") else one["against"]


def _round(one: Mapping[str, Any]) -> dict[str, str]:
    kind = one["name"].partition(" at ")[0].replace(" ", "_")
    return words(f"round_{kind}", length=f"{one['length']:,}")
