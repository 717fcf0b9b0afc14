"""Every page in a real browser: requests, console, keys, axe, in both languages, light and dark, wide and narrow.

    python -m campaigns.browser [--pictures DIRECTORY]

Needs playwright, chromium and axe-core (tests/browser/driver.py says where they are looked for). Writes
campaigns/results/browser.json, and with --pictures a screenshot of each page in each way. Exit code 1 says that
something is wrong.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from campaigns import pieces

MADE_BY = (
    "checkpoint_page.py",
    "census/page.py",
    "comparison",
    "eval_page.py",
    "extension",
    "engine_parts.py",
    "engine_words.py",
    "gallery.py",
    "parts.py",
    "chart_svg.py",
    "markup.py",
    "page.py",
)
SOURCES = ("docs/scoreboard.html", "docs/gallery.html", *(f"src/ropewalk/report/{name}" for name in MADE_BY))
"""The style and the script of every page stand in the first two."""
RESULT = pieces.RESULTS / "browser.json"


def main() -> int:
    from tests.browser.driver import axe
    from tests.browser.looking import LANGUAGES, SCHEMES, WIDTHS, chromium, look, wrong
    from tests.browser.pages import PAGES, written

    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--pictures", metavar="DIRECTORY", type=Path, help="where screenshots go")
    pictures: Path | None = given.parse_args().pictures
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
    known = re.search(r"axe v([\d.]+)", axe()[:200])
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        found = {}
        for name in PAGES:
            found[name] = look(browser, written(name, Path(folder)), pictures)
            print(f"{name}: {found[name]['controls']} controls, {len(wrong(found[name]))} things wrong", flush=True)
            for said in wrong(found[name])[:20]:
                print(f"  {said}", flush=True)
        result = {
            "command": "python -m campaigns.browser",
            "sources": pieces.digest(SOURCES),
            "chromium": browser.version,
            "playwright": version("playwright"),
            "axe-core": known[1] if known else "?",
            "ways": {"languages": list(LANGUAGES), "schemes": list(SCHEMES), "widths": list(WIDTHS)},
            "pages": found,
        }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return int(any(wrong(one) for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
