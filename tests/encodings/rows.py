"""One row for each encoding, or a few where its variants differ: how to build it, and its oracle for each site it uses.

Adding an encoding means one file in src/ropewalk/encodings and one row here; every test in this folder and in
tests/attention then runs on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from ropewalk import encodings
from ropewalk.encodings import Encoding
from tests.encodings import oracles

WIDTH, HEADS, KEY_HEADS, HEAD_WIDTH, LIMIT = 64, 4, 2, 16, 4096

Embed = Callable[[Encoding, list[float], int], list[float]]  # encoding, token vector, position
Rotate = Callable[[Encoding, list[float], int, str], list[float]]  # encoding, head vector, position, role
Bias = Callable[[Encoding, int, int, int], float]  # encoding, head, query position, key position


@dataclass(frozen=True)
class Row:
    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    embed: Embed | None = None
    rotate: Rotate | None = None
    bias: Bias | None = None
    note: str = ""
    loose: float = 1.0
    """Room beyond the usual bounds, for encodings whose scores grow so large that float32 has no digits left."""

    def __str__(self) -> str:
        return f"{self.kind}-{self.note}" if self.note else self.kind

    def build(self, seed: int = 0) -> Encoding:
        torch.manual_seed(seed)
        config = {"kind": self.kind, **self.settings}
        return encodings.build(config, width=WIDTH, heads=HEADS, head_width=HEAD_WIDTH)


def _add(of: Callable[[Encoding, int, int], float]) -> Embed:
    def embed(encoding: Encoding, x: list[float], position: int) -> list[float]:
        if encoding.config.combine == "concat":
            return x + [of(encoding, position, i) for i in range(WIDTH - len(x))]
        return [value + of(encoding, position, i) for i, value in enumerate(x)]

    return embed


def _sinusoidal(encoding: Encoding, position: int, feature: int) -> float:
    width = encoding.position_width
    if encoding.config.layout == "half":
        feature = 2 * (feature % (width // 2)) + feature // (width // 2)
    return oracles.sinusoid(position, feature, width, encoding.config.base)


def _scalar(encoding: Encoding, position: int, feature: int) -> float:
    return position / (LIMIT - 1) if encoding.config.form == "unit" else float(position)


def _learned(encoding: Encoding, position: int, feature: int) -> float:
    return encoding.weight[position + encoding.config.first_row, feature].item()


def _rope(frequencies: list[float], layout: str = "half", gain: float = 1.0) -> Rotate:
    def rotate(encoding: Encoding, x: list[float], position: int, role: str) -> list[float]:
        return oracles.rotate(x, [position * omega for omega in frequencies], layout, gain)

    return rotate


def _xpos(encoding: Encoding, x: list[float], position: int, role: str) -> list[float]:
    layout, sign = encoding.config.layout, 1 if role == "query" else -1
    turned = oracles.rotate(x, [position * omega for omega in oracles.frequencies(1e4, HEAD_WIDTH)], layout)
    pair = [i // 2 if layout == "pairs" else i % (HEAD_WIDTH // 2) for i in range(HEAD_WIDTH)]
    power = sign * (position - LIMIT // 2) / encoding.config.fade
    return [value * oracles.xpos_rate(i, HEAD_WIDTH) ** power for value, i in zip(turned, pair, strict=True)]


def _temperature(encoding: Encoding, x: list[float], position: int, role: str) -> list[float]:
    c = encoding.config
    by = oracles.temperature(c.form, position, c.trained, c.strength) if role == "query" else 1.0
    return [value * by for value in x]


def _alibi(encoding: Encoding, head: int, i: int, j: int) -> float:
    return -oracles.alibi_slope(head, HEADS) * abs(i - j)


def _t5(encoding: Encoding, head: int, i: int, j: int) -> float:
    c = encoding.config
    return encoding.weight[oracles.t5_bucket(j - i, c.buckets, c.farthest, c.bidirectional), head].item()


def _kerple(encoding: Encoding, head: int, i: int, j: int) -> float:
    scale, rate = max(encoding.scale[head].item(), 0.01), max(encoding.rate[head].item(), 0.01)
    if encoding.config.form == "log":
        return -scale * math.log(1 + rate * abs(i - j))
    return -scale * float(abs(i - j)) ** min(rate, 2.0)


def _fire(encoding: Encoding, head: int, i: int, j: int) -> float:
    slope, threshold = abs(encoding.slope.item()), abs(encoding.threshold.item())
    outer = [*encoding.outer[head].tolist(), encoding.offset[head].item()]
    return oracles.fire((i, j), slope, threshold, encoding.inner.tolist(), outer)


def _both(first: Rotate, then: Rotate) -> Rotate:
    def rotate(encoding: Encoding, x: list[float], position: int, role: str) -> list[float]:
        return then(encoding.parts[1], first(encoding.parts[0], x, position, role), position, role)

    return rotate


PLAIN = oracles.frequencies(1e4, HEAD_WIDTH)
YARN = {"kind": "yarn", "factor": 4, "trained": 512}
DYNAMIC = {"kind": "dynamic", "factor": 2, "trained": 512}
FADE = {"kind": "temperature", "form": "llama4", "trained": 32}

ROWS = [
    Row("none"),
    Row("scalar", {"form": "unit"}, embed=_add(_scalar), note="unit"),
    Row("scalar", {"form": "integer", "combine": "concat", "share": 1}, embed=_add(_scalar), note="integer", loose=1e4),
    Row("sinusoidal", embed=_add(_sinusoidal)),
    Row("sinusoidal", {"layout": "half", "combine": "concat"}, embed=_add(_sinusoidal), note="half-concat"),
    Row("learned", {"longest": LIMIT}, embed=_add(_learned)),
    Row("learned", {"longest": LIMIT, "first_row": 2, "combine": "concat"}, embed=_add(_learned), note="offset"),
    Row("t5", bias=_t5),
    Row("t5", {"bidirectional": True}, bias=_t5, note="bidirectional"),
    Row("alibi", bias=_alibi),
    Row("rope", rotate=_rope(PLAIN)),
    Row("rope", {"layout": "pairs"}, rotate=_rope(PLAIN, "pairs"), note="pairs"),
    Row("rope", {"rotary_width": 8}, rotate=_rope(oracles.frequencies(1e4, 8)), note="partial"),
    Row(
        "rope",
        {"scaling": YARN},
        rotate=_rope(oracles.yarn(1e4, HEAD_WIDTH, 4, 512), gain=0.1 * math.log(4) + 1),
        note="yarn",
    ),
    Row("rope", {"scaling": DYNAMIC}, rotate=_rope(oracles.dynamic(1e4, HEAD_WIDTH, 2, 512, LIMIT)), note="dynamic"),
    Row("xpos", rotate=_xpos),
    Row("xpos", {"layout": "pairs"}, rotate=_xpos, note="pairs"),
    Row("kerple", bias=_kerple),
    Row("kerple", {"form": "power"}, bias=_kerple, note="power"),
    Row("fire", {"threshold": 24.0}, bias=_fire),
    Row("temperature", {"trained": 32}, rotate=_temperature, note="log-n"),
    Row("temperature", {"form": "llama4", "trained": 32}, rotate=_temperature, note="llama4"),
    Row("temperature", {"form": "ministral", "trained": 32}, rotate=_temperature, note="ministral"),
    Row(
        "chain",
        {"parts": ["rope", FADE]},
        rotate=_both(_rope(PLAIN), _temperature),
        note="rope-temperature",
    ),
    Row(
        "chain",
        {"parts": [{"kind": "learned", "longest": LIMIT}, "t5"]},
        embed=lambda encoding, x, position: _add(_learned)(encoding.parts[0], x, position),
        bias=lambda encoding, head, i, j: _t5(encoding.parts[1], head, i, j),
        note="learned-t5",
    ),
    Row(
        "chain",
        {"parts": ["rope", "alibi"]},
        rotate=_rope(PLAIN),
        bias=_alibi,
        note="rope-alibi",
    ),
]
