"""Which golden vectors there are: every scaling, what its settings can change, and whole attentions around them."""

from __future__ import annotations

from typing import Any, NamedTuple

from ropewalk.conformance.target import Spec

_L, _S = 2048, 8
_DIVISORS = {
    "short": [1 + i / 256 for i in range(32)],
    "long": [1 + i * i / 128 for i in range(32)],
}

CASES: dict[str, Spec] = {
    "plain": Spec(),
    "plain_500k_128": Spec(head_width=128, base=500_000),
    "partial": Spec(rotary_width=32),
    "linear": Spec(scaling={"kind": "linear", "factor": _S}),
    "ntk": Spec(scaling={"kind": "ntk", "factor": _S}),
    "dynamic_within": Spec(scaling={"kind": "dynamic", "factor": _S, "trained": _L}, longest=_L),
    "dynamic_8x": Spec(scaling={"kind": "dynamic", "factor": _S, "trained": _L}, longest=_S * _L),
    "yarn": Spec(scaling={"kind": "yarn", "factor": _S, "trained": _L}),
    "yarn_untruncated": Spec(scaling={"kind": "yarn", "factor": _S, "trained": _L, "truncate": False}),
    "yarn_published": Spec(scaling={"kind": "yarn", "factor": _S, "trained": _L, "ramp": "paper"}),
    "yarn_attention_factor": Spec(scaling={"kind": "yarn", "factor": _S, "trained": _L, "attention_factor": 1.5}),
    "yarn_mscale": Spec(
        scaling={"kind": "yarn", "factor": 40, "trained": 4096, "mscale": 1.0, "mscale_all_dim": 0.707}
    ),
    "yarn_deepseek": Spec(
        scaling={
            "kind": "yarn", "factor": 40, "trained": 4096, "dialect": "deepseek",
            "mscale": 1.0, "mscale_all_dim": 0.707,
        }
    ),
    "yarn_partial": Spec(rotary_width=32, scaling={"kind": "yarn", "factor": _S, "trained": _L}),
    "llama3": Spec(scaling={"kind": "llama3", "factor": _S, "trained": _L}),
    "llama3_500k_128": Spec(
        head_width=128, base=500_000, scaling={"kind": "llama3", "factor": 8, "trained": 8192}
    ),
    "longrope_short": Spec(scaling={"kind": "longrope", "factor": _S, "trained": _L, **_DIVISORS}, longest=_L),
    "longrope_long": Spec(scaling={"kind": "longrope", "factor": _S, "trained": _L, **_DIVISORS}, longest=_S * _L),
    "proportional": Spec(scaling={"kind": "proportional", "fraction": 0.25}),
    "proportional_8x": Spec(scaling={"kind": "proportional", "fraction": 0.25, "factor": _S}),
}  # fmt: skip
"""One for every scaling, and for what its settings can change."""


class Attention(NamedTuple):
    """One whole attention: the spec, and the position of its first query."""

    spec: Spec
    case: str | None
    """Whose frequencies and gains."""
    start: int


def _attention() -> dict[str, Attention]:
    def rotary(case: str, start: int, **more: Any) -> Attention:
        return Attention(CASES[case].model_copy(update={"heads": 2, **more}), case, start)

    return {
        "plain_half": rotary("plain", 131_071),
        "plain_pairs": rotary("plain", 2**24 + 1, layout="pairs"),
        "plain_window": rotary("plain", 2**31, window=65),
        "plain_farthest": rotary("plain", 2**40 - 8),
        "partial": rotary("partial", 131_071),
        "yarn_gain": rotary("yarn", 1_000_000),
        "yarn_partial_gain": rotary("yarn_partial", 1_000_000, layout="pairs"),
        "deepseek_gains_window": rotary("yarn_deepseek", 2**32, layout="pairs", window=512),
        "llama3": rotary("llama3", 131_071),
        "alibi": Attention(Spec(kind="alibi", heads=2), None, 131_071),
        "alibi_12_heads_window": Attention(Spec(kind="alibi", heads=12, window=65), None, 2**31),
    }


ATTENTION = _attention()
SINUSOIDAL = (64, 512)
"""Widths of sinusoidal positions; their base is 10,000."""
BEHIND = (4000, 2048, 511, 64, 7, 2, 1, 0, -1, -2)
"""How far each key is behind the first query; two are ahead of it."""
BUCKETS = ((32, 128), (32, 256), (8, 20))
"""(number of buckets, farthest distance)"""
DISTANCES = (*range(-300, 301), *(s * d for d in (511, 512, 1000, 4095, 65_536, 2**24 + 1, 2**31) for s in (-1, 1)))
