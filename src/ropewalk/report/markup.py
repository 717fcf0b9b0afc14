"""HTML that is safe by construction: text is escaped unless it was made here.

element("p", "a < b", class_="soft")                 -> <p class="soft">a &lt; b</p>
element("p", {"en": "Nothing failed.", "zh": "..."}) -> both languages; the page shows one
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, TypeAlias

LANGUAGES = {"en": "en", "zh": "zh-CN"}
"""As words are kept, and as HTML names them."""
HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Signs that hide text, turn its direction or are none: a name out of a file can hold any of them."""
VOID = ("meta", "br", "hr", "input")


class Html(str):
    """Markup. Only what is built from escaped text may be one."""

    __slots__ = ()


Content: TypeAlias = "str | int | float | Mapping[str, Any] | Sequence[Any] | None"
"""Text, markup, {"en": ..., "zh": ...}, or a list of these."""


def html(content: Content) -> Html:
    """As markup: text escaped, a mapping as both languages, a list joined."""
    if isinstance(content, Html):
        return content
    if content is None:
        return Html()
    if isinstance(content, Mapping):
        return each_language("span", content)
    if isinstance(content, Sequence) and not isinstance(content, str):
        return Html("".join(html(one) for one in content))
    return Html(escape(clean(str(content))))


def clean(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(sign if sign == "\n" or unicodedata.category(sign) not in HIDDEN else "\ufffd" for sign in text)


def each_language(tag: str, contents: Mapping[str, Any], **attributes: Any) -> Html:
    """The same thing in each language; where there is only one language, that one always shows."""
    alone = len(contents) == 1
    same = len({html(content) for content in contents.values()}) == 1
    if same and not alone:
        content = next(iter(contents.values()))
        return html(content) if tag == "span" and not attributes else element(tag, content, **attributes)
    given = str(attributes.pop("class_", ""))
    classes = f"{given} only".strip() if alone else given
    return Html(
        "".join(
            element(tag, content, lang=LANGUAGES[language], class_=classes or None, **attributes)
            for language, content in contents.items()
        )
    )


def element(tag: str, *content: Any, **attributes: Any) -> Html:
    """One element. class_ is class, data_value is data-value; True is a bare attribute, None and False are none."""
    written = "".join(
        f" {_attribute(name)}" + ("" if value is True else f'="{escape(clean(str(value)))}"')
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    if tag in VOID:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{html(content)}</{tag}>")


def link(url: str, content: Content = None) -> Html:
    """To a page on the web or a place in this one; anything else a file may hold is shown and leads nowhere."""
    shown = url.removeprefix("https://github.com/") if content is None else content
    if url.startswith("https://"):
        return element("a", shown, href=url, rel="noreferrer")
    return element("a", shown, href=url) if url.startswith("#") else html(shown)


def anchor(*words: str) -> str:
    """A name within the page."""
    return "-".join("".join(sign if sign.isalnum() or sign in "._" else "-" for sign in clean(word)) for word in words)


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")
