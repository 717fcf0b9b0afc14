"""The lab in a real browser: silent, reachable by keys, without violations of axe, quick, restored by its link."""

from __future__ import annotations

from typing import Any

import pytest

from ropewalk.lab.page import PANELS, page
from tests.browser.driver import LOOKS, REPOSITORY, Opened, record

pytestmark = pytest.mark.browser

SLIDERS = ("to", "first", "second", "feature", "features", "position", "pair", "shift", "apart", "waves-pair",
           "scalings-to", "scalings-pair", "query", "key", "heads", "head", "window")  # fmt: skip
MOVE = """async (id) => {
  const slider = document.getElementById(id);
  const [low, high] = [Number(slider.min), Number(slider.max)];
  for (let i = 0; i < 24; i++) {
    slider.value = low + ((high - low) * ((7 * i) % 24)) / 23;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  }
}"""
FOCUSABLE = """() => [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
  .filter((one) => one.checkVisibility() && !(one.type === "radio" && !one.checked))
  .map((one, place) => (one.dataset.place = String(place)))"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("lab") / "lab.html"
    file.write_text(page(), encoding="utf-8")
    record({"bytes": file.stat().st_size})
    return file.as_uri()


@pytest.mark.parametrize(("lang", "scheme", "width"), LOOKS)
def test_it_is_silent_and_has_no_violations(browser: Any, address: str, lang: str, scheme: str, width: int) -> None:
    with Opened(browser, address, lang, scheme, width) as opened:
        at = opened.page
        for name in PANELS:
            at.locator(f"#{name}-data summary").click()
            at.locator(f"#{name}-numbers button").first.click()
            assert at.locator(f"#{name}-table tbody tr").count() > 10
            assert len(at.locator(f"#{name}-said").inner_text()) > 20
        for kind in ("t5", "t5both", "kerple", "kerplepower", "fire"):
            at.locator("#bias").select_option(kind)
        for model in ("phi-3-mini-128k", "gemma-4-31b", "mpt-7b", "opus-mt-en-de", "t5-small", ""):
            at.locator("#model").select_option(model)
            at.wait_for_timeout(300)
        at.locator("#product-float32").check()
        at.locator("#share").click()
        at.locator(f".languages [data-lang={'en' if lang == 'zh' else 'zh'}]").click()
        at.locator(f".languages [data-lang={lang}]").click()
        at.wait_for_timeout(300)
        assert at.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert opened.violations() == []
        assert opened.fetched() == []
        assert opened.messages == []
        record({f"{lang}, {scheme}, {width} px": "0 requests, 0 console messages, 0 violations of axe"})


def test_every_control_is_reached_and_moved_by_keys(browser: Any, address: str) -> None:
    with Opened(browser, address) as opened:
        at = opened.page
        wanted = set(at.evaluate(FOCUSABLE))
        reached = set()
        for _ in range(len(wanted) + 5):
            at.keyboard.press("Tab")
            reached.add(at.evaluate("document.activeElement.dataset.place ?? ''"))
        assert wanted <= reached
        for name in SLIDERS:
            shown = at.locator(f"#{name}-value")
            before = shown.inner_text()
            at.locator(f"#{name}").focus()
            at_end = at.locator(f"#{name}").evaluate("(one) => one.value === one.max")
            at.keyboard.press("ArrowLeft" if at_end else "ArrowRight")
            at.wait_for_timeout(60)
            assert shown.inner_text() != before, name
        at.locator("#position").focus()
        for key, want in (("ArrowRight", "100,002"), ("ArrowDown", "100,001"), ("End", "1,099,511,627,776")):
            at.keyboard.press(key)
            at.wait_for_timeout(60)
            assert at.locator("#position-value").inner_text() == want
        record({"controls reached by Tab": len(wanted)})


def test_a_link_restores_the_state(browser: Any, address: str) -> None:
    link = f"{address}#model=gpt-oss-20b&scaling=llama3&to=65536&pair=9&position=77777&product=float32&bias=t5&key=3"

    def shown(at: Any) -> list[str]:
        return [text for name in PANELS for text in at.locator(f"#{name}-numbers dd").all_inner_texts()]

    with Opened(browser, link) as opened:
        at = opened.page
        at.locator("#apart").focus()
        at.keyboard.press("ArrowRight")
        at.wait_for_timeout(500)
        wanted, made = shown(at), at.evaluate("location.href")
    with Opened(browser, made) as opened:
        assert shown(opened.page) == wanted
        assert opened.page.evaluate("location.href") == made
    with Opened(browser, address) as opened:
        assert shown(opened.page) != wanted


def test_what_is_copied_is_what_is_shown(browser: Any, address: str) -> None:
    with Opened(browser, address, permissions=["clipboard-read", "clipboard-write"]) as opened:
        opened.page.locator("#clocks-numbers button").nth(1).click()
        opened.page.wait_for_timeout(100)
        copied = opened.page.evaluate("navigator.clipboard.readText()")
        assert copied == opened.page.locator("#clocks-code").inner_text()
        assert "ropewalk.phase" in copied


def test_motion_is_slow_where_the_reader_wants_little(browser: Any, address: str) -> None:
    moved = {}
    for motion in ("no-preference", "reduce"):
        with Opened(browser, address, reduced_motion=motion) as opened:
            at = opened.page
            assert at.locator("#position-value").inner_text() == "100,000"
            at.locator("#play").click()
            at.wait_for_timeout(900)
            at.locator("#play").click()
            at.wait_for_timeout(100)
            moved[motion] = int(at.locator("#position-value").inner_text().replace(",", "")) - 100_000
    assert moved["reduce"] <= 1 < 3 < moved["no-preference"]


def test_without_scripts_it_says_so(browser: Any, address: str) -> None:
    with Opened(browser, address, java_script_enabled=False) as opened:
        assert "JavaScript" in opened.page.locator("noscript").inner_text()


@pytest.mark.parametrize(("lang", "name"), [("en", "lab.png"), ("zh", "lab.zh.png")])
def test_the_picture_of_the_readme_is_drawn(browser: Any, address: str, lang: str, name: str) -> None:
    file = REPOSITORY / "docs" / "pictures" / name
    with Opened(browser, address, lang) as opened:
        # To the end of the sentence under the clocks.
        ends = opened.page.locator("#clocks-said").bounding_box()
        box = opened.page.locator("#clocks").bounding_box()
        size = {**box, "height": ends["y"] + ends["height"] - box["y"]}
        opened.page.screenshot(path=file, clip=size, full_page=True)
    assert 10_000 < file.stat().st_size < 200_000


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gemma-4-31b"])
def test_a_slider_is_followed_within_50_ms(browser: Any, address: str, model: str) -> None:
    """Time of the page's own thread for one step, with script, style, layout and paint; other work does not count."""
    found = {}
    with Opened(browser, f"{address}#model={model}") as opened:
        at = opened.page
        inspector = opened.context.new_cdp_session(at)
        inspector.send("Performance.enable", {"timeDomain": "threadTicks"})

        def spent() -> float:
            metrics = inspector.send("Performance.getMetrics")["metrics"]
            return next(one["value"] for one in metrics if one["name"] == "TaskDuration")

        for name in SLIDERS:
            at.evaluate("(id) => document.getElementById(id).scrollIntoView({ block: 'center' })", name)
            at.wait_for_timeout(350)
            before = spent()
            at.evaluate(MOVE, name)
            found[name] = round(1000 * (spent() - before) / 24, 1)
    record({f"ms for one step of a slider, {model}": found})
    assert max(found.values()) < 50
