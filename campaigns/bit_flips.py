"""One bit of a checkpoint flipped, a thousand times: always found, the file named, the checkpoint before it loaded.

    OMP_NUM_THREADS=1 python -m campaigns.bit_flips [--count 1000]

The checkpoints are of `train` on two ranks, each piece with another mesh or precision. Every byte of the folder is as
likely as any other, the manifest's among them; each file gets at least five of every hundred flips, so that the small
ones are not left out.
"""

from __future__ import annotations

import contextlib
import io
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import bars
from campaigns import pieces
from ropewalk.distributed.world import World
from ropewalk.train.checkpoint.store import Checkpoints
from tests.train import forked, small_recipe

SOURCES = (
    "src/ropewalk/train/checkpoint/manifest.py",
    "src/ropewalk/train/checkpoint/recorded_writer.py",
    "src/ropewalk/train/checkpoint/store.py",
    "campaigns/bit_flips.py",
    "tests/train/small_recipe.py",
)
PIECE = 250


def piece(start: int, count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="ropewalk-flips-") as made:
        folder = Path(made)

        name = list(small_recipe.VARIANTS)[start // PIECE % len(small_recipe.VARIANTS)]
        recipe = small_recipe.variant(name, 4, 2)

        def write(rank: int) -> None:
            from ropewalk.train.run import train

            train(recipe, folder / "run")

        forked.warm()
        if any(forked.run(write, ranks=2)):
            raise RuntimeError("the checkpoint could not be made")
        checkpoints = Checkpoints(folder / "run" / "checkpoints", World.start())
        files = sorted((checkpoints.folder / "step-00000004").iterdir())
        failures, told = [], {file.name: 0 for file in files}
        for trial in range(start, start + count):
            file, byte, bit = chosen(files, trial)
            fault = flipped(checkpoints, file, byte, bit)
            told[file.name] += 1
            if fault:
                failures.append({"trial": trial, "file": file.name, "byte": byte, "bit": bit, "fault": fault})
        found = checkpoints.newest()
        if found is None or found.step != 4:
            failures.append({"fault": "with every bit back in its place the checkpoint is not taken"})
        sizes = {"bytes": sum(f.stat().st_size for f in files)}
        return {"trials": count, "failures": failures, "files": told, "variant": name, **sizes}


def chosen(files: list[Path], trial: int) -> tuple[Path, int, int]:
    random_ = random.Random(trial)
    sizes = [file.stat().st_size for file in files]
    if trial % 20 < len(files):
        file = files[trial % 20]
        return file, random_.randrange(file.stat().st_size), random_.randrange(8)
    place = random_.randrange(sum(sizes))
    for file, size in zip(files, sizes, strict=True):
        if place < size:
            return file, place, random_.randrange(8)
        place -= size
    raise AssertionError


def flipped(checkpoints: Checkpoints, file: Path, byte: int, bit: int) -> str:
    whole = file.read_bytes()
    wrong = bytearray(whole)
    wrong[byte] ^= 1 << bit
    file.write_bytes(wrong)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            found = checkpoints.newest()
    finally:
        file.write_bytes(whole)
    if found is None or found.step != 2:
        return f"loaded {found and found.step}"
    return "" if file.name in said.getvalue() else f"not named: {said.getvalue()}"


def whole(done: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    names = sorted({name for each in done for name in each["files"]})
    counts = {name: sum(each["files"].get(name, 0) for each in done) for name in names}
    return (
        {"flips that were not found": bars.bar(pieces.failures(done), 0, at_least=False)},
        {"flips": pieces.summed(done, "trials"), "bytes of the checkpoint": done[0]["bytes"], **counts},
    )


if __name__ == "__main__":
    sys.exit(pieces.main(__doc__, "bit_flips", piece, whole, trials=1000, piece=PIECE, sources=SOURCES))
