"""Golden vectors as plain data, for an implementation in any language: JSON, safetensors, and a page on every array.

    omega_i, gains, cos and sin of p omega_i, rotated vectors, sinusoids, ALiBi slopes, T5 buckets, attention logits

All of it is worked out from the oracles' frequencies in decimals of 80 digits and rounded once, so each float64 is the
nearest to the real number. Inputs have eight significant bits: they are exact in bfloat16 and in anything wider.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Context, Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk.conformance import oracles
from ropewalk.conformance.places import EDGES
from ropewalk.conformance.spec import VERSION
from ropewalk.conformance.target import Spec
from ropewalk.conformance.vectors import page
from ropewalk.conformance.vectors.cases import ATTENTION, BEHIND, BUCKETS, CASES, DISTANCES, SINUSOIDAL, Attention

FILES = ("README.md", "vectors.json", "vectors.safetensors", "read_vectors.py")
DIGITS = 60
"""Of the decimals in vectors.json."""


def _exactly() -> Any:
    return localcontext(Context(prec=oracles.DIGITS))


def inputs(count: int, seed: int) -> list[float]:
    """In [-2, 2), in steps of 1/64: s <- (1103515245 s + 12345) mod 2^31, then ((s >> 16) mod 256 - 128) / 64."""
    state, found = seed, []
    for _ in range(count):
        state = (1_103_515_245 * state + 12_345) % 2**31
        found.append(((state >> 16) % 256 - 128) / 64)
    return found


def gains(spec: Spec) -> tuple[Decimal, Decimal]:
    """On cos and sin, and on every score: `oracles.gains` to 80 digits."""
    s: Any = spec.scaling
    one = Decimal(1)
    with _exactly():
        if s is None or s.kind not in ("yarn", "longrope"):
            return one, one
        if s.kind == "longrope":
            grown = (1 + Decimal(s.factor).ln() / Decimal(s.trained).ln()).sqrt() if s.factor > 1 else one
            return (grown if s.attention_factor is None else Decimal(s.attention_factor)), one

        def grown_by(weight: float) -> Decimal:
            return one if s.factor <= 1 else 1 + Decimal(weight) * Decimal(s.factor).ln() / 10

        everywhere = s.mscale_all_dim or 0.0
        if s.dialect == "deepseek":
            ratio = grown_by(1.0 if s.mscale is None else s.mscale) / grown_by(everywhere)
        else:
            ratio = grown_by(s.mscale) / grown_by(everywhere) if s.mscale and everywhere else grown_by(1.0)
        rotary = ratio if s.attention_factor is None else Decimal(s.attention_factor)
        return rotary, grown_by(everywhere) ** 2 if s.dialect == "deepseek" else one


def circle(fraction: int) -> tuple[Decimal, Decimal]:
    """cos and sin of fraction / 2^256 turns."""
    turn = oracles.TURN
    quarter, rest = divmod(fraction % turn + turn // 8, turn // 4)
    with _exactly():
        x = 2 * oracles.pi() * (rest - turn // 8) / turn
        cos, sin, term, n = Decimal(0), Decimal(0), Decimal(1), 0
        while abs(term) > Decimal(10) ** -(oracles.DIGITS + 5):
            cos, sin = (
                (cos + (-term if n & 2 else term), sin) if n % 2 == 0 else (cos, sin + (-term if n & 2 else term))
            )
            n += 1
            term = term * x / n
            if not x:
                break
        return ((cos, sin), (-sin, cos), (-cos, -sin), (sin, -cos))[quarter % 4]


Wave = list[tuple[Decimal, Decimal]]


def waves(position: int, fractions: Sequence[int], gain: Decimal) -> Wave:
    """(cos, sin) of every pair at one position, times the gain."""
    with _exactly():
        return [(gain * cos, gain * sin) for cos, sin in (circle(position * fraction) for fraction in fractions)]


def turned(x: Sequence[float], wave: Wave, layout: str) -> list[Decimal]:
    """One head's vector, rotated; features past the rotary width stay."""
    result = [Decimal(value) for value in x]
    with _exactly():
        for i, (cos, sin) in enumerate(wave):
            first, second = (2 * i, 2 * i + 1) if layout == "pairs" else (i, i + len(wave))
            a, b = Decimal(x[first]), Decimal(x[second])
            result[first], result[second] = a * cos - b * sin, b * cos + a * sin
    return result


