"""Builds the English and the Chinese site from docs/en and docs/zh, without a network, in seconds.

    pip install --group docs -c constraints.txt
    python scripts/docs.py [--out site]

It fails at a page that only one language has, a page without a place in docs/site.yaml, a dead link, a formula that
does not convert, an English word of the theme that is not found, and anything that a page would load from elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SOURCE = "https://github.com/ropewalk/ropewalk"
LANGUAGES = ("en", "zh")
FIRST = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>Ropewalk</title>
<script>location.replace((/^zh/i.test(navigator.language) ? "zh" : "en") + "/index.html")</script>
<p><a href="en/index.html">English</a> · <a href="zh/index.html" lang="zh">中文</a></p>
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=Path("site"), help="where to write; what is there is replaced")
    out = options.parse_args().out.resolve()
    if out.exists() and not (out / "en" / "index.html").exists() and any(out.iterdir()):
        sys.exit(f"{out} holds something else than a site; give another --out")
    if problems := missing(DOCS):
        sys.exit("\n".join(problems))
    settings = yaml.safe_load((DOCS / "site.yaml").read_text(encoding="utf-8"))
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(DOCS / "pictures", out / "pictures")
    for name in ("gallery.html", "scoreboard.html"):
        text = (DOCS / name).read_text(encoding="utf-8")
        (out / name).write_text(text.replace("en/conformance.md#", "en/conformance.html#"), encoding="utf-8")
    for language in LANGUAGES:
        build(language, settings, out / language)
    words = settings["search"]
    (script,) = (out / "zh/assets/javascripts").glob("bundle.*.js")
    script.write_text(in_chinese(script.read_text(encoding="utf-8"), words), encoding="utf-8")
    (out / "index.html").write_text(FIRST, encoding="utf-8")
    if problems := [*dead(out), *from_elsewhere(out)]:
        sys.exit("\n".join(problems))
    print(f"{out}: {len(list(out.rglob('*.html')))} pages")


def pages(docs: Path, language: str) -> set[str]:
    return {path.relative_to(docs / language).as_posix() for path in (docs / language).rglob("*.md")}


def missing(docs: Path) -> list[str]:
    """Pages that one language has and the other, or the navigation, has not."""
    settings = yaml.safe_load((docs / "site.yaml").read_text(encoding="utf-8"))
    english, chinese = pages(docs, "en"), pages(docs, "zh")
    placed = {f"{name}.md" for section in settings["pages"] for name in section}
    return [
        *(f"docs/zh/{name} is missing: docs/en/{name} has no counterpart" for name in sorted(english - chinese)),
        *(f"docs/en/{name} is missing: docs/zh/{name} has no counterpart" for name in sorted(chinese - english)),
        *(f"docs/en/{name} has no place in `pages` of docs/site.yaml" for name in sorted(english - placed)),
        *(f"docs/site.yaml places {name}, which is not in docs/en" for name in sorted(placed - english)),
    ]


def build(language: str, settings: dict[str, Any], out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for name in pages(DOCS, language):
            (work / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
            text = (DOCS / language / name).read_text(encoding="utf-8")
            (work / "docs" / name).write_text(outward(text, name.count("/")), encoding="utf-8")
        shutil.copy(DOCS / "overrides" / "site.css", work / "docs" / "site.css")
        shutil.copytree(DOCS / "overrides", work / "overrides")
        # JSON is YAML.
        (work / "mkdocs.yml").write_text(json.dumps(config(language, settings)), encoding="utf-8")
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "-f", str(work / "mkdocs.yml")]
        ambient = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
        done = subprocess.run(command, cwd=work, env=ambient, capture_output=True, text=True, check=False)
        if done.returncode:
            # The reader needs the place and the reason, not colours and the theme's own stack.
            said = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
            sys.exit(f"docs/{language}:\n" + re.sub(r"Traceback.*\n(?:  .*\n)*", "", said))
        shutil.copytree(work / "site", out)


def outward(text: str, depth: int = 0) -> str:
    """Links to files of the repository outside docs, by their address on GitHub; `depth`: folders the page is in."""
    return re.sub(rf"\]\((?:\.\./){{{2 + depth}}}((?!\.)[^()\s]+)\)", rf"]({SOURCE}/blob/main/\1)", text)


def config(language: str, settings: dict[str, Any]) -> dict[str, Any]:
    words = settings[language]
    palettes = (("auto", "", None), ("light", ": light", "default"), ("dark", ": dark", "slate"))
    nav: list[Any] = []
    for title, names in zip(words["sections"], settings["pages"], strict=True):
        short = words["short"]
        files = [{short[name]: f"{name}.md"} if name in short else f"{name}.md" for name in names]
        nav += files if files == ["index.md"] else [{title: files}]
    return {
        "site_name": words["site_name"],
        "site_description": words["description"],
        "use_directory_urls": False,
        "extra_css": ["site.css"],
        "nav": nav,
        "theme": {
            "name": "material",
            "language": words["lang"],
            "custom_dir": "overrides",
            "font": False,
            "features": ["content.code.copy", "navigation.footer", "navigation.top"],
            "palette": [
                {
                    "media": f"(prefers-color-scheme{media})",
                    **({"scheme": scheme} if scheme else {}),
                    "toggle": {"icon": icon, "name": words[name]},
                }
                for (name, media, scheme), icon in zip(
                    palettes, ("lucide/sun-moon", "lucide/sun", "lucide/moon"), strict=True
                )
            ],
        },
        "extra": {
            "generator": False,
            # The header shows partials/alternate.html where this is set; the addresses are made there.
            "alternate": True,
            "folder": language,
            "missing": words["missing"],
            "languages": [
                {"folder": one, "lang": settings[one]["lang"], "name": settings[one]["name"]} for one in LANGUAGES
            ],
        },
        "markdown_extensions": [
            "attr_list",
            "footnotes",
            "md_in_html",
            "tables",
            {"toc": {"permalink": True}},
            {"pymdownx.highlight": {"pygments_lang_class": True}},
            "pymdownx.superfences",
            "markdown_page",
        ],
    }  # fmt: skip


def in_chinese(script: str, words: dict[str, str]) -> str:
    for english, chinese in words.items():
        if english not in script:
            sys.exit(f"docs/site.yaml, search: {english} is not in the theme's script any more")
        script = script.replace(english, chinese)
    return script


def dead(out: Path) -> list[str]:
    """Links of pages that lead nowhere: those between the two sites, too, which each build alone cannot see."""
    return [
        f"{page.relative_to(out)}: {link} leads nowhere"
        for page in sorted(out.glob("*/**/*.html"))
        if page.name != "404.html"
        for link in re.findall(r'(?:href|src)="([^"#?]+)', page.read_text(encoding="utf-8"))
        if not re.match(r"[a-z]+:", link) and not (page.parent / link).exists()
    ]


def from_elsewhere(out: Path) -> list[str]:
    """What a page or a style sheet would load from another address; a link to follow is not loaded."""
    loads = re.compile(
        r"""<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|srcset|data)=["']?((?:https?:)?//[^"'\s>]+)"""
        r"""|<link\b(?![^>]*rel=["']?(?:canonical|alternate))[^>]*?\bhref=["']?((?:https?:)?//[^"'\s>]+)"""
        r"""|(?:url\(|@import\s*)["']?((?:https?:)?//[^"')\s]+)"""
    )
    found = [
        f"{file.relative_to(out)} loads {next(filter(None, match.groups()))}"
        for file in sorted([*out.rglob("*.html"), *out.rglob("*.css"), *out.rglob("*.svg")])
        for match in loads.finditer(file.read_text(encoding="utf-8"))
    ]
    found += [
        f"{page.relative_to(out)} has no content policy"
        for page in sorted(out.rglob("*.html"))
        if page != out / "index.html" and "Content-Security-Policy" not in page.read_text(encoding="utf-8")
    ]
    return found


if __name__ == "__main__":
    main()
