"""The papers' equations, one number at a time, in plain float64 Python. Nothing here imports ropewalk."""

from __future__ import annotations

import math


def sinusoid(position: int, feature: int, width: int, base: float) -> float:
    angle = position * base ** (-2 * (feature // 2) / width)
    return math.sin(angle) if feature % 2 == 0 else math.cos(angle)


def rotate(x: list[float], angles: list[float], layout: str, gain: float = 1.0) -> list[float]:
    out = list(x)
    pairs = len(angles)
    for i, angle in enumerate(angles):
        a, b = (2 * i, 2 * i + 1) if layout == "pairs" else (i, i + pairs)
        cos, sin = gain * math.cos(angle), gain * math.sin(angle)
        out[a] = x[a] * cos - x[b] * sin
        out[b] = x[b] * cos + x[a] * sin
    return out


def frequencies(base: float, width: int) -> list[float]:
    return [base ** (-2 * i / width) for i in range(width // 2)]


def yarn(base: float, width: int, factor: float, trained: int, fast: float = 32.0, slow: float = 1.0) -> list[float]:
    """The ramp that every shipped YaRN uses: linear in the number of the pair."""

    def pair_turning(times: float) -> float:
        return width * math.log(trained / (times * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(math.floor(pair_turning(fast)), 0), min(math.ceil(pair_turning(slow)), width - 1)
    scaled = []
    for i, omega in enumerate(frequencies(base, width)):
        ramp = min(max((i - low) / (high - low), 0.0), 1.0)
        scaled.append(omega * (1 - ramp) + omega / factor * ramp)
    return scaled


def dynamic(base: float, width: int, factor: float, trained: int, length: int) -> list[float]:
    if length > trained:
        base = base * (factor * length / trained - (factor - 1)) ** (width / (width - 2))
    return frequencies(base, width)


def alibi_slope(head: int, heads: int) -> float:
    """The authors' recursion: powers of two directly, any other number from the power below and the one above."""

    def of(n: int) -> list[float]:
        if n & (n - 1) == 0:
            start = 2 ** (-(2 ** -(math.log2(n) - 3)))
            return [start * start**i for i in range(n)]
        below = 2 ** math.floor(math.log2(n))
        return of(below) + of(2 * below)[0::2][: n - below]

    return of(heads)[head]


def t5_bucket(ahead: int, buckets: int, farthest: int, bidirectional: bool) -> int:
    """`ahead` = key position - query position."""
    bucket = 0
    if bidirectional:
        buckets //= 2
        bucket = buckets if ahead > 0 else 0
        apart = abs(ahead)
    else:
        apart = max(-ahead, 0)
    exact = buckets // 2
    if apart < exact:
        return bucket + apart
    return bucket + min(
        exact + int(math.log(apart / exact) / math.log(farthest / exact) * (buckets - exact)), buckets - 1
    )


def xpos_rate(pair: int, width: int) -> float:
    return (2 * pair + 0.4 * width) / (1.4 * width)


def temperature(form: str, position: int, trained: int, strength: float) -> float:
    if form == "log-n":
        return max(1.0, math.log(position + 1) / math.log(trained))
    steps = (position + 1) // trained if form == "llama4" else position // trained
    return 1 + strength * math.log(1 + steps)


def fire(
    share_of: tuple[int, int], slope: float, threshold: float, inner: list[list[float]], outer: list[float]
) -> float:
    """`share_of`: the query's and the key's position; `outer` ends in the head's offset."""
    query, key = share_of
    share = math.log(1 + slope * (query - key)) / math.log(1 + slope * max(query, threshold))
    hidden = [max(0.0, share * weight + offset) for weight, offset in zip(*inner, strict=True)]
    return sum(a * b for a, b in zip(hidden, outer[:-1], strict=True)) + outer[-1]