def arrays() -> dict[str, np.ndarray]:
    """Every array by name."""
    found: dict[str, np.ndarray] = {"positions": np.array(EDGES, dtype=np.int64)}
    for width in sorted({spec.head_width for spec in CASES.values()}):
        found[f"input/{width}"] = np.array(inputs(width, width))
    for name, spec in CASES.items():
        omegas = oracles.frequencies(spec)
        gain, fractions = gains(spec), oracles.turns(omegas)
        at = [waves(p, fractions, gain[0]) for p in EDGES]
        x = inputs(spec.head_width, spec.head_width)
        found[f"frequencies/{name}"] = _doubles(omegas)
        found[f"gains/{name}"] = _doubles(gain)
        found[f"cos/{name}"] = np.stack([_doubles(cos for cos, _ in wave) for wave in at])
        found[f"sin/{name}"] = np.stack([_doubles(sin for _, sin in wave) for wave in at])
        for layout in ("half", "pairs"):
            found[f"rotated/{layout}/{name}"] = np.stack([_doubles(turned(x, wave, layout)) for wave in at])
    for name, case in ATTENTION.items():
        found |= {f"attention/{name}/{part}": array for part, array in attention(case).items()}
    for width in SINUSOIDAL:
        fractions = oracles.turns(oracles.ladder(10_000, width))
        at = [waves(p, fractions, Decimal(1)) for p in EDGES]
        cos, sin = (np.stack([_doubles(pair[part] for pair in wave) for wave in at]) for part in (0, 1))
        found[f"sinusoidal/half/{width}"] = np.concatenate([sin, cos], axis=1)
        found[f"sinusoidal/pairs/{width}"] = np.stack([sin, cos], axis=2).reshape(len(EDGES), width)
    slopes = np.zeros((128, 128))
    for heads in range(1, 129):
        slopes[heads - 1, :heads] = oracles.slopes(heads)
    found["alibi/slopes"] = slopes
    found["t5/distances"] = np.array(DISTANCES, dtype=np.int64)
    for count, farthest in BUCKETS:
        for both, way in ((False, "one_way"), (True, "two_way")):
            row = [oracles.bucket(distance, count, farthest, both) for distance in DISTANCES]
            found[f"t5/{way}/{count}_{farthest}"] = np.array(row, dtype=np.int32)
    return found


def attention(case: Attention) -> dict[str, np.ndarray]:
    """Three queries, ten keys: what goes in, logits before the mask, the mask, probabilities."""
    spec, (H, K, L, S) = case.spec, (case.spec.heads, case.spec.head_width, 3, len(BEHIND))
    q_positions, k_positions = [case.start + i for i in range(L)], [case.start - behind for behind in BEHIND]
    q, k = (np.array(inputs(H * rows * K, seed)).reshape(H, rows, K) for rows, seed in ((L, 1), (S, 2)))
    fractions = oracles.turns(oracles.frequencies(spec)) if spec.kind == "rope" else ()
    on_rotary, on_scores = gains(spec)
    q_waves, k_waves = ([waves(p, fractions, on_rotary) for p in at] for at in (q_positions, k_positions))
    slopes = oracles.slopes(H) if spec.kind == "alibi" else [0.0] * H
    apart = np.subtract.outer(q_positions, k_positions)
    visible = (apart >= 0) & (apart < (spec.window or 2**62))
    logits, probabilities = np.zeros((H, L, S)), np.zeros((H, L, S))
    with _exactly():
        scale = on_scores / Decimal(K).sqrt()
        for h in range(H):
            turned_q = [turned(q[h, i].tolist(), wave, spec.layout) for i, wave in enumerate(q_waves)]
            turned_k = [turned(k[h, j].tolist(), wave, spec.layout) for j, wave in enumerate(k_waves)]
            for i, query in enumerate(turned_q):
                far = [Decimal(slopes[h]) * abs(int(d)) for d in apart[i]]
                row = [
                    sum(a * b for a, b in zip(query, key, strict=True)) * scale - off
                    for key, off in zip(turned_k, far, strict=True)
                ]
                weights = [score.exp() if seen else Decimal(0) for score, seen in zip(row, visible[i], strict=True)]
                logits[h, i] = _doubles(row)
                probabilities[h, i] = _doubles(weight / sum(weights) for weight in weights)
    return {
        "q": q,
        "k": k,
        "q_positions": np.array(q_positions, dtype=np.int64),
        "k_positions": np.array(k_positions, dtype=np.int64),
        "logits": logits,
        "visible": visible.astype(np.uint8),
        "probabilities": probabilities,
    }


