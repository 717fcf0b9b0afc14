"""MLX-LM, read in 0.32.2: utils.py, models/base.py, models/rope_utils.py, models/*.py; run on mlx-cpu 0.32.4.

It reads config.json as it stands. A dataclass of each model's file takes the keys that it names and drops the rest
silently, so that a config whose base or scaling is in rope_parameters alone, as transformers 5 saves it, gets the
file's default base and no scaling, unless the file names rope_parameters; where there is no default, it does not load.
YaRN rounds the ends of its ramp, and its gain is the ratio of both mscale keys; LongRoPE has its long list alone;
dynamic NTK's base is that of each call's length. Windows are those of the file: of layer_types, of a pattern, or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ropewalk.checkpoints.architectures.generated import engine_names
from ropewalk.checkpoints.engines.base import LayerReading, Reading, close, gain, yarn_of
from ropewalk.checkpoints.engines.besides import GAINS, SECTIONS, STILL, TEMPERATURE, WINDOWS, Besides
from ropewalk.checkpoints.engines.draft import Draft
from ropewalk.checkpoints.engines.facts import Facts, Subject
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.scaling import Dynamic, LongRoPE, YaRN
from ropewalk.scaling.longrope import longrope_gain

ENGINE, VERSION = "MLX-LM", "0.32.2"

BASES = ("rope_theta", "rotary_emb_base")
PARTS = ("partial_rotary_factor", "rotary_pct", "rotary_dim")
TRAINED_KEY = "original_max_position_embeddings"
TRAINED = 4096
"""YaRN's trained length where the keys do not state it."""


def read(resolved: Resolved) -> Reading:
    facts = Facts(resolved)
    if facts.gguf:
        return Reading(engine=ENGINE, version=VERSION, refusal="it does not read GGUF")
    file = _file(facts)
    if file is None:
        return Reading(engine=ENGINE, version=VERSION, refusal=f"no file for model type {facts.model_type!r}")
    rule = Rule(facts, file)
    if (refusal := rule.refusal()) is not None:
        return Reading(engine=ENGINE, version=VERSION, refusal=refusal)
    rule.draft.besides = rule.besides()
    for subject in facts.subjects():
        rule.draft.layers.append(rule.layer(subject))
    return rule.draft.reading(ENGINE, VERSION, switch=rule.switch, length=facts.longest)


def _file(facts: Facts) -> str | None:
    """The file of models/ that has the text part; None where there is none for the model type."""
    names = engine_names("mlx_lm")
    files = names["files"]
    file = names["remapped"].get(facts.model_type, facts.model_type)
    if file not in files:
        return None
    if not (delegates := files[file]["text"]):
        return file
    inner = facts.text.get("model_type")
    return inner if inner in delegates else delegates[-1]


