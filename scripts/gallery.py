"""Writes docs/gallery.html: every published config of the tests, read by every engine's rules. Takes seconds.

python scripts/gallery.py
"""

from __future__ import annotations

import json
from pathlib import Path

from ropewalk.report import gallery, gallery_page

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "tests" / "checkpoints"
PAGE = ROOT / "docs" / "gallery.html"


def made() -> str:
    whole = json.loads((CONFIGS / "published_sources.json").read_text(encoding="utf-8"))["whole"]
    sources = {
        name: f"https://github.com/{one['repository']}/blob/{one['commit']}/{one['path']}"
        for name, one in whole.items()
    }  # fmt: skip
    paths = sorted(file for folder in ("published", "whole") for file in (CONFIGS / folder).glob("*.json"))
    return gallery_page.page(gallery.gather(paths, sources))


if __name__ == "__main__":
    PAGE.write_text(made(), encoding="utf-8")
    print(PAGE.relative_to(ROOT))
