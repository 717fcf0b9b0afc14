"""Small prepared data, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from ropewalk.data.prepare.sample import sample


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample("text", tmp_path_factory.mktemp("data") / "text")


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample("pairs", tmp_path_factory.mktemp("data") / "pairs")
