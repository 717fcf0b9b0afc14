"""Writes notebooks/*/*.ipynb from the scripts beside them, which are in the percent format of Jupytext.

    python scripts/notebooks.py

Cells begin with `# %%`, those of text with `# %% [markdown]`; a line `# %pip ...` is a magic in the notebook. Outputs
are not kept, and the same script gives the same bytes. Jupytext does the same, and would bring nbformat and jsonschema.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "notebooks").glob("*/*.py"))


def cells(script: str) -> list[tuple[str, str]]:
    """Each cell's kind, "markdown" or "code", and its text."""
    parts = re.split(r"^# %%( \[markdown\])?\n", script, flags=re.MULTILINE)[1:]
    found = []
    for marked, body in zip(parts[::2], parts[1::2], strict=True):
        text = body.strip("\n")
        if marked:
            found.append(("markdown", re.sub(r"^# ?", "", text, flags=re.MULTILINE)))
        else:
            found.append(("code", re.sub(r"^( *)# (%pip )", r"\1\2", text, flags=re.MULTILINE)))
    return found


def notebook(script: str) -> str:
    made: list[dict[str, Any]] = []
    for number, (kind, text) in enumerate(cells(script)):
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}
        made.append(cell if kind == "markdown" else {**cell, "execution_count": None, "outputs": []})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def main() -> None:
    for source in SOURCES:
        text = notebook(source.read_text(encoding="utf-8"))
        source.with_suffix(".ipynb").write_text(text, encoding="utf-8")
        print(source.with_suffix(".ipynb").relative_to(ROOT))


if __name__ == "__main__":
    main()
