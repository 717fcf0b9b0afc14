"""Recipes that come with ropewalk, by name: `ropewalk train decoder`."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path

HERE = Path(__file__).parents[1] / "recipes"


def names() -> list[str]:
    return sorted(file.stem for file in HERE.glob("*.yaml"))


def located(word: str) -> str:
    """The file that is meant: of one of ours its name alone, else a path. A file called as ours are is ./decoder."""
    if word in names():
        return str(HERE / f"{word}.yaml")
    if Path(word).exists():
        return word
    if Path(word).stem in names():
        raise ValueError(f"{word}: no such file. For the recipe that comes with ropewalk, write {Path(word).stem}")
    if os.sep not in word and not Path(word).suffix:
        near = get_close_matches(word, names(), n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(names())}"
        raise ValueError(f"no recipe {word!r}, and no file of that name. {hint}")
    return word


def about(name: str) -> tuple[str, list[str]]:
    """What its first comment says: a sentence, and the commands that use it."""
    lines = (HERE / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    first, *more = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
    return first, more
