"""What the rules of the engines say, for pages: in both languages, with links to public issues."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

import yaml

from ropewalk.report.markup import Content, Html, html, link

REPOSITORIES = {
    "transformers": "huggingface/transformers",
    "vllm": "vllm-project/vllm",
    "llama.cpp": "ggml-org/llama.cpp",
    "miles": "radixark/miles",
    "mlx-lm": "ml-explore/mlx-lm",
    "sglang": "sgl-project/sglang",
}
"""As issues are written in the rules, and where they are."""


def told(text: str) -> dict[str, str]:
    """A sentence of a rule in both languages; in English alone where it has no Chinese."""
    for pattern, chinese in _sentences():
        if found := pattern.fullmatch(text):
            return {"en": text, "zh": chinese.format(**found.groupdict())}
    return {"en": text}


def linked(issue: str) -> Html:
    """vllm#1, transformers#2 (a word on it): each number a link, where its repository is known."""
    parts: list[Content] = []
    place = 0
    for found in re.finditer(r"([\w.-]+)#(\d+)", issue):
        name, number = found.groups()
        parts.append(_remark(issue[place : found.start()]))
        known = REPOSITORIES.get(name)
        parts.append(link(f"https://github.com/{known}/issues/{number}", found[0]) if known else found[0])
        place = found.end()
    return html([*parts, _remark(issue[place:])])


def _remark(text: str) -> Content:
    """What stands between the numbers of issues: a word on one of them, in brackets."""
    bare = text.strip(" (),")
    return [" (", told(bare), ")"] if bare else text


@cache
def _sentences() -> list[tuple[re.Pattern[str], str]]:
    text = (files("ropewalk.report") / "engine_words.yaml").read_text(encoding="utf-8")
    # The most exact first: a name takes any words that the rest of a sentence leaves.
    pairs = sorted(yaml.safe_load(text), key=lambda pair: (pair["en"].count("{"), -len(pair["en"])))
    return [(re.compile(_pattern(pair["en"])), pair["zh"]) for pair in pairs]


def _pattern(sentence: str) -> str:
    parts = re.split(r"\{(\w+)\}", sentence)
    return "".join(re.escape(part) if place % 2 == 0 else f"(?P<{part}>.+?)" for place, part in enumerate(parts))
