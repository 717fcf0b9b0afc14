"""Python-Markdown for the sites: formulas as MathML, Chinese lines, and GitHub's anchors."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from markdown.treeprocessors import Treeprocessor

# $x$ and $$x$$; "$5 and $6" is no formula, since a space stands before its second dollar.
FORMULA = r"(?<![\\$])(\$\$?)(?!\s)([^$]+?)(?<![\s\\])\1(?!\d)"


CHINESE = "\u3000-\u303f\u4e00-\u9fff\uff00-\uffef"
MARKS = "\u3001\u3002\u201c\u201d\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f"
# A browser shows the end of a line as a space, which Chinese does not have: not between two signs, nor beside a mark.
LINE_END = re.compile(
    rf"(?<=[{CHINESE}])\n *(?=[{CHINESE}])|(?<=[{MARKS}])\n *(?!\d+\. )(?=[\w`*\[])|(?<=[\w`*)])\n *(?=[{MARKS}])"
)


# |x| and ||x||, which a browser would stretch, or set with the spaces of a relation.
BAR = re.compile(r'<mo(?: stretchy="false")?(?=>&#x0(?:007C|2016);)')
STASHED = re.compile("\x02.*?\x03")


class Lines(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        return LINE_END.sub("", "\n".join(lines)).split("\n")


class Formula(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str | ElementTree.Element, int, int]:  # noqa: N802
        # Brackets of a matrix grow with it only after \left and \right.
        formula = (
            m[2].replace(r"\begin{pmatrix}", r"\left(\begin{matrix}").replace(r"\end{pmatrix}", r"\end{matrix}\right)")
        )
        try:
            made = convert(formula, display="block" if m[1] == "$$" else "inline")
        except Exception as problem:
            raise ValueError(f"latex2mathml does not convert {m[0]}: {type(problem).__name__}") from None
        made = BAR.sub('<mo stretchy="false" lspace="0em" rspace="0em"', made)
        if m[1] == "$$":
            made = f'<div class="formula">{made}</div>'  # which scrolls on a narrow screen, as a formula does not
        return self.md.htmlStash.store(made), m.start(0), m.end(0)


class Cells(Treeprocessor):
    """Each cell of a table gets the name of its column: on a phone a row is shown as a list (site.css)."""

    def run(self, root: ElementTree.Element) -> None:
        for table in root.iter("table"):
            names = [STASHED.sub("", "".join(head.itertext())).strip() for head in table.iter("th")]
            for row in table.iter("tr"):
                for name, cell in zip(names, row.findall("td"), strict=False):
                    cell.set("data-column", name)


def anchor(title: str, separator: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", separator)


class Page(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        # After code (190), before escapes (180), which would take the backslashes out of a formula.
        md.inlinePatterns.register(Formula(FORMULA, md), "formula", 185)
        # After fenced blocks (25), which are kept out of the text by then.
        md.preprocessors.register(Lines(md), "lines", 5)
        # After inline code and emphasis (20) became elements.
        md.treeprocessors.register(Cells(md), "cells", 15)
        md.treeprocessors["toc"].slugify = anchor


def makeExtension(**settings: object) -> Page:  # noqa: N802
    return Page(**settings)
