"""Debian's chromium, driven by playwright, with axe-core: what a page does in a real browser.

    pip install playwright; npm install axe-core; scripts/test -m browser

CI has no browser, so this is run by hand, and what was found is kept in campaigns/results/lab_browser.json.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "campaigns" / "results" / "lab_browser.json"
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-quic",
)  # fmt: skip
LOOKS = [(lang, scheme, width) for lang in ("en", "zh") for scheme in ("light", "dark") for width in (1280, 390)]
"""Every page in both languages, light and dark, on a desk and on a telephone."""


def chromium() -> str:
    found = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not found:
        pytest.skip("chromium is not installed; apt-get install chromium, or set CHROMIUM to its path")
    return found


def axe() -> str:
    """The source of axe-core."""
    place = Path(os.environ.get("AXE", REPOSITORY / "node_modules/axe-core/axe.min.js"))
    if not place.exists():
        pytest.skip(f"{place} is not there; npm install axe-core, or set AXE to the path of axe.min.js")
    return place.read_text(encoding="utf-8")


class Opened:
    """One page in a profile of its own, and all that it asked for and said."""

    def __init__(
        self, browser: Any, address: str, lang: str = "en", scheme: str = "light", width: int = 1280, **more: Any
    ):
        locale = {"en": "en-US", "zh": "zh-CN"}[lang]
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, locale=locale, **more
        )
        self.requests: list[str] = []
        self.messages: list[str] = []
        self.page = self.context.new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.goto(address)
        self.page.wait_for_timeout(400)

    def fetched(self) -> list[str]:
        """Whatever it asked for beside itself."""
        return self.requests[1:]

    def violations(self) -> list[str]:
        self.page.evaluate(axe())
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [f"{one['id']}: {[node['target'] for node in one['nodes']]}" for one in found["violations"]]

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


def record(found: dict[str, Any]) -> None:
    """Keeps what was found, beside the rest."""
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**known, **found}, indent=1) + "\n", encoding="utf-8")
