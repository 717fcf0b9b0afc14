"""The words of a page, from the YAML file beside it: each text in both languages."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml


class Words:
    """words("key", count=3) is {"en": ..., "zh": ...} with the values filled in; a value may be such a mapping too."""

    def __init__(self, page: str) -> None:
        self._texts = load(page)

    def __call__(self, key: str, /, **values: Any) -> dict[str, str]:
        return {
            language: text.format(**{name: _in(language, value) for name, value in values.items()})
            for language, text in self._texts[key].items()
        }

    def table(self, key: str) -> dict[str, Any]:
        """Words by name, where a page has many of a kind."""
        return self._texts[key]


@cache
def load(page: str) -> dict[str, Any]:
    return yaml.safe_load((files("ropewalk.report") / f"{page}.yaml").read_text(encoding="utf-8"))


def _in(language: str, value: Any) -> Any:
    return value[language] if isinstance(value, dict) else value
