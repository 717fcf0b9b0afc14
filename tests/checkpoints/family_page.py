"""families.md of docs/en and docs/zh, from rows that family_models.py has measured."""

from __future__ import annotations

from pathlib import Path

import yaml

FILES = {language: Path(__file__).parents[2] / "docs" / language / "families.md" for language in ("en", "zh")}
WORDS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def page(rows: list[list[str]], language: str, version: str, lengths: tuple[int, ...], far: int) -> str:
    comma = "、" if language == "zh" else ", "
    head = WORDS["heads"][language].format(
        version=version, first=comma.join(map(str, lengths[:-1])), last=lengths[-1], far=far
    )
    if language == "zh":
        rows = [[WORDS["chinese"].get(cell, cell) for cell in row] for row in rows]
    return head + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def rows() -> list[list[str]]:
    """Those of the English page, as they were measured last."""
    lines = FILES["en"].read_text(encoding="utf-8").splitlines()
    start = lines.index("|---|---|---|---|---|---|---|---|---|") + 1
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:]]
