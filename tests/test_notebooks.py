"""The notebooks: their scripts run, both languages have the same code, the .ipynb files are what the scripts give."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from scripts import notebooks

FOLDER = notebooks.ROOT / "notebooks"
NAMES = sorted(path.stem for path in (FOLDER / "en").glob("*.py"))


def test_there_are_four() -> None:
    assert NAMES == ["articles", "checkpoint", "extend", "start"]


@pytest.mark.parametrize("name", NAMES)
def test_it_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has assertions of its own."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    runpy.run_path(str(FOLDER / "en" / f"{name}.py"))
    assert pyplot.get_fignums()
    pyplot.close("all")


@pytest.mark.parametrize("name", NAMES)
def test_both_languages_have_the_same_code(name: str) -> None:
    english, chinese = (
        notebooks.cells((FOLDER / language / f"{name}.py").read_text(encoding="utf-8")) for language in ("en", "zh")
    )
    assert [kind for kind, _ in chinese] == [kind for kind, _ in english]
    assert [text for kind, text in chinese if kind == "code"] == [text for kind, text in english if kind == "code"]
    assert not {text for kind, text in chinese if kind == "markdown"} & {text for kind, text in english}


@pytest.mark.parametrize("source", notebooks.SOURCES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_notebook_is_what_the_script_gives(source: Path) -> None:
    """After a change of a script: python scripts/notebooks.py"""
    kept = source.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert kept == notebooks.notebook(source.read_text(encoding="utf-8"))
    for cell in json.loads(kept)["cells"]:
        if cell["cell_type"] == "code" and "%pip" not in "".join(cell["source"]):
            compile("".join(cell["source"]), source.name, "exec")


def test_a_script_becomes_cells() -> None:
    script = (
        "# %% [markdown]\n# # Title\n#\n# Text\n\n# %%\ntry:\n    x = 1\nexcept E:\n    # %pip install y\n    pass\n"
    )
    assert notebooks.cells(script) == [
        ("markdown", "# Title\n\nText"),
        ("code", "try:\n    x = 1\nexcept E:\n    %pip install y\n    pass"),
    ]
