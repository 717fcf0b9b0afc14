"""How far RoPE's angles are from the truth, against position: ours and every library's that runs, 10^3 to 2^40.

    python -m campaigns.angles [--peers DIRECTORY] [--picture]

Each turns the vector (1, 0) of every pair by its own public interface: base 10,000, width 128, 64 positions in [P/2, P]
for each P. What comes back is (cos, sin); the error is the largest distance, in radians, between its angle and
position x base^(-2i/128) in 256-bit arithmetic. DIRECTORY (pip install --no-deps --target DIRECTORY ...) is looked at
for what is not found otherwise. Writes campaigns/results/angles.json and docs/pictures/angles*.svg; --picture draws the
last result again.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import random
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import bars

if TYPE_CHECKING:
    from torch import Tensor

ROOT = Path(__file__).parents[1]
RESULT, PICTURES = ROOT / "campaigns" / "results" / "angles.json", ROOT / "docs" / "pictures"
BASE, WIDTH, POSITIONS = 10_000, 128, 64
POINTS = tuple(sorted({round(10 ** (k / 4)) for k in range(12, 49)} | {2**17, 2**36, 2**40}))
TABLE = 10**6
"""Where the tables end that some libraries keep: at 512 bytes a position and more, 10^12 positions would be 512 TB."""


def ropewalk(x: Tensor, positions: Tensor) -> Tensor:
    from ropewalk.encodings import RoPE

    return RoPE(head_width=WIDTH, base=BASE).at(positions).rotate(x, "query")


def transformers(x: Tensor, positions: Tensor) -> Tensor:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = LlamaConfig(
        hidden_size=WIDTH, num_attention_heads=1, rope_parameters={"rope_type": "default", "rope_theta": float(BASE)}
    )
    # As the module of a model is after model.to(x.dtype): its frequencies are a buffer.
    rotary = LlamaRotaryEmbedding(config).to(x.dtype)
    return apply_rotary_pos_emb(x, x, *rotary(x, positions[None]))[0]


def transformers_bfloat16(x: Tensor, positions: Tensor) -> Tensor:
    return transformers(x.bfloat16(), positions)


def x_transformers(x: Tensor, positions: Tensor) -> Tensor:
    from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

    return apply_rotary_pos_emb(x, *RotaryEmbedding(WIDTH, base=BASE)(positions))


def rotary_embedding_torch(x: Tensor, positions: Tensor) -> Tensor:
    import torch
    from rotary_embedding_torch import RotaryEmbedding

    rotary = RotaryEmbedding(WIDTH, theta=BASE)
    turned = [rotary.rotate_queries_or_keys(x[:, :, n : n + 1], offset=p) for n, p in enumerate(positions.tolist())]
    return torch.cat(turned, 2)


def litgpt(x: Tensor, positions: Tensor) -> Tensor:
    from litgpt.model import apply_rope, build_rope_cache

    cos, sin = build_rope_cache(int(positions.max()) + 1, WIDTH, base=BASE)
    return apply_rope(x, cos[positions][None], sin[positions][None])


def torchtune(x: Tensor, positions: Tensor) -> Tensor:
    from torchtune.modules import RotaryPositionalEmbeddings

    rotary = RotaryPositionalEmbeddings(WIDTH, max_seq_len=int(positions.max()) + 1, base=BASE)
    return rotary(x.transpose(1, 2), input_pos=positions[None]).transpose(1, 2)


def torchtitan(x: Tensor, positions: Tensor) -> Tensor:
    from torchtitan.models.common.rope import ComplexRoPE

    rotary = ComplexRoPE(ComplexRoPE.Config(dim=WIDTH, max_seq_len=int(positions.max()) + 1, theta=float(BASE)))
    x = x.transpose(1, 2)
    return rotary(x, x, positions[None])[0].transpose(1, 2)


LIBRARIES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], str, str, int | None]] = {
    "ropewalk": (ropewalk, "ropewalk", "half", None),
    "transformers": (transformers, "transformers", "half", None),
    "transformers, model.to(bfloat16)": (transformers_bfloat16, "transformers", "half", None),
    "x-transformers": (x_transformers, "x-transformers", "pairs", None),
    "rotary-embedding-torch": (rotary_embedding_torch, "rotary-embedding-torch", "pairs", None),
    "litgpt": (litgpt, "litgpt", "half", TABLE),
    "torchtune": (torchtune, "torchtune", "pairs", TABLE),
    "torchtitan": (torchtitan, "torchtitan", "pairs", TABLE),
}
"""What turns, the distribution, the layout, and where its table ends."""
NOT_ASKED = {"llama.cpp": "its public interface tells probabilities and takes no positions, so no angle can be read"}


def places(point: int) -> list[int]:
    chosen = random.Random(point)
    return [point, *(chosen.randint(point // 2, point) for _ in range(POSITIONS - 1))]


@cache
def truth(positions: tuple[int, ...]) -> list[list[float]]:
    """The angles modulo one turn, by no code of ours."""
    from mpmath import mp

    with mp.workprec(256):
        frequencies = [mp.mpf(BASE) ** (-mp.mpf(2 * i) / WIDTH) for i in range(WIDTH // 2)]
        return [[float(mp.fmod(p * each, 2 * mp.pi)) for each in frequencies] for p in positions]


def error(turned: Tensor, positions: list[int], layout: str) -> float:
    """The largest distance between two angles, around the circle."""
    import torch

    turned = turned[0, 0].double()
    cos, sin = turned.chunk(2, -1) if layout == "half" else (turned[:, 0::2], turned[:, 1::2])
    apart = torch.atan2(sin, cos) - torch.tensor(truth(tuple(positions)), dtype=torch.float64)
    return torch.remainder(apart + math.pi, 2 * math.pi).sub(math.pi).abs().max().item()


def measure(name: str, points: Iterable[int] = POINTS) -> dict[str, Any]:
    """{"rad": the largest error for each point}, and why it "ends" where it goes no further."""
    import torch

    turn, _, layout, longest = LIBRARIES[name]
    found: list[float] = []
    for point in points:
        if longest and point > longest:
            return {"rad": found, "ends": f"it keeps a table, which was made for positions to {longest:,}"}
        positions = places(point)
        x = torch.zeros(1, 1, len(positions), WIDTH)
        x[..., slice(0, WIDTH // 2) if layout == "half" else slice(0, None, 2)] = 1
        try:
            with torch.no_grad():
                turned = turn(x, torch.tensor(positions))
        except ImportError:
            raise
        except Exception as refused:  # whatever a library does there is its answer
            return {"rad": found, "ends": f"at {point:,}: {type(refused).__name__}: {refused}"}
        found.append(float(f"{error(turned, positions, layout):.4g}"))
    return {"rad": found}


def main() -> int:
    import torch

    from ropewalk.report import angle_picture

    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--peers", metavar="DIRECTORY", help="where else libraries are looked for")
    given.add_argument("--picture", action="store_true", help="only draw the last result")
    asked = given.parse_args()
    if not asked.picture:
        torch.set_num_threads(1)
        result = {
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "command": "python -m campaigns.angles" + (" --peers DIRECTORY" if asked.peers else ""),
            **run(asked.peers),
        }
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    for language, name in (("en", "angles.svg"), ("zh", "angles.zh.svg")):
        (PICTURES / name).write_text(angle_picture.draw(result, language), encoding="utf-8")
    for name, found in result["libraries"].items():
        near, last = result["at"].index(2**17), len(found["rad"]) - 1
        print(f"{name}: {found['rad'][near]:.1e} rad at 131,072, {found['rad'][last]:.1e} at {result['at'][last]:,}")
    return 0 if all(each["holds"] for each in result["bars"].values()) else 1


def run(peers: str | None = None) -> dict[str, Any]:
    libraries, missing = {}, {}
    for more in (None, peers):
        # DIRECTORY comes only after the rest was asked: what stands there may change what the rest imports.
        sys.path += [more] if more else []
        for name in [name for name in LIBRARIES if name not in libraries]:
            try:
                libraries[name] = measure(name)
            except ImportError as error:
                missing[name] = str(error)
    not_run = {name: why for name, why in missing.items() if name not in libraries} | NOT_ASKED
    ours = libraries["ropewalk"]["rad"]
    near, far = max(ours[: POINTS.index(2**36) + 1]), max(ours)
    return {
        "bars": {
            "ropewalk to 2^36, in 1e-7 rad": bars.bar(near * 1e7, 2.5, at_least=False),
            "ropewalk to 2^40, in 1e-7 rad": bars.bar(far * 1e7, 10.0, at_least=False),
        },
        "base": BASE, "width": WIDTH, "positions": POSITIONS, "at": POINTS,
        "libraries": libraries,
        "not_run": not_run,
        "versions": bars.versions(sorted({LIBRARIES[name][1] for name in libraries} - {"ropewalk"})),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
