"""The pages that are looked at in a real browser: a name, and what makes the file where it is not in docs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _checkpoint() -> str:
    from ropewalk.checkpoints.inspect.report import inspect
    from ropewalk.report.checkpoint_page import page

    return page(inspect(ROOT / "tests" / "checkpoints" / "published" / "phi-4-mini.json", to=262144))


def _census() -> str:
    from ropewalk.report.census.page import page
    from tests.report.test_census_page import counted

    return page(counted())


def _compare() -> str:
    from ropewalk.report.comparison.page import page
    from tests.report.test_compare_page import found, planned

    with tempfile.TemporaryDirectory() as folder:
        return page("a-study", found(planned(Path(folder)), Path(folder)))


def _eval() -> str:
    from ropewalk.report.eval_page import page
    from tests.report.test_eval_page import evaluated

    return page("a-model", evaluated())


def _extend() -> str:
    from ropewalk.report.extension.page import page
    from tests.extend.test_tournament import ALL, REACH
    from tests.extend.toys import Engineered
    from tests.report.test_extend_page import held

    return page("a-model", held(Engineered(REACH, {6.0: 0.1, 8.0: 0.3}), ALL))


PAGES: dict[str, Path | Callable[[], str]] = {
    "scoreboard": ROOT / "docs" / "scoreboard.html",
    "gallery": ROOT / "docs" / "gallery.html",
    "checkpoint": _checkpoint,
    "census": _census,
    "compare": _compare,
    "eval": _eval,
    "extend": _extend,
}


def written(name: str, folder: Path) -> Path:
    """The file of a page."""
    page = PAGES[name]
    if isinstance(page, Path):
        return page
    path = folder / f"{name}.html"
    path.write_text(page(), encoding="utf-8")
    return path
