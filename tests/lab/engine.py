"""The lab's scripts in V8, as a browser runs them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FACTS = ("sinusoidFacts", "clockFacts", "relativeFacts", "wavelengthFacts", "scalingFacts", "biasFacts")
"""What each panel shows, by the function that gives it."""


@contextmanager
def engine(source: str) -> Iterator[Callable[..., Any]]:
    """call("name of a function", arguments): integers past 2^53 come and go as text."""
    # Closed at the end: V8's threads would keep the interpreter from ending.
    with pytest.importorskip("py_mini_racer").MiniRacer() as context:
        context.eval(source)

        def call(expression: str, *arguments: Any) -> Any:
            given = ", ".join(json.dumps(argument) for argument in arguments)
            shown = f"JSON.stringify(({expression})({given}), (_, v) => typeof v === 'bigint' ? String(v) : v)"
            return json.loads(context.eval(shown))

        yield call
