"""YaRN: fast pairs kept, slow ones divided, a ramp between; each ramp with its gain and without (arXiv 2309.00071).

yarn            the ramp that is shipped: linear in the index
yarn paper      the ramp that is published: linear in turns
yarn revised    linear in wavelengths, lambda' = lambda ((1 - k) s + k), k the share that is kept (yarn#24)
yarn from n     as if the model had been trained at two thirds, or half, of its length: far distances are rare in
                training, so what they teach is less than the length says (arXiv 2410.18745)

The ramp that is shipped, and the assumed lengths, keep the settings of a checkpoint that has YaRN already.
"""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.checkpoints.inspect.lengths import as_before
from ropewalk.extend.candidates.base import Candidate, Missing, Rope, listed, no_ramp, scaled, usual_gain
from ropewalk.scaling import Scaling, YaRN

ASSUMED = {"2L/3": 2 / 3, "L/2": 1 / 2}


def candidates(rope: Rope) -> Iterator[Candidate | Missing]:
    s, gain = rope.ratio, usual_gain(rope.ratio)
    plain = _as_shipped(rope, s, rope.trained)
    if plain is None:
        for name in ("yarn", "yarn without gain", "yarn revised", "yarn revised without gain"):
            yield Missing(name, no_ramp(rope.trained, rope.base))
    else:
        yield scaled("yarn", "the ramp that is shipped, arXiv 2309.00071", plain, rope)
        without = YaRN.model_validate({**dict(plain), "attention_factor": 1.0})
        yield scaled("yarn without gain", "the ramp that is shipped, without its gain", without, rope)
        revised = _revised(rope, s)
        yield listed("yarn revised", "a ramp linear in wavelengths", revised, gain, rope)
        yield listed("yarn revised without gain", "a ramp linear in wavelengths, without the gain", revised, 1.0, rope)
    paper = rope.divisors(YaRN(factor=s, trained=rope.trained, ramp="paper"))
    yield listed("yarn paper", "the ramp that is published, linear in turns", paper, gain, rope)
    yield listed("yarn paper without gain", "the ramp that is published, without its gain", paper, 1.0, rope)
    for name, share in ASSUMED.items():
        trained = round(rope.trained * share)
        assumed = _as_shipped(rope, rope.to / trained, trained)
        if assumed is None:
            yield Missing(f"yarn from {name}", no_ramp(trained, rope.base))
        else:
            about = f"YaRN, as if trained at {trained:,} tokens, arXiv 2410.18745"
            yield scaled(f"yarn from {name}", about, assumed, rope)


def _revised(rope: Rope, s: float) -> list[float]:
    first, last = rope.ends()
    divided = [min(max((i - first) / ((last - first) or 0.001), 0.0), 1.0) for i in range(rope.width // 2)]
    return [share * s + (1 - share) for share in divided]


def _as_shipped(rope: Rope, factor: float, trained: int) -> Scaling | None:
    """None where the trained length is so short, or so long, for the base that shipped code has no ramp."""
    found = as_before(rope.scaling, YaRN(factor=factor, trained=trained))
    try:
        found.frequencies(rope.base, rope.width)
    except ValueError:
        return None
    return found
