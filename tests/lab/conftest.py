from __future__ import annotations

import json
from typing import Any

import pytest

from ropewalk.lab import source
from tests.lab.engine import FACTS, engine


@pytest.fixture(scope="session")
def call() -> Any:
    """All scripts that need no document, and the checkpoints. call("shown", "clockFacts", link): what a panel shows."""
    every = json.dumps(json.loads(source.text("checkpoints.json")))
    return engine(
        f"{source.without_document()}\nfor (const one of {every}) CHECKPOINTS.set(one.name, one);\n"
        f"const FACTS = {{{', '.join(FACTS)}}};\nconst shown = (panel, link) => FACTS[panel](fromLink(link));"
    )
