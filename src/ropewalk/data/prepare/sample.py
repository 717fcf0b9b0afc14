"""The bundled sample: small texts of the project's own, so that a recipe can be tried before anything is prepared."""

from __future__ import annotations

import os
import shutil
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal

from ropewalk.data.layout import describe
from ropewalk.data.options import Options
from ropewalk.data.prepare.dataset import prepare

LICENCE = "Apache-2.0"


def sample(
    kind: Literal["text", "pairs"], folder: str | Path, *, languages: Literal["en-de", "en-zh"] = "en-de"
) -> Path:
    """Prepares the sample into a folder, where it is not there already, in about a second."""
    folder = Path(folder)
    if not (folder / "data.json").is_file():
        options = Options(kind=kind, vocabulary=512, valid=0.1, document="blank", licence=LICENCE)
        name = "english.txt" if kind == "text" else f"pairs.{languages}.tsv"
        # Several processes of one run may ask at once: each makes its own, the first to be ready stays.
        own = folder.with_name(f"{folder.name}.{os.getpid()}")
        with as_file(files("ropewalk.data") / "sample" / name) as bundled:
            prepare([bundled], own, options)
        try:
            own.rename(folder)
        except OSError:
            shutil.rmtree(own)
    describe(folder)
    return folder
