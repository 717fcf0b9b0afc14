"""Halves of the seeds of one recipe are called different only where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from campaigns.anchors import split, worse


def seeds(means: Any) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    hard = rng.normal(3.0, 0.5, 12)
    return [{"same_tokens": {256: list(hard + mean + rng.normal(0, 1e-3, 12))}} for mean in means]


def test_seeds_of_one_recipe_are_seldom_called_different() -> None:
    assert split(seeds(np.random.default_rng(1).normal(0, 0.01, 10)), 256) <= 0.07


def test_two_recipes_among_the_seeds_are_found() -> None:
    """Only where a half has all seeds of one of them, which is the case in 2 of 252 ways."""
    noise = np.random.default_rng(2).normal(0, 0.01, 10)
    assert split(seeds(noise + np.repeat([0.0, 1.0], 5)), 256) == pytest.approx(2 / 252)


def test_perplexity_is_compared_with_that_at_the_trained_length() -> None:
    arms = {
        "alibi": {"same_tokens": {"256": [2.0, 2.2], "512": [2.1, 2.3]}},
        "learned": {"same_tokens": {"256": [2.0], "512": "cannot"}},
    }
    found = worse({"trained": 256, "lengths": [256, 512], "arms": arms}, 512)
    assert found == {"alibi": pytest.approx(np.exp(0.1)), "learned": None}
