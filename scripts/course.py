"""Writes, under each claim of the course and of the pages of encodings and scalings, its article or paper, the line of
code and the tests that prove it. Takes a second.

    python scripts/course.py

These pages are Markdown. A section ### of one is a claim, and has one line like this:

    <!-- claim: test_a test_b | attention/eager.py | torch.softmax( -->

It names tests (those of tests/articles by their name alone, others as file::name), a file of src/ropewalk, and words of
the line that implements the claim. What stands after it, up to `<!-- /claim -->`, is written here. A section none of
whose tests exists any more is taken out. A test of tests/articles that no chapter names stops the script. After
`<!-- papers: 2104.09864 -->` stand these papers of docs/articles.yaml, with BibTeX.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
WORDS = yaml.safe_load((ROOT / "docs" / "articles.yaml").read_text(encoding="utf-8"))
FOLDERS = ("course", "encodings", "scalings")
CLAIM = re.compile(
    r"^<!-- claim: (?P<tests>[^|\n]+) \| (?P<file>\S+) \| (?P<words>.+) -->\n(?:(?:(?!<!-- ).*\n)*?<!-- /claim -->\n)?",
    re.MULTILINE,
)
PAPERS = re.compile(r"^<!-- papers: (.+) -->\n(?:(?:(?!<!-- ).*\n)*?<!-- /papers -->\n)?", re.MULTILINE)
SECTION = re.compile(r"^(?=#{1,3} )", re.MULTILINE)
ARTICLES = "tests/articles/"


def main() -> None:
    tests = all_tests(ROOT)
    before = {page: page.read_text(encoding="utf-8") for page in pages(ROOT)}
    after = {page: made(text, page.relative_to(ROOT / "docs").parts[0], tests) for page, text in before.items()}
    if problems := wrong({str(page.relative_to(ROOT)): text for page, text in after.items()}, tests):
        sys.exit("\n".join(problems))
    for page, text in after.items():
        page.write_text(text, encoding="utf-8")
    print(f"{len(after)} pages, {sum(len(claims(text)) for text in after.values())} claims")


def pages(root: Path) -> list[Path]:
    return sorted(
        page for one in ("en", "zh") for each in FOLDERS for page in (root / "docs" / one / each).glob("*.md")
    )


def all_tests(root: Path) -> dict[str, str]:
    """Every test, as file::name or, of tests/articles, by its name alone; and its file."""
    found = {}
    for file in sorted((root / "tests").rglob("test_*.py")):
        place = file.relative_to(root).as_posix()
        for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE):
            found[name if place.startswith(ARTICLES) else f"{place}::{name}"] = place
    return found


def claims(text: str) -> list[tuple[list[str], str, str]]:
    """The tests, the file and the words of each claim of a page."""
    return [(match["tests"].split(), match["file"], match["words"]) for match in CLAIM.finditer(text)]


def made(text: str, language: str, tests: dict[str, str]) -> str:
    """The page with each footer written anew, and without the claims whose tests are gone."""

    def written(match: re.Match[str]) -> str:
        known, file, words = [name for name in match["tests"].split() if name in tests], match["file"], match["words"]
        line = f"<!-- claim: {' '.join(known)} | {file} | {words} -->\n"
        return line + footer(known, file, words, language, tests) + "<!-- /claim -->\n"

    kept = []
    for part in SECTION.split(text):
        found = CLAIM.search(part)
        gone = found is not None and not any(name in tests for name in found["tests"].split())
        kept.append(part[found.end() :].lstrip("\n") if found and gone else part)
    return PAPERS.sub(bibliography, CLAIM.sub(written, "".join(kept)))


def bibliography(match: re.Match[str]) -> str:
    """Each paper named by its number on arXiv: a link, and BibTeX."""
    lines = []
    for number in match[1].split():
        one = WORDS["papers"][number]
        first = one["author"].partition(",")[0].replace(" ", "").lower()
        fields = {**one, "eprint": number, "archivePrefix": "arXiv"}
        lines += [
            f"[{one['title']}](https://arxiv.org/abs/{number}), {one['year']}.",
            "",
            "```bibtex",
            f"@misc{{{first}{one['year']},",
            *(f"  {key} = {{{value}}}," for key, value in fields.items()),
            "}",
            "```",
            "",
        ]
    return "\n".join([match[0].partition("\n")[0], *lines, "<!-- /papers -->", ""])


def footer(names: list[str], file: str, words: str, language: str, tests: dict[str, str]) -> str:
    said, source = WORDS["words"][language], (ROOT / "src" / "ropewalk" / file).read_text(encoding="utf-8")
    owner, line = implementing(source, words, file)
    links = [f"[`{name.partition('::')[2] or name}`](../../../{tests[name]})" for name in names]
    commands = [f"$ python -m pytest {tests[name]}::{name.rpartition('::')[2]}" for name in names]
    lines = [
        *cited(names, source, language, tests),
        f"- {said['code']}[`{file}`](../../../src/ropewalk/{file}){said['in']}`{owner}`{said['in']}`{line}`",
        f"- {said['test']}{said['and'].join(links)}",
        "",
        "```console",
        *commands,
        "```",
    ]
    return '<div class="proof" markdown="1">\n\n' + "\n".join(lines) + "\n\n</div>\n"


def cited(names: list[str], source: str, language: str, tests: dict[str, str]) -> list[str]:
    """The articles and their sections, as the tests' docstrings begin; for other tests the papers of the code."""
    said = WORDS["words"][language]
    places = list(dict.fromkeys(place for name in names for place in sections(name, tests)))
    if not places:
        numbers = list(
            dict.fromkeys(re.findall(r"arXiv[: ](\d{4}\.\d{5})", ast.get_docstring(ast.parse(source)) or ""))
        )
        papers = [f"[arXiv:{number}](https://arxiv.org/abs/{number})" for number in numbers]
        return [f"- {said['paper']}{said['and'].join(papers)}"] if papers else []
    by_article: dict[str, list[str]] = {}
    for article, section in places:
        shown = section if language == "en" or not section else WORDS["sections"][section]
        by_article.setdefault(WORDS["articles"][article], []).extend([shown] if shown else [])
    titles = [
        said["in"].join([said["title"].format(title), *dict.fromkeys(each)]) for title, each in by_article.items()
    ]
    return [f"- {said['article']}{said['then'].join(titles)}"]


