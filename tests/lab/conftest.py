from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ropewalk.lab import source
from tests.lab.engine import FACTS, engine


@pytest.fixture(scope="session")
def call() -> Iterator[Any]:
    """All scripts that need no document, and the checkpoints. call("shown", "clockFacts", link): what a panel shows."""
    every = json.dumps(json.loads(source.text("checkpoints.json")))
    source_of_all = (
        f"{source.without_document()}\nfor (const one of {every}) CHECKPOINTS.set(one.name, one);\n"
        f"const FACTS = {{{', '.join(FACTS)}}};\nconst shown = (panel, link) => FACTS[panel](fromLink(link));"
    )
    with engine(source_of_all) as made:
        yield made
