"""Whole configs: where each is from, and that saving one again with every default of transformers changes no plan."""

from __future__ import annotations

import re

import pytest
from transformers import CONFIG_MAPPING

from ropewalk.checkpoints.resolve import resolve
from tests.checkpoints import published

PLANS = published.plans()
SOURCES = published.sources()
# transformers 5 no longer reads Phi-3's first name of longrope, and has none of the types that bring their own code.
SAVED_AGAIN = [
    name
    for name in published.names()
    if not PLANS[name].startswith("error")
    and published.config(name)["model_type"] in CONFIG_MAPPING
    and name != "phi-3-mini-128k-su"
]


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_a_whole_config_says_where_it_is_from(name: str) -> None:
    source = SOURCES[name]
    assert set(source) <= {"repository", "path", "commit", "note"}
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", source["repository"])
    assert re.fullmatch(r"[0-9a-f]{40}", source["commit"])
    config = published.config(name)
    written_by_transformers = {"architectures", "transformers_version", "torch_dtype", "dtype", "use_cache"}
    assert len(written_by_transformers & config.keys()) >= 2
    assert sum(len(value) if isinstance(value, dict) else 1 for value in config.values()) >= 19


def test_saving_again_covers_the_corpus() -> None:
    assert len(SAVED_AGAIN) >= 90


@pytest.mark.parametrize("name", SAVED_AGAIN)
def test_a_config_saved_again_by_transformers_has_the_same_plan(name: str) -> None:
    config = published.config(name)
    again = published.resaved(config)
    assert len(again) > len(config) or name in SOURCES  # blocks become whole
    assert published.said(resolve(again, name=name)) == PLANS[name]
