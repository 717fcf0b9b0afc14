"""`ropewalk inspect` on whole published configs: its exit code and verdict, and that no key is dropped in silence."""

from __future__ import annotations

import pytest

from ropewalk.checkpoints.inspect.report import inspect
from ropewalk.checkpoints.resolve.hf import resolve
from tests.checkpoints import published
from tests.cli.conftest import Ropewalk

PLANS = published.plans()
WHOLE = sorted(published.sources())
READ = [name for name in WHOLE if not PLANS[name].startswith("error: ")]

AT_ODDS = {
    "deepseek-v2-lite": {"transformers4"},  # no gain on the scores before 5
    "devstral-small-2-24b": {"vllm"},  # no temperature on queries
    "e5-mistral-7b": {"sglang", "mlx"},  # no window
    "gemma-2-2b": {"mlx"},  # no windows
    "gpt-oss-20b": {"llama.cpp", "mlx"},  # rounds the ends of YaRN's ramp
    "gpt-oss-120b": {"llama.cpp", "mlx"},
    "internlm3-8b": {"vllm", "llama.cpp", "sglang", "mlx"},  # none changes the base with the longest text
    "minicpm3-4b": {"mlx"},  # another base where none is stated
    "mistral-7b-v0.1": {"llama.cpp", "sglang", "mlx"},  # no window
    "phi-3-mini-128k": {"llama.cpp", "sglang", "mlx"},  # the long list for every text, or for a batch
    "phi-4-mini": {"llama.cpp", "sglang", "mlx"},
    # Never the long list; always, and another gain.
    "phi-3.5-moe": {"transformers5", "transformers4", "llama.cpp", "sglang", "mlx"},
}
"""Engines that compute something else from a config than it says; of all others none does."""


@pytest.mark.parametrize("name", READ)
def test_the_verdict_on_a_whole_config(name: str) -> None:
    report = inspect(published.path(name))
    assert set(report.at_odds) == AT_ODDS.get(name, set())
    assert report.resolved.not_understood == {}


@pytest.mark.parametrize(("name", "code"), [("qwen3-8b", 0), ("mistral-7b-v0.3", 0), ("phi-4-mini", 1), ("qwen-7b", 3)])
def test_the_exit_code(ropewalk: Ropewalk, name: str, code: int) -> None:
    assert ropewalk("inspect", str(published.path(name))).code == code


@pytest.mark.parametrize("name", READ)
def test_no_key_of_a_whole_config_is_dropped_in_silence(name: str) -> None:
    """A key that nobody knows is named, and one that sounds like positions makes the answer doubtful."""
    config = published.config(name)
    part = config.get("text_config", config)
    part["zq_unheard_of"], part["rope_wobble"] = 7, 2.5
    found = resolve(config, strict=False)
    assert "zq_unheard_of" in found.not_looked_at
    assert set(found.not_understood) == {"rope_wobble"}
    if part is not config:
        del part["rope_wobble"]
        config["rope_wobble"] = 2.5
        around = resolve(config, strict=False)
        assert any("rope_wobble" in said for said in (*around.notes, *around.not_understood))
