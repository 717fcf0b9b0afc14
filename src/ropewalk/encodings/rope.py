"""RoPE: queries and keys are rotated by angles proportional to their positions (Su et al., 2021).

    (a_i, b_i) -> (a_i cos p w_i - b_i sin p w_i,  b_i cos p w_i + a_i sin p w_i),   w_i = base^(-2i/R)
                                                                                arXiv:2104.09864, section 3.2
so that q_m . k_n depends on m - n alone. What a checkpoint fixes, and what configs often fail to say:

    layout        x: [x0 x1 x2 x3]   pairs: (x0 x1)(x2 x3), the paper's;   half: (x0 x2)(x1 x3), Llama's in transformers
    rotary_width  R: only the first R features turn, and the exponent's denominator is R (GPT-NeoX, Phi, GLM)
    scaling       which frequencies, and the gains on cos and sin and on the scores (see ropewalk.scaling)
    sections      several axes: which frequencies turn by which axis (M-RoPE; images)
    arithmetic    exact: the real numbers; float32: bit for bit what the training framework computed, taken as exact

Plain RoPE does not extrapolate: past the trained length its slow pairs meet angles they never saw.
"""

from __future__ import annotations

import json
import operator
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor

from ropewalk.encodings.base import Claims, Encoding, Role
from ropewalk.phase import cos_sin, phase
from ropewalk.plan import LayerPlan, for_length, rope_layer
from ropewalk.positions import FARTHEST, Positions
from ropewalk.rotation import rotate
from ropewalk.scaling import AnyScaling
from ropewalk.scaling.exact import PI
from ropewalk.torch_private import constant, real

Arrangement = Literal["blocks", "interleaved", "axial"]


