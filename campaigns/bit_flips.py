"""One bit of a checkpoint flipped, a thousand times: always found, the file named, the checkpoint before it loaded.

    OMP_NUM_THREADS=1 python -m campaigns.bit_flips [--count 1000]

The checkpoint is of two ranks. Every byte of its folder is as likely as any other, the manifest's among them; each file
gets at least five of every hundred flips, so that the small ones are not left out.
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
from tests.train import forked, tiny_run

SOURCES = (
    "src/ropewalk/train/checkpoint/manifest.py",
    "src/ropewalk/train/checkpoint/recorded_writer.py",
    "src/ropewalk/train/checkpoint/store.py",
    "campaigns/bit_flips.py",
)


def piece(start: int, count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="ropewalk-flips-") as made:
        folder = Path(made)

        def write(rank: int) -> None:
            checkpoints = Checkpoints(folder, World.start())
            model, optimizer = tiny_run.build()
            for number in range(2):
                tiny_run.step(model, optimizer, number)
                checkpoints.save(number + 1, model, [optimizer], {"step": number + 1})

        if any(forked.run(write, ranks=2)):
            raise RuntimeError("the checkpoint could not be made")
        checkpoints = Checkpoints(folder, World.start())
        files = sorted((folder / "step-00000002").iterdir())
        failures, told = [], {file.name: 0 for file in files}
        for trial in range(start, start + count):
            file, byte, bit = chosen(files, trial)
            fault = flipped(checkpoints, file, byte, bit)
            told[file.name] += 1
            if fault:
                failures.append({"trial": trial, "file": file.name, "byte": byte, "bit": bit, "fault": fault})
        found = checkpoints.newest()
        if found is None or found.step != 2:
            failures.append({"fault": "with every bit back in its place the checkpoint is not taken"})
        return {"trials": count, "failures": failures, "files": told, "bytes": sum(f.stat().st_size for f in files)}


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
    if found is None or found.step != 1:
        return f"loaded {found and found.step}"
    return "" if file.name in said.getvalue() else f"not named: {said.getvalue()}"


def whole(done: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    counts = {name: sum(each["files"][name] for each in done) for name in done[0]["files"]}
    return (
        {"flips that were not found": bars.bar(pieces.failures(done), 0, at_least=False)},
        {"flips": pieces.summed(done, "trials"), "bytes of the checkpoint": done[0]["bytes"], **counts},
    )


if __name__ == "__main__":
    sys.exit(pieces.main(__doc__, "bit_flips", piece, whole, trials=1000, piece=500, sources=SOURCES))
