"""The two sites: the same pages, a switch that stays on the page, nothing from elsewhere, search in Chinese."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
QUERIES = {
    "波长": "plot.html",
    "外推": "glossary.html",
    "缩放因子": "scalings/linear.html",
    "截断": "lengths.html",
    "梯度累积": "train.html",
    "左填充": "conformance.html",
    "变异体": "mutants.html",
    "分词器": "data.html",
    "退出码": "inspect.html",
    "抢占": "cluster.html",
    "首字节": "vectors.html",
    "键盘": "lab.html",
    "加权平均": "course/attention.html",
    "笔误": "course/errata.html",
    "斜坡": "scalings/llama3.html",
}
"""A word in the middle of sentences, and a page that must be among the first ten sections found."""


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


docs = script("docs")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("zensical")
    out = tmp_path_factory.mktemp("docs") / "site"
    run = [sys.executable, "scripts/docs.py", "--out", str(out)]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return out


def test_every_page_has_its_counterpart() -> None:
    assert docs.missing(docs.DOCS) == []


def test_a_page_without_a_counterpart_is_named(tmp_path: Path) -> None:
    for language, names in {"en": ("index", "extend"), "zh": ("index", "compare")}.items():
        (tmp_path / language).mkdir()
        for name in names:
            (tmp_path / language / f"{name}.md").write_text("# x\n", encoding="utf-8")
    (tmp_path / "site.yaml").write_text("pages: [[index]]\n", encoding="utf-8")
    assert docs.missing(tmp_path) == [
        "docs/zh/extend.md is missing: docs/en/extend.md has no counterpart",
        "docs/en/compare.md is missing: docs/zh/compare.md has no counterpart",
        "docs/en/extend.md has no place in `pages` of docs/site.yaml",
    ]


def test_the_switch_leads_to_the_same_page(site: Path) -> None:
    paths = {
        one: {page.relative_to(site / one).as_posix() for page in (site / one).rglob("*.html")} for one in ("en", "zh")
    }
    assert paths["en"] == paths["zh"]
    for language, other in (("en", "zh"), ("zh", "en")):
        for path in paths[language] - {"404.html"}:
            page = site / language / path
            (switch,) = re.findall(
                r'class="md-header__button language" href="([^"]+)"', page.read_text(encoding="utf-8")
            )
            assert (page.parent / switch).resolve() == site / other / path


def test_what_a_page_would_load_is_found(site: Path, tmp_path: Path) -> None:
    assert docs.from_elsewhere(site) == []
    page = '<meta http-equiv="Content-Security-Policy"><a href="https://a.org/">fine</a><script src="https://b.org/c.js"></script>'
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    (tmp_path / "page.css").write_text("@import '//d.org/e.css';", encoding="utf-8")
    (tmp_path / "open.html").write_text("<p>", encoding="utf-8")
    assert docs.from_elsewhere(tmp_path) == [
        "page.css loads //d.org/e.css",
        "page.html loads https://b.org/c.js",
        "open.html has no content policy",
    ]


def test_dead_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "en").mkdir()
    (tmp_path / "en" / "a.html").write_text('<a href="a.html#x"></a><a href="../zh/a.html"></a>', encoding="utf-8")
    assert docs.dead(tmp_path) == ["en/a.html: ../zh/a.html leads nowhere"]


def test_english_of_the_theme_that_is_gone_stops_the_build() -> None:
    assert docs.in_chinese('a("Search")', {'"Search"': '"搜索"'}) == 'a("搜索")'
    with pytest.raises(SystemExit, match='"Find" is not in the theme'):
        docs.in_chinese('a("Search")', {'"Find"': '"搜索"'})


def test_no_english_is_left_in_the_chinese_search(site: Path) -> None:
    (bundle,) = (site / "zh" / "assets" / "javascripts").glob("bundle.*.js")
    text = bundle.read_text(encoding="utf-8")
    for english in (
        '"Search"',
        "Search results",
        "No results",
        "Close search",
        '"Filters"',
        "Loading search",
        '"results"',
    ):
        assert english not in text


def test_chinese_words_find_their_page(site: Path) -> None:
    racer = pytest.importorskip("py_mini_racer")
    (worker,) = (site / "zh" / "assets" / "javascripts" / "workers").glob("search.*.js")
    index = (site / "zh" / "search.json").read_text(encoding="utf-8")
    # The page's own messages: 0 brings the index, 2 asks, 3 answers.
    empty = "{input: {type: 'operator', data: {operator: 'and', operands: []}}, aggregation: {input: []}}"
    with racer.MiniRacer() as engine:
        engine.eval("var said = [], self = {postMessage: m => said.push(m)}; 0")
        engine.eval(worker.read_text(encoding="utf-8") + "; 0")
        engine.eval(f"var index = {index}; self.onmessage({{data: {{type: 0, data: index}}}}); 0")

        def found(query: str) -> list[str]:
            ask = f"{{type: 2, data: {{input: {json.dumps(query)}, filter: {empty}}}}}"
            engine.eval(f"said = []; self.onmessage({{data: {ask}}}); 0")
            return json.loads(
                engine.eval("JSON.stringify(said[0].data.items.map(one => index.items[one.id].location))")
            )

        for query, page in QUERIES.items():
            assert page in [place.partition("#")[0] for place in found(query)], query
        assert found("量子力学") == []


def test_formulas_and_chinese_lines() -> None:
    pytest.importorskip("latex2mathml")
    markdown = pytest.importorskip("markdown")
    page = script("markdown_page")

    def convert(text: str) -> str:
        return markdown.Markdown(extensions=["tables", "toc", page.Page()]).convert(text)

    made = convert(r"$\theta_i$ and `$x$`, $5 and $6" + "\n\n" + r"$$a \, b$$")
    assert made.count("<math") == 2
    assert "<msub><mi>&#x003B8;</mi><mi>i</mi></msub>" in made
    assert "<code>$x$</code>, $5 and $6" in made
    assert 'display="block"' in made
    # Brackets that grow with their matrix, bars that neither grow nor stand apart.
    matrix = convert(r"$R \begin{pmatrix} a \\ b \end{pmatrix}$, $2 \lvert x \rvert$")
    assert re.findall(r"<mo ([^>]*)>&#x0002[89];", matrix) == [
        'stretchy="true" fence="true" form="prefix"', 'stretchy="true" fence="true" form="postfix"',
    ]  # fmt: skip
    assert matrix.count('<mo stretchy="false" lspace="0em" rspace="0em">&#x0007C;') == 2
    # On a phone a row is a list, which needs the names of the columns.
    table = convert("| key | `default` | $x$ |\n|---|---|---|\n| a | b | c |")
    assert re.findall(r'<td data-column="([^"]*)">', table) == ["key", "default", ""]
    assert 'id="长度-a"' in convert("## 长度 A")
    # Line ends of Chinese text: no space between signs or beside a mark, one between a sign and a Latin word.
    assert convert("位置\n编码。\nRoPE\n缩放\n\n1. 甲。\n2. 乙") == (
        "<p>位置编码。RoPE\n缩放</p>\n<ol>\n<li>甲。</li>\n<li>乙</li>\n</ol>"
    )
    with pytest.raises(ValueError, match=r"does not convert \$\\frac\{\$"):
        convert(r"x $\frac{$")