def _exact(value: Any) -> Decimal:
    """A float is the binary number it is; pydantic would take the shortest decimal that rounds to it."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        raise ValueError("a frequency is a number, or a decimal as text")
    try:
        frequency = Decimal(value.strip() if isinstance(value, str) else value)
    except InvalidOperation:
        raise ValueError(f"{value!r} is no decimal; write for example '0.01'") from None
    if not (frequency.is_finite() and 0 <= frequency < FASTEST):
        raise ValueError(f"frequency {value} is outside [0, 2 pi); give radians per position, 0 for a pair that stays")
    if len(str(frequency)) > LONGEST_DECIMAL:
        raise ValueError(f"a frequency of {len(str(frequency))} characters; {LONGEST_DECIMAL} are enough for any float")
    return frequency


Frequency = Annotated[Decimal, BeforeValidator(_exact)]
FASTEST = 2 * PI
LONGEST_DECIMAL = 1100


class RoPE(Encoding):
    """Rotates queries and keys by angles proportional to their positions, so that scores depend on differences alone.

    RoPE(head_width=64, base=500_000, scaling=YaRN(factor=4, trained=8192))

    head_width: features of one head, all of which turn unless rotary_width says how many. base: of the frequencies.
    layout: `half` pairs feature i with i + R/2 (Llama), `pairs` neighbours (GPT-J). scaling: see `ropewalk.scaling`.
    sections: frequencies of each axis, for positions on several axes. frequencies: radians per position of each pair,
    in place of base and scaling, as numbers or as exact decimals: RoPE(head_width=4, frequencies=["1", "0.01"]).
    """

    class Config(Encoding.Config):
        kind: Literal["rope"] = "rope"
        base: float = Field(default=10_000.0, gt=1, le=1e12)
        layout: Literal["half", "pairs"] = "half"
        rotary_width: int | None = Field(default=None, gt=0, multiple_of=2)
        """R, features of each head that turn; all of them unless given."""
        scaling: AnyScaling | None = None
        frequencies: tuple[Frequency, ...] | None = None
        """Radians per position of each pair, in place of base and scaling. Text is an exact decimal, a float the number
        that it is."""
        sections: tuple[Annotated[int, Field(ge=0)], ...] | None = None
        """Frequencies that turn by each axis; None: one axis turns them all."""
        arrangement: Arrangement = "blocks"
        """blocks: sections one after the other on one ladder of frequencies; interleaved: axes take turns (Qwen3-VL);
        axial: blocks, each with a ladder of its own (2-D images)."""
        arithmetic: Literal["exact", "float32"] = "exact"
        precision: Literal["float32", "float64"] = "float32"
        """Of the cos and sin tables."""

        alternatives: ClassVar = (("base", "frequencies"), ("scaling", "frequencies"), ("arithmetic", "frequencies"))

        @model_validator(mode="after")
        def _one_source_of_frequencies(self) -> Self:
            if self.frequencies is None:
                return self
            given = {name: getattr(self, name) for name in ("base", "scaling", "arithmetic")}
            defaults = {name: type(self).model_fields[name].default for name in given}
            other = [f"{name}={given[name]!r}" for name in given if given[name] != defaults[name]]
            if other:
                raise ValueError(
                    f"frequencies of one's own have no {' or '.join(given)}, and {', '.join(other)} was given; leave "
                    "one of them out"
                )
            return self

        @model_validator(mode="after")
        def _arrangement_needs_sections(self) -> Self:
            if self.arrangement != "blocks" and self.sections is None:
                raise ValueError(f"arrangement={self.arrangement} orders sections: give sections, one number an axis")
            if self.arrangement == "interleaved" and len(self.sections or ()) != 3:
                raise ValueError(f"arrangement=interleaved is defined on three axes, sections={self.sections}")
            return self

    config: Config
    one_rotation = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.rotary_width > self.head_width or self.rotary_width % 2:
            even = min(self.rotary_width, self.head_width) // 2 * 2
            raise ValueError(
                f"rotary_width={self.rotary_width} must be even and at most head_width={self.head_width}; write "
                f"rotary_width: {even}, or a head_width that is even"
            )
        own = self.config.frequencies
        if own is not None and len(own) != self.rotary_width // 2:
            raise ValueError(
                f"frequencies: {len(own)} given, {self.rotary_width // 2} pairs of features turn (rotary width "
                f"{self.rotary_width}); give one for each pair"
            )
        self._axis_of = _axis_of(self.config, self.rotary_width // 2)
        # A length-dependent scaling has no frequencies before it knows the limit; all others are settled here, once.
        plan = self.layer_plan()
        self._settled = (plan.turns, plan.rotary_gain) if plan.resolved else None
        self.claims = Claims(shift_invariant=True, keeps_norm=plan.rotary_gain == 1, needs_limit=not plan.resolved)

    @property
    def rotary_width(self) -> int:
        return self.head_width if self.config.rotary_width is None else self.config.rotary_width

    @property
    def axes(self) -> int | None:
        return None if self.config.sections is None else len(self.config.sections)

    @property
    def logit_gain(self) -> float:
        """What attention multiplies every score by."""
        return 1.0 if self.config.scaling is None else self.config.scaling.logit_gain

    def layer_plan(self, window: int | None = None) -> LayerPlan:
        config = self.config
        return rope_layer(
            config.base if config.frequencies is None else None,
            self.rotary_width,
            config.scaling,
            config.arithmetic,
            layout=config.layout,
            head_width=self.head_width,
            ladders=tuple(2 * count for count in config.sections or ()) if config.arrangement == "axial" else (),
            window=window,
            own=config.frequencies,
            settings=json.dumps({"sections": config.sections, "arrangement": config.arrangement}),
        )

    def resolved(self, limit: int) -> tuple[tuple[int, ...], float]:
        """The turns and the rotary gain for positions below this limit: plain numbers, so a compiler bakes them in.

        Read as an attribute, they are guarded: another encoding of the same shape is compiled anew.
        """
        # `index` makes a compiler take a symbolic limit for the number it is.
        return _for_length(self, operator.index(limit)) if self._settled is None else self._settled

    def phases(self, at: Positions) -> Tensor:
        """(B, L, R/2) int64: the exact phase of every pair."""
        return self._phases(at, self.resolved(at.limit)[0])

    def _phases(self, at: Positions, turns: tuple[int, ...]) -> Tensor:
        if self._axis_of is None:
            return phase(at.index, turns)
        index = at.index[..., torch.tensor(self._axis_of, device=at.index.device)]
        return index * torch.tensor(turns, dtype=torch.int64, device=index.device)

    def forward(self, at: Positions) -> tuple[Tensor, Tensor]:  # cos, sin (B, 1, L, R/2), the gain folded in
        turns, gain = self.resolved(at.limit)
        cos, sin = cos_sin(self._phases(at, turns)[:, None], getattr(torch, self.config.precision))
        return (cos, sin) if gain == 1 else (cos * gain, sin * gain)

    def rotate(self, x: Tensor, table: tuple[Tensor, Tensor], role: Role) -> Tensor:
        return rotate(x, *table, self.config.layout)

    def move(self, k: Tensor, delta: Tensor) -> Tensor:
        """The keys carry their gain already, so moving is a pure rotation, by exactly the angle of `delta`."""
        if self.claims.needs_limit:
            raise ValueError(
                "keys rotated under a length-dependent scaling cannot be moved without its limit; "
                "build the encoding from scaling.for_length(limit)"
            )
        turns, _ = self.resolved(FARTHEST)
        if self._axis_of is not None:
            raise ValueError("keys on several axes cannot be moved by one number; recompute them")
        cos, sin = cos_sin(phase(delta, turns)[:, None], getattr(torch, self.config.precision))
        return rotate(k, cos, sin, self.config.layout)


@constant
def _for_length(rope: RoPE, limit: int) -> tuple[tuple[int, ...], float]:
    """Under a length-dependent scaling. Not a method: a compiler guards the identity of a function's arguments, and
    nothing of the module whose method is marked as constant."""
    if limit == FARTHEST:
        raise ValueError(
            f"{rope.config.scaling!r} depends on the length: pass positions that declare it, at(..., limit=N)"
        )
    plan = real(lambda: for_length(rope.layer_plan(), limit))
    return plan.turns, plan.rotary_gain


def _axis_of(config: RoPE.Config, pairs: int) -> list[int] | None:
    """Which axis turns each frequency."""
    if config.sections is None:
        return None
    if sum(config.sections) != pairs:
        raise ValueError(
            f"sections {config.sections} add up to {sum(config.sections)}, the head has {pairs} frequencies"
        )
    if config.arrangement != "interleaved":
        return [axis for axis, count in enumerate(config.sections) for _ in range(count)]
    _, height, width = config.sections
    reach = (0, 3 * height, 3 * width)
    return [i % 3 if i < reach[i % 3] else 0 for i in range(pairs)]