def sections(name: str, tests: dict[str, str]) -> list[tuple[str, str]]:
    """(article, section) of a test of tests/articles: its docstring begins `attention, section 2; blocks, 1.2: ...`."""
    if "::" in name:
        return []
    said = docstrings(tests[name])[name].partition(": ")[0]
    return [(article, section) for article, _, section in (each.partition(", ") for each in said.split("; "))]


@cache
def docstrings(file: str) -> dict[str, str]:
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    return {node.name: ast.get_docstring(node) or "" for node in body if isinstance(node, ast.FunctionDef)}


@cache
def implementing(source: str, words: str, file: str) -> tuple[str, str]:
    """The function or class that holds the first line of code with these words, and the line."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    documented = {id(node): node.body[0] for node in nodes if ast.get_docstring(node, clean=False) is not None}
    prose = {n for node in documented.values() for n in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    head = ast.parse(source).body[0]
    for number, line in enumerate(source.splitlines(), 1):
        if words in line and number not in prose and number > (head.end_lineno or 0):
            around = [node.name for node in nodes if node.lineno <= number <= (node.end_lineno or node.lineno)]
            return ".".join(around) or Path(file).stem, line.partition("  # ")[0].strip()
    raise ValueError(f"src/ropewalk/{file} has no line with {words!r}; name another one in the claim")


def wrong(texts: dict[str, str], tests: dict[str, str]) -> list[str]:
    """Sections of the course that are no claims, claims that differ by language, tests that no chapter or two have."""
    found = [
        f"{page}: the section {part.partition(chr(10))[0]!r} has no claim, or two"
        for page, text in texts.items()
        for part in SECTION.split(text)
        if part.startswith("### ") and len(claims(part)) != 1
    ]
    english = [page for page in texts if page.startswith("docs/en/")]
    found += [
        f"{page}: its claims are not those of docs/zh"
        for page in english
        if claims(texts[page]) != claims(texts.get(page.replace("docs/en", "docs/zh"), ""))
    ]
    course = {page: [name for one in claims(texts[page]) for name in one[0]] for page in english if "/course/" in page}
    for name, file in tests.items():
        if file.startswith(ARTICLES):
            where = [page for page, names in course.items() for one in names if one == name]
            chapters = [page for page in where if not page.endswith("errata.md")]
            if not where or len(chapters) > 1 or len(where) - len(chapters) > 1:
                found.append(
                    f"{file}::{name} is in {', '.join(where) or 'no chapter of docs/en/course'}; put it in one"
                )
    return found


if __name__ == "__main__":
    main()
