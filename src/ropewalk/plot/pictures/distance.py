"""The score of two rotated vectors against their distance: it fades where q = k, and not evenly; else it does not."""

from __future__ import annotations

import random
from typing import Any

from pydantic import Field

from ropewalk.amounts import Amount
from ropewalk.plot.chart import Axis, Chart, Data, Level, Line, Panel, spread
from ropewalk.plot.subject import scaling_name
from ropewalk.plot.words import Words
from ropewalk.settings import Settings

TAKES = ""
IN_PYTHON = "a RoPE"

LOOKS = (("blue", 0), ("orange", 1), ("green", 3), ("violet", 2))


class Options(Settings):
    head_width: int = Field(default=128, ge=4, le=1024, multiple_of=2)
    bases: tuple[float, ...] = Field(default=(1e4, 5e5, 1e7), min_length=1, max_length=4)
    """Bases to compare; with an encoding, its own alone."""
    length: Amount = Field(default=100_000, ge=16, le=2**40)
    """The largest distance."""
    samples: int = Field(default=64, ge=2, le=1024)
    """Random pairs of query and key."""
    seed: int = 0


def data(thing: Any, options: Options) -> Data:
    from ropewalk.encodings import RoPE

    if thing is not None and not isinstance(thing, RoPE):
        raise TypeError(f"this picture is of a RoPE, not of {type(thing).__name__} {thing!r}")
    distances = [0, *spread(1, options.length, 400)]
    made = {
        f"{base:,.10g}": RoPE(head_width=options.head_width, base=base, precision="float64") for base in options.bases
    }
    ropes: dict[str, RoPE] = made if thing is None else {f"{thing.config.base:,.10g}": thing}
    first = next(iter(ropes.values()))
    scaling = first.config.scaling
    return {
        "head_width": first.head_width,
        "own_frequencies": first.config.frequencies is not None,
        "scaling": None if scaling is None else scaling_name(scaling),
        "distances": distances,
        "same": {name: _same(rope, distances) for name, rope in ropes.items()},
        "random": {"base": next(iter(ropes)), **_random(first, distances, options)},
    }


def _same(rope: Any, distances: list[int]) -> list[float]:
    """q = k, all features alike, of length 1."""
    import torch

    return _scores(rope, torch.ones(1, rope.head_width, dtype=torch.float64), None, distances)[0]


def _random(rope: Any, distances: list[int], options: Options) -> dict[str, Any]:
    """Mean and standard deviation over pairs of independent directions."""
    import torch

    draw = random.Random(options.seed)
    K = rope.head_width
    drawn = [[draw.gauss(0, 1) for _ in range(K)] for _ in range(2 * options.samples)]
    q, k = torch.tensor(drawn, dtype=torch.float64).chunk(2)
    scores = torch.tensor(_scores(rope, q, k, distances), dtype=torch.float64)
    return {"mean": scores.mean(0).tolist(), "deviation": scores.std(0).tolist(), "one": scores[0].tolist()}


def _scores(rope: Any, q: Any, k: Any, distances: list[int]) -> list[list[float]]:
    """(N, K) queries at each distance from keys at 0, both of length 1: N lists of a score a distance."""
    k = q if k is None else k
    q, k = q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)
    signal = rope.at(distances, [0], limit=max(distances) + 1)
    turned = signal.rotate(q[:, None].expand(-1, len(distances), -1), "query")  # (N, L, K)
    still = signal.rotate(k[:, None], "key")  # (N, 1, K)
    return (turned * still).sum(-1).tolist()


def chart(data: Data, words: Words) -> Chart:
    distances = data["distances"]
    x = Axis(low=1, high=distances[-1], label=words("distance"), log=True)
    same = [
        Line(x=distances[1:], y=scores[1:], label=_name(data, name, words), tone=tone, dashes=dashes)
        for (name, scores), (tone, dashes) in zip(data["same"].items(), LOOKS, strict=False)
    ]
    drawn = data["random"]
    low = [m - d for m, d in zip(drawn["mean"], drawn["deviation"], strict=True)][1:]
    high = [m + d for m, d in zip(drawn["mean"], drawn["deviation"], strict=True)][1:]
    other = [
        Line(x=distances[1:], y=drawn["mean"][1:], label=words("mean"), tone="blue", low=low, high=high),
        Line(x=distances[1:], y=drawn["one"][1:], label=words("one"), tone="orange", dashes=1),
    ]
    zero = Level(axis="y", at=0)
    lowest = min([-0.3, *(min(line.y) for line in same)])
    # A gain on cos and sin is squared in a score, which starts above 1 then.
    highest = max([1.0, *(1.05 * value for line in same for value in line.y if value > 1)])
    y = Axis(low=lowest * 1.05, high=highest, label=words("score"))
    edge = 1.15 * max([*map(abs, low), *map(abs, high), *map(abs, drawn["one"])])
    panels = [
        Panel(title=words("same"), x=x, y=y, marks=[zero, *same]),
        Panel(
            title=words("random", name=_name(data, drawn["base"], words)),
            x=x,
            y=Axis(low=-edge, high=edge, label=words("score")),
            marks=[zero, *other],
        ),
    ]
    return Chart(title=words("title"), about=words("about", width=data["head_width"]), panels=panels, height=2.9)


def _name(data: Data, base: str, words: Words) -> str:
    """What turns the features, with the scaling's name, which is the same in every language."""
    name = words("own") if data["own_frequencies"] else words("base", base=base)
    return f"{name}, {data['scaling']}" if data["scaling"] else name
