"""What every part of the page of `ropewalk extend` reads: the result, the order of the finalists and their colours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.report.eval_page import at, interval, signed
from ropewalk.report.parts import Shown as Cell
from ropewalk.report.words import Words

words = Words("extend")
TONES = ("orange", "blue", "green", "violet", "gold", "ink", "soft")


class Shown:
    def __init__(self, found: Mapping[str, Any]) -> None:
        self.found = found
        self.to = f"{found['to']:,}"
        self.said = found["verdict"]
        every = found["judged"]
        # The best first; its colour is the same in every figure.
        self.order = sorted(every, key=lambda name: -self.gain(every[name]).mean)
        self.tones = dict(zip(self.order, TONES * len(self.order), strict=False))
        self.name = self.said["best"] if self.said["winner"] == "crop" else self.said["winner"]
        self.first = every[self.name]

    def gain(self, one: Mapping[str, Any]) -> Any:
        return interval(at(one["tail"]["gain"], self.found["to"]))

    def measured(self, one: Mapping[str, Any]) -> list[str | Cell]:
        """Gain with its interval, far tokens, needles and cost on short text: cells of a table."""
        gain, tail = self.gain(one), one["tail"]
        far, cost = tail["far_tokens"], tail["short_cost"]
        return [
            Cell(said=f"{signed(gain.mean)} [{signed(gain.low)},\u00a0{signed(gain.high)}]", value=gain.mean),
            "" if far is None else signed(interval(far).mean),
            "\u00a0/\u00a0".join(f"{each['found']:.0%}" for each in reversed(one["needles"])),
            signed(interval(cost).mean) if cost and one["candidate"]["scaling"] is not None else "",
        ]
