"""An engine's answer while its rule is being followed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ropewalk.checkpoints.engines.base import Disagreement, LayerReading, Reading, close
from ropewalk.checkpoints.engines.besides import FREQUENCIES, GAINS, SECTIONS, Besides
from ropewalk.checkpoints.engines.facts import Subject


@dataclass
class Draft:
    """A reading while its rule is being followed; the same note for several layers is kept once."""

    notes: dict[Disagreement, None] = field(default_factory=dict)
    ignored: dict[str, None] = field(default_factory=dict)
    layers: list[LayerReading] = field(default_factory=list)
    besides: Besides | None = None
    unknown: tuple[str, ...] = ()

    def note(self, what: str, why: str, issue: str = "", *, about: str = FREQUENCIES, counts: bool = True) -> None:
        self.notes.setdefault(Disagreement(what=what, why=why, issue=issue, about=about, counts=counts))

    def whole(self, subject: Subject, why: str, issue: str) -> LayerReading:
        """The engine rotates the whole head where the checkpoint says a part of it."""
        width, key = subject.layer.head_width, subject.partial
        self.ignore(str(key))
        self.note(f"rotates all {width} features of a head instead of {subject.layer.rotary_width}", why, issue)
        self.layers.append(found := subject.numbers_of(subject.layer.scaling, width=width))
        return found

    def other_gain(self, used: float, stated: float, why: str, issue: str = "", *, ignored: Sequence[str] = ()) -> None:
        """Says so where the engine's gain on cos and sin is not the stated one, and which keys it then left unread."""
        if close(used, stated):
            return
        self.ignore(*ignored)
        self.note(f"multiplies cos and sin by {used:.4f} instead of {stated:.4f}", why, issue, about=GAINS)

    def arranged(self, subject: Subject, besides: Besides) -> Besides:
        """M-RoPE's sections arranged as `mrope_interleaved` says, whose default is blocks."""
        word = "interleaved" if subject.block.get("mrope_interleaved") is True else "blocks"
        found = tuple(one and f"{one.rpartition(' ')[0]} {word}" for one in besides.sections)
        if found != besides.sections:
            self.note(
                f"arranges M-RoPE's sections as {word}; texts without images are not touched",
                "it reads mrope_interleaved, which the model's code in transformers does not read",
                about=SECTIONS,
            )
        return replace(besides, sections=found)

    def ignore(self, *keys: str) -> None:
        self.ignored.update(dict.fromkeys(keys))

    def reading(self, engine: str, version: str, *, switch: str = "static", length: int | None = None) -> Reading:
        return Reading(
            engine=engine,
            version=version,
            layers=tuple(self.layers),
            switch=switch,
            length=length,
            ignored=tuple(self.ignored),
            notes=tuple(self.notes),
            besides=self.besides,
            unknown=self.unknown,
        )
