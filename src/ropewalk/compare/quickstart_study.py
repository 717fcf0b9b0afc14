"""The study of `ropewalk quickstart`: three encodings on a bundled text and on copying, in a minute, from nothing."""

from __future__ import annotations

import shutil
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from ropewalk.compare.study import Study
from ropewalk.data.options import Options
from ropewalk.data.prepare.dataset import prepare
from ropewalk.data.prepare.sample import LICENCE

TRAINED, LONGEST = 64, 8
"""Tokens of a text in training, and symbols of a question."""
STEPS = {"text": 120, "copy": 300}
# Sinusoids of size 1 would drown token vectors of size 0.02, so these are scaled up, as in 2017.
SINUSOIDAL = {"model": {"encoding": "sinusoidal", "scale_embedding": True}}
ARMS: dict[str, Any] = {"rope": "rope", "alibi": "alibi", "sinusoidal": SINUSOIDAL}


def quickstart_study(folder: Path) -> Study:
    """Prepares the text into the folder where it is not there yet."""
    data = folder / "data"
    if not (data / "data.json").is_file():
        shutil.rmtree(data, ignore_errors=True)
        # A large share to measure on: the text is short, and eight pieces of eight times the trained length are wanted.
        options = Options(kind="text", vocabulary=320, valid=0.3, document="blank", licence=LICENCE)
        with as_file(files("ropewalk.data") / "sample" / "english.txt") as bundled:
            prepare([bundled], data, options)
    return Study(
        recipe={
            "model": {"width": 64, "layers": 2, "heads": 4},
            "train": {
                "optimizer": {"kind": "adamw", "lr": 3e-3},
                "schedule": {"kind": "wsd", "warmup": 20},
                "evaluate": {"tokens": 2048},
            },
        },
        arms=ARMS,
        reference="rope",
        text={
            "recipe": {
                "data": {"kind": "text", "path": str(data), "length": TRAINED, "isolate": False},
                "train": {"steps": STEPS["text"], "batch": 1024, "save": {"every": 100}},
            },
            "seeds": 1,
            "reference_seeds": None,
            "lengths": [TRAINED * 2**n for n in range(4)],
            "tail": 32,
            "documents": 8,
        },
        tasks={
            "recipe": {
                "data": {"kind": "tasks", "of": ["copy"], "longest": LONGEST, "vocabulary": 32},
                "train": {"steps": STEPS["copy"], "batch": 900, "save": {"every": 200}},
            },
            "seeds": 1,
            "reference_seeds": None,
            "lengths": [4, 8, 10, 12, 16],
            "samples": 50,
        },
        rates=None,
    )
