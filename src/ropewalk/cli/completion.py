"""What a shell offers when Tab is pressed, beyond the names of commands and options.

`ropewalk --install-completion` sets it up. Where nothing fits, the shell offers files.
"""

from __future__ import annotations

from collections.abc import Iterable

from ropewalk.cli import recipes


def recipe(typed: str) -> list[str]:
    return _fitting(typed, recipes.names())


def encoding(typed: str) -> list[str]:
    from ropewalk.encodings.find import names

    return _fitting(typed, names())


def scaling(typed: str) -> list[str]:
    from ropewalk.scaling import names

    return _fitting(typed, names())


def picture(typed: str) -> list[str]:
    from ropewalk.plot.catalogue import NAMES

    return _fitting(typed, NAMES)


def corpus(typed: str) -> list[str]:
    from ropewalk.data.corpora import CORPORA

    return _fitting(typed, CORPORA)


def _fitting(typed: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(typed)]
