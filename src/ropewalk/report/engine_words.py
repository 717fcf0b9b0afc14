"""What is said of a config and of the engines, for pages: in both languages, with links to public issues."""

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
WORDS = ("config", "engine")
"""Files of sentences: of checkpoints/resolve and inspect, and of checkpoints/engines."""


LONGEST, DEEPEST = 400, 4
"""Signs of a sentence that is looked for, and how deep one may stand in another: a hostile config fills in what it
likes."""


def told(text: str) -> dict[str, str]:
    """A sentence in both languages; in English alone where it, or one that is a part of it, has no Chinese."""
    chinese = _chinese(text) if len(text) <= LONGEST else None
    return {"en": text} if chinese is None else {"en": text, "zh": chinese}


def both(text: str) -> dict[str, str]:
    """To fill into words that have both languages: English where there is no Chinese."""
    return {"zh": text, **told(text)}


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


def _chinese(text: str, depth: int = 0) -> str | None:
    for pattern, chinese in _sentences() if depth < DEEPEST else ():
        if found := pattern.fullmatch(text):
            parts = {name: _part(name, value, depth + 1) for name, value in found.groupdict().items()}
            if None not in parts.values():
                return chinese.format(**parts)
    return None


def _part(name: str, value: str, depth: int) -> str | None:
    """What is filled in: {why} is a sentence itself, {all} several, {perhaps} one or any words."""
    if name.startswith("why"):
        return _chinese(value, depth)
    if name == "all":
        each = [_chinese(one, depth) for one in value.split(" and ")]
        return None if None in each else "、".join(filter(None, each))
    return _chinese(value, depth) or value if name == "perhaps" else value


@cache
def _sentences() -> list[tuple[re.Pattern[str], str]]:
    texts = [(files("ropewalk.report") / f"{name}_words.yaml").read_text(encoding="utf-8") for name in WORDS]
    pairs = [pair for text in texts for pair in yaml.safe_load(text)]
    # The most exact first: a name takes any words that the rest of a sentence leaves.
    pairs.sort(key=lambda pair: (pair["en"].count("{"), -len(pair["en"])))
    return [(re.compile(_pattern(pair["en"])), pair["zh"]) for pair in pairs]


def _pattern(sentence: str) -> str:
    parts = re.split(r"\{(\w+)\}", sentence)
    return "".join(re.escape(part) if place % 2 == 0 else f"(?P<{part}>.+?)" for place, part in enumerate(parts))
