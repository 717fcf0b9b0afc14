"""What `eval` and `extend` share: the scaling that a person names, and one line on what is being computed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk.scaling import Scaling


def named_scaling(kind: str, factor: float | None, trained: int) -> Scaling:
    """The scaling of this kind, with those of the settings that it has."""
    from ropewalk.scaling import find

    cls = find(kind)
    given: dict[str, Any] = {"factor": factor, "trained": trained}
    return cls(**{name: value for name, value in given.items() if name in cls.model_fields and value is not None})


@contextmanager
def status_line(silent: bool) -> Iterator[Callable[[str], None]]:
    """Shows what is being computed, on a terminal, and erases it at the end."""
    shown = not silent and sys.stderr.isatty()

    def show(text: str) -> None:
        if shown:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        show("")
