"""A page in chromium: what it asks for, what it says on the console, what keys reach, what axe finds.

`driver` says what is needed for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.browser import driver

WIDTHS = (1280, 390)
LANGUAGES = {"en": "en", "zh": "zh-CN"}
SCHEMES = ("light", "dark")
FOCUSABLE = "a[href], button, summary, input, select, textarea, [tabindex='0']"
VISIBLE = """(selector) => [...document.querySelectorAll(selector)].filter(one =>
  one.checkVisibility({visibilityProperty: true}) && !one.disabled)"""


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=driver.chromium(), args=list(driver.FLAGS))
        yield browser
        browser.close()


def look(browser: Any, path: Path, pictures: Path | None = None) -> dict[str, Any]:
    """Everything that is to be known of one page, in every language, width and scheme of colours."""
    found: dict[str, Any] = {"requests": [], "messages": [], "overflows": [], "axe": [], "keys": [], "controls": 0}
    for language, tag in LANGUAGES.items():
        for scheme in SCHEMES:
            for width in WIDTHS:
                page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
                _listen(page, path, found)
                page.goto(f"file://{path}?lang={language}")
                place = f"{language}, {scheme}, {width}"
                assert page.evaluate("document.documentElement.lang") == tag, place
                if pictures is not None:
                    page.screenshot(path=pictures / f"{path.stem}-{width}-{scheme}-{language}.png", full_page=True)
                _overflow(page, width, place, found)
                page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
                _overflow(page, width, f"{place}, all opened", found)
                # Slow on a long page: on the narrow one each language has one scheme of colours.
                if width == WIDTHS[0] or (language, scheme) in (("en", "light"), ("zh", "dark")):
                    _axe(page, place, found)
                page.close()
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        _listen(page, path, found)
        page.goto(f"file://{path}?lang={language}")
        found["controls"] = max(found["controls"], _reach(page, language, found))
        _use(page, language, found)
        page.close()
    _switch(browser, path, found)
    return found


def wrong(found: dict[str, Any]) -> list[str]:
    """What is not as it must be, in words."""
    said = [f"{kind}: {one}" for kind in ("requests", "messages", "overflows", "axe", "keys") for one in found[kind]]
    return said if found["controls"] else [*said, "keys: nothing can be reached"]


def _listen(page: Any, path: Path, found: dict[str, Any]) -> None:
    def asked(request: Any) -> None:
        if request.url.partition("?")[0].partition("#")[0] != f"file://{path}":
            found["requests"].append(request.url[:200])

    page.on("request", asked)
    page.on("console", lambda message: found["messages"].append(message.text[:200]))
    page.on("pageerror", lambda error: found["messages"].append(str(error)[:200]))


def _overflow(page: Any, width: int, place: str, found: dict[str, Any]) -> None:
    wide = page.evaluate("document.documentElement.scrollWidth")
    if wide > width:
        found["overflows"].append(f"{place}: {wide} px")


def _axe(page: Any, place: str, found: dict[str, Any]) -> None:
    page.evaluate(driver.axe() + "\n;0")
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    for one in result["violations"]:
        first = one["nodes"][0]
        found["axe"].append(f"{place}: {one['id']} x{len(one['nodes'])}, {first['html'][:160]}")


def _reach(page: Any, language: str, found: dict[str, Any]) -> int:
    """Every control that is seen gets the focus by Tab, in the order of the page, and shows it."""
    count = page.evaluate(
        f"(selector) => {{ window.seen = ({VISIBLE})(selector); return window.seen.length; }}", FOCUSABLE
    )
    reached = []
    for _ in range(count):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("window.seen.indexOf(document.activeElement)"))
    if reached != list(range(count)):
        missing = sorted(set(range(count)) - set(reached))[:3]
        names = page.evaluate("(places) => places.map(one => window.seen[one].outerHTML.slice(0, 120))", missing)
        found["keys"].append(f"{language}: Tab does not reach {names or 'them in order'}")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    if count and outline == "none":
        found["keys"].append(f"{language}: the focus is not shown")
    return count


def _use(page: Any, language: str, found: dict[str, Any]) -> None:
    """Each fold opens and each column sorts by a key."""
    folds, heads = page.locator("summary"), page.locator("table.sorts thead button")
    for place in range(folds.count()):
        one = folds.nth(place)
        if not one.is_visible():
            continue
        before = one.evaluate("one => one.parentElement.open")
        one.focus()
        page.keyboard.press("Enter")
        if one.evaluate("one => one.parentElement.open") == before:
            found["keys"].append(f"{language}: Enter does not open fold {place}")
        if not before:
            page.keyboard.press("Enter")
    for place in range(heads.count()):
        one = heads.nth(place)
        if not one.is_visible():
            continue
        one.focus()
        for want in ("ascending", "descending", None):
            page.keyboard.press("Enter")
            if one.evaluate("one => one.parentElement.getAttribute('aria-sort')") != want:
                found["keys"].append(f"{language}: Enter does not sort column {place} {want}")
            elif want and not one.evaluate(f"(one) => ({SORTED})(one, {1 if want == 'ascending' else -1})"):
                found["keys"].append(f"{language}: column {place} is not sorted, {want}")


SORTED = """(button, sign) => {
  const head = button.parentElement, column = head.cellIndex;
  const rows = [...head.closest('table').tBodies[0].rows];
  const values = rows.map(row => row.cells[column].dataset.value ?? row.cells[column].textContent);
  const numbers = values.map(Number), plain = values.every((one, i) => one !== '' && Number.isFinite(numbers[i]));
  const keys = plain ? numbers : values.some((one, i) => one !== '' && Number.isFinite(numbers[i])) ? null : values;
  return keys === null || keys.every((one, i) => i === 0 || (sign > 0 ? keys[i - 1] <= one : keys[i - 1] >= one));
}"""


def _switch(browser: Any, path: Path, found: dict[str, Any]) -> None:
    """The language by keys alone, title and all, and kept for the next page."""
    page = browser.new_page(locale="en-US")
    _listen(page, path, found)
    page.goto(f"file://{path}")
    first = page.evaluate("[document.documentElement.lang, document.title]")
    for _ in range(2):
        page.keyboard.press("Tab")
    page.keyboard.press("Space")
    second = page.evaluate("[document.documentElement.lang, document.title]")
    if (first[0], second[0]) != ("en", "zh-CN") or first[1] == second[1]:
        found["keys"].append(f"the language is not switched by keys: {first}, {second}")
    page.reload()
    if page.evaluate("document.documentElement.lang") != "zh-CN":
        found["keys"].append("the language is not kept")
    page.close()