class Rule:
    """What one file of models/ does with a config."""

    def __init__(self, facts: Facts, file: str) -> None:
        self.facts, self.file = facts, file
        self.known: Mapping[str, Any] = engine_names("mlx_lm")["files"][file]
        self.keys: Mapping[str, Any] = self.known["keys"]
        self.mlx = facts.row.mlx
        self.draft, self.switch = Draft(), "static"

    @property
    def reads_new(self) -> bool:
        return "rope_parameters" in self.keys and bool(self.facts.new)

    def refusal(self) -> str | None:
        text = self.facts.text
        for key in (*BASES, *PARTS, "rope_local_base_freq", "head_dim", "rope_parameters"):
            if self.keys.get(key) == "needed" and text.get(key) is None:
                moved = key not in ("rope_parameters", "head_dim")  # by transformers 5, into rope_parameters
                where = ", and does not look for it in rope_parameters" if moved else ""
                return f"its {self.file}.py needs {key} at the top of the config{where}"
        if (key := next((key for key in self.mlx.needs_within if key not in self.facts.new), None)) is not None:
            return f"its {self.file}.py needs {key} within rope_parameters"
        for subject in self.facts.subjects():
            scaling = subject.layer.scaling
            if self.mlx.needs_scaling and not self.facts.old:
                return f"its {self.file}.py needs rope_scaling with a factor"
            if scaling is None or not self.reaches():
                continue
            if self.mlx.takes is not None and not self.mlx.drops_others and scaling.kind not in self.mlx.takes:
                return f"its {self.file}.py takes {' and '.join(self.mlx.takes)} scaling, not {scaling.kind!r}"
            if self.mlx.needs_type and "type" not in self.facts.old:
                return f"its {self.file}.py needs rope_scaling.type, which newer configs call rope_type"
            if isinstance(scaling, LongRoPE) and not self.trained():
                return f"its {self.file}.py needs {TRAINED_KEY} {self.place()}"
        return None

    def block(self) -> Mapping[str, Any]:
        return self.facts.new if self.reads_new and not self.facts.old else self.facts.old

    def reaches(self) -> bool:
        """Whether a scaling of the config reaches the rotation at all."""
        stated = bool(self.facts.old) and "rope_scaling" in self.keys
        return bool(self.known["scaling"]) and (stated or (self.reads_new and not self.mlx.new_base_alone))

    def layer(self, subject: Subject) -> LayerReading:
        base, width = self.base(subject), self.width(subject)
        scaling = subject.layer.scaling
        if scaling is None:
            return subject.numbers_of(None, base=base, width=width)
        if not self.reaches():
            self.draft.ignore("rope_scaling" if self.facts.old else "rope_parameters")
            self.draft.note(f"uses plain RoPE, without {scaling.kind}", self._unread(), "mlx-lm#1563")
            return subject.numbers_of(None, base=base, width=width)
        if self.mlx.takes is not None and scaling.kind not in self.mlx.takes:
            self.draft.ignore("rope_scaling")
            why = f"its {self.file}.py takes {' and '.join(self.mlx.takes)} scaling, and drops others with a warning"
            self.draft.note(f"uses plain RoPE, without {scaling.kind}", why)
            return subject.numbers_of(None, base=base, width=width)
        if isinstance(scaling, YaRN):
            return self.yarn(subject, scaling, base, width)
        if isinstance(scaling, LongRoPE):
            return self.longrope(subject, scaling, base, width)
        if isinstance(scaling, Dynamic):
            return self.dynamic(subject, scaling, base, width)
        return subject.numbers_of(scaling, base=base, width=width)

    def _unread(self) -> str:
        if not self.known["scaling"]:
            return f"its {self.file}.py passes no scaling on"
        return f"its {self.file}.py reads rope_scaling, and not rope_parameters, where transformers 5 writes it"

    def base(self, subject: Subject) -> float:
        planned = subject.layer.base
        assert planned is not None
        key = next((key for key in BASES if key in self.keys), None)
        if subject.layer.window is not None and "rope_local_base_freq" in self.keys:
            key = "rope_local_base_freq"
        if self.reads_new or key is None:
            return planned
        stated = self.facts.text.get(key)
        used = float(stated if isinstance(stated, int | float) else self.keys[key] or planned)
        if not close(used, planned):
            self.draft.ignore("rope_parameters")
            why = (
                f"its {self.file}.py reads {key} at the top of the config, and has a default for where it is not there"
            )
            self.draft.note(f"rotates with theta {used:,.10g} instead of {planned:,.10g}", why, "mlx-lm#1563")
        return used

    def width(self, subject: Subject) -> int | None:
        """Rotated features, where they are not the plan's."""
        key = next((key for key in PARTS if key in self.keys), None)
        # A share that the config leaves out is the default of each: transformers has 0.5 for phi, and its file 0.4.
        left_out = key in self.facts.row.defaults and self.facts.text.get(str(key)) is None
        if self.reads_new or (subject.partial is None and not left_out):
            return None
        head = subject.layer.head_width
        assert head is not None
        stated = None if key is None else self.facts.text.get(key, self.keys[key])
        used = head if stated is None else int(stated if key == "rotary_dim" else head * stated)
        if used == subject.layer.rotary_width:
            return None
        where = f"does not read {subject.partial} there"
        if subject.partial is None:
            where = f"takes {stated:g} where {key} is not stated"
        else:
            self.draft.ignore(subject.partial)
        self.draft.note(
            f"rotates {used} features of a head instead of {subject.layer.rotary_width}", f"its {self.file}.py {where}"
        )
        return used

    def yarn(self, subject: Subject, scaling: YaRN, base: float, width: int | None) -> LayerReading:
        block = self.block()
        trained = block.get(TRAINED_KEY, TRAINED)
        one, other = (block.get(key, default) for key, default in (("mscale", 1.0), ("mscale_all_dim", 0.0)))
        bare = {"attention_factor": None, "mscale": None, "mscale_all_dim": None}
        used = yarn_of(scaling, dialect="hf", truncate=True, trained=trained, **bare)
        rotary = gain(scaling.factor, one) / gain(scaling.factor, other)
        on_scores = gain(scaling.factor, other) ** 2 if self.known["gain_on_scores"] and other else 1.0
        if trained != scaling.trained:
            self.draft.note(
                f"ramps YaRN as for a trained length of {trained:,} instead of {scaling.trained:,}",
                "without original_max_position_embeddings it takes 4,096",
            )
        if not scaling.truncate:
            self.draft.ignore("truncate")
            self.draft.note("rounds the ends of YaRN's ramp, though truncate is false", "its YarnRoPE does not take it")
        why = "its YarnRoPE takes the ratio of both mscale keys, with defaults 1 and 0, and no attention_factor"
        self.draft.other_gain(rotary, scaling.rotary_gain, why, ignored=["attention_factor"])
        if not close(on_scores, scaling.logit_gain):
            self.draft.note(
                "leaves out YaRN's gain on the scores" if on_scores == 1 else f"multiplies scores by {on_scores:.4f}",
                f"its {self.file}.py {'applies' if on_scores != 1 else 'does not apply'} mscale_all_dim",
                about=GAINS,
            )
        return subject.numbers_of(used, base=base, width=width, rotary_gain=rotary, logit_gain=on_scores)

    def trained(self) -> int:
        """Of LongRoPE; 0 where it is not stated."""
        top = self.keys.get(TRAINED_KEY)
        found = self.block().get(TRAINED_KEY) if top is None else self.facts.text.get(TRAINED_KEY, top)
        return found if isinstance(found, int) else 0

    def place(self) -> str:
        return "within rope_scaling" if self.keys.get(TRAINED_KEY) is None else "at the top of the config"

    def longrope(self, subject: Subject, scaling: LongRoPE, base: float, width: int | None) -> LayerReading:
        trained = self.trained()
        ratio = (self.facts.longest or scaling.trained) / trained
        rotary = self.block().get("long_mscale") or longrope_gain(ratio, trained)
        if scaling.switches:
            self.draft.note(
                "uses LongRoPE's long list for every text, short ones too",
                "its SuScaledRoPE does not read the short one",
            )
        why = "its gain is that of max_position_embeddings / original_max_position_embeddings, or long_mscale"
        self.draft.other_gain(rotary, scaling.rotary_gain, why)
        long = subject.numbers_of(scaling, base=base, width=width).stretched
        return subject.numbers_of(scaling, base=base, width=width, frequencies=long, rotary_gain=rotary)

    def dynamic(self, subject: Subject, scaling: Dynamic, base: float, width: int | None) -> LayerReading:
        trained = self.facts.longest or scaling.trained
        self.switch = "in every call, by its length"
        self.draft.note(
            f"chooses dynamic NTK's base anew in every call longer than {trained:,} tokens",
            "cached keys keep the base they were rotated under",
        )
        return subject.numbers_of(Dynamic(factor=scaling.factor, trained=trained), base=base, width=width)

    def besides(self) -> Besides:
        stated = self.facts.besides()
        if any(stated.windows):
            stated = self.windows(stated)
        unread = {STILL: any(stated.still) and not self.known["still"]}
        unread[TEMPERATURE] = any(stated.temperature) and not self.known["temperature"]
        self.draft.unknown = tuple(aspect for aspect, unknown in unread.items() if unknown)
        if any(stated.sections):
            self.draft.note(
                "runs the text part alone, with one axis of positions; texts without images are not touched",
                "images and M-RoPE's other axes are mlx-vlm's",
                about=SECTIONS,
                counts=False,
            )
        return stated

    def windows(self, stated: Besides) -> Besides:
        kinds = self.facts.text.get("layer_types")
        width = max(window for window in stated.windows if window)
        pattern = self.facts.text.get("sliding_window_pattern", self.keys.get("sliding_window_pattern"))
        if "sliding_window" not in self.keys:
            if "attention_chunk_size" in self.keys:
                return stated
            found: tuple[int | None, ...] = stated.nothing
            why = f"its {self.file}.py has no windows"
        elif "layer_types" in self.keys:
            if isinstance(kinds, list) or not self.known["full_without_types"]:
                return stated
            found, why = (
                stated.nothing,
                f"its {self.file}.py has windows in the layers that layer_types names, and in no other",
            )
        elif isinstance(pattern, int) and pattern > 0:
            found = tuple(None if (number + 1) % pattern == 0 else width for number in range(len(stated.windows)))
            why = f"its {self.file}.py goes by sliding_window_pattern, and does not read layer_types"
        else:
            return stated
        if found != stated.windows:
            self.draft.ignore("layer_types" if any(found) else "sliding_window")
            self.draft.note(
                "has windows in other layers than layer_types says" if any(found) else "sees all tokens in every layer",
                why,
                about=WINDOWS,
            )
        return replace(stated, windows=found)