def facts() -> dict[str, Any]:
    """What vectors.json holds: what a person reads, and what has more digits than a float64."""
    return {
        "version": VERSION,
        "positions": list(EDGES),
        "cases": {
            name: {
                "spec": settings(spec),
                "rotary_gain": _decimal(gains(spec)[0]),
                "logit_gain": _decimal(gains(spec)[1]),
                "frequencies": [_decimal(omega) for omega in oracles.frequencies(spec)],
            }
            for name, spec in CASES.items()
        },
        "attention": {
            name: {"case": case.case, "spec": settings(case.spec), "first_query": case.start}
            for name, case in ATTENTION.items()
        },
        "sinusoidal": {str(width): {"width": width, "base": 10_000.0} for width in SINUSOIDAL},
        "alibi_slopes": {str(heads): oracles.slopes(heads) for heads in (1, 2, 3, 4, 6, 8, 12, 16)},
        "t5_first_distance_of_each_bucket": {
            f"{count}_{farthest}": _firsts(count, farthest) for count, farthest in BUCKETS
        },
    }


def settings(spec: Spec) -> dict[str, Any]:
    """Those of the spec that matter to the numbers."""
    if spec.kind == "alibi":
        return {"kind": "alibi", "heads": spec.heads, "head_width": spec.head_width, "window": spec.window}
    kept = {"kind", "heads", "head_width", "base", "layout", "scaling", "window"}
    data = spec.model_dump(include=kept) | {"rotary_width": spec.rotary}
    if spec.length_dependent:
        data["length"] = oracles.length_of(spec)
    if spec.scaling is not None:
        data["scaling"] = {key: value for key, value in spec.scaling.model_dump().items() if value is not None}
    return data


def write(out: str | Path) -> list[Path]:
    """Writes them into a directory. A file that is there and differs is not overwritten."""
    from safetensors.numpy import save

    folder = Path(out)
    found = arrays()
    packed = save(dict(sorted(found.items())), metadata={"ropewalk_vectors": VERSION})
    contents = {
        "README.md": page.page(packed).encode(),
        "vectors.json": (json.dumps(facts(), indent=1) + "\n").encode(),
        "vectors.safetensors": packed,
        "read_vectors.py": Path(__file__).with_name("reader.py").read_bytes(),
    }
    taken = [n for n in FILES if (folder / n).exists() and (folder / n).read_bytes() != contents[n]]
    if taken:
        raise ValueError(f"{folder / taken[0]} is there and differs; give a directory without it, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (folder / name).write_bytes(contents[name])
    return [folder / name for name in FILES]


def _firsts(count: int, farthest: int) -> Mapping[str, list[int]]:
    """One-way: distances behind the query. Two-way: behind it; those ahead are the same, in the second half."""
    ways = {"one_way": False, "two_way_behind": True}
    result = {}
    for name, both in ways.items():
        row = [oracles.bucket(-distance, count, farthest, both) for distance in range(farthest + 1)]
        result[name] = [row.index(bucket) for bucket in sorted(set(row))]
    return result


def _decimal(value: Decimal) -> str:
    return str(Context(prec=DIGITS).plus(value))


def _doubles(values: Iterable[Decimal]) -> np.ndarray:
    return np.array([float(value) for value in values], dtype=np.float64)
