"""Python-Markdown for the sites: formulas as MathML, Chinese lines, and GitHub's anchors."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

# $x$ and $$x$$; "$5 and $6" is no formula, since a space stands before its second dollar.
FORMULA = r"(?<![\\$])(\$\$?)(?!\s)([^$]+?)(?<![\s\\])\1(?!\d)"


CHINESE = "\u3000-\u303f\u4e00-\u9fff\uff00-\uffef"
MARKS = "\u3001\u3002\u201c\u201d\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f"
# A browser shows the end of a line as a space, which Chinese does not have: not between two signs, nor beside a mark.
LINE_END = re.compile(
    rf"(?<=[{CHINESE}])\n *(?=[{CHINESE}])|(?<=[{MARKS}])\n *(?!\d+\. )(?=[\w`*\[])|(?<=[\w`*)])\n *(?=[{MARKS}])"
)


class Lines(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        return LINE_END.sub("", "\n".join(lines)).split("\n")


class Formula(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str | ElementTree.Element, int, int]:  # noqa: N802
        try:
            made = convert(m[2], display="block" if m[1] == "$$" else "inline")
        except Exception as problem:
            raise ValueError(f"latex2mathml does not convert {m[0]}: {type(problem).__name__}") from None
        if m[1] == "$$":
            made = f'<div class="formula">{made}</div>'  # which scrolls on a narrow screen, as a formula does not
        return self.md.htmlStash.store(made), m.start(0), m.end(0)


def anchor(title: str, separator: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", separator)


class Page(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        # After code (190), before escapes (180), which would take the backslashes out of a formula.
        md.inlinePatterns.register(Formula(FORMULA, md), "formula", 185)
        # After fenced blocks (25), which are kept out of the text by then.
        md.preprocessors.register(Lines(md), "lines", 5)
        md.treeprocessors["toc"].slugify = anchor


def makeExtension(**settings: object) -> Page:  # noqa: N802
    return Page(**settings)
