"""What a prompt shows: docstrings on every public class, and at most ten lines for any object."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch

import ropewalk as rw
from ropewalk import attention, conformance, encodings, models, nn, positions, scaling
from ropewalk.conformance import Report, Result


@pytest.mark.parametrize("module", [rw, attention, conformance, encodings, models, nn, positions, scaling])
def test_every_public_class_says_what_it_is(module: ModuleType) -> None:
    public = [getattr(module, name) for name in dir(module) if not name.startswith("_")]
    ours = [each for each in public if inspect.isclass(each) and each.__module__.startswith("ropewalk")]
    # A dataclass without a docstring is given its signature for one.
    silent = [each.__name__ for each in ours if (vars(each).get("__doc__") or "(").startswith((each.__name__, "("))]
    assert ours
    assert not silent


def test_help_shows_the_settings_of_an_encoding() -> None:
    names = list(inspect.signature(encodings.RoPE).parameters)
    assert names[:5] == ["config", "width", "heads", "head_width", "base"]
    assert {"layout", "scaling", "sections"} < set(names)
    assert "kind" not in names


def mixed(layers: int) -> models.Transformer:
    names = [f"w{number}" for number in range(1, layers + 1)]
    pattern = {"count": layers, "pattern": names, "kinds": {name: {"window": int(name[1:])} for name in names}}
    return models.Transformer(rw.TransformerConfig(vocabulary=9, width=64, heads=2, layers=pattern))


def config(tmp_path: Path, **more: object) -> Path:
    llama = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "num_attention_heads": 2,
        "num_hidden_layers": 3,
        "max_position_embeddings": 4096,
        "rope_theta": 10000.0,
        "vocab_size": 9,
    }
    (tmp_path / "config.json").write_text(json.dumps(llama | more), encoding="utf-8")
    return tmp_path


def test_nothing_fills_the_screen(tmp_path: Path) -> None:
    model, many = mixed(2), mixed(30)
    failed = [Result(id=f"C{number}", title="x", status="failed") for number in range(30)]
    shown = {
        "plan": model.plan,
        "plan of many": many.plan,
        "layer": model.plan.layers[0],
        "inspect": rw.inspect(config(tmp_path)),
        "verify": Report("mine", failed),
        "positions": positions.plain(5000),
        "cache": model.cache(1, 8, limit=64),
        "signal": encodings.RoPE(head_width=8).at([1, 2]),
    }
    for name, each in shown.items():
        text = repr(each)
        assert text.count("\n") < 10, name
        assert len(text) < 1000, name
        assert "0x" not in text, name
    assert repr(model.plan) == str(model.plan)
    assert repr(many.plan).endswith("more lines: print it to see them")
    assert str(shown["inspect"]) == repr(shown["inspect"])
    assert repr(positions.plain(5000, start=7, limit=9000)) == "Positions(1 x 5000, index 7 to 5,006, limit 9,000)"
    assert repr(positions.explicit(torch.zeros(1, 2, 3).long())) == "Positions(1 x 2 x 3, index 0 to 0, no limit)"


def test_an_inspection_in_short_hides_no_disagreement(tmp_path: Path) -> None:
    """transformers 4 reads `rope_scaling` alone, so it would not scale here."""
    report = rw.inspect(config(tmp_path, rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}))
    assert report.at_odds
    for name in report.at_odds:
        assert f"{name} departs in frequencies" in str(report)


def test_a_patched_model_in_short() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 64}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_hidden_layers=2, vocab_size=9, **sizes))
    patched = rw.patch(model)
    assert repr(patched) == str(patched)
    assert repr(patched).count("\n") < 10


def test_a_config_shows_what_is_not_a_default() -> None:
    shown = repr(rw.preset("llama", vocabulary=1000, width=64, heads=4, key_heads=2, hidden=128, layers=2))
    assert shown == str(rw.preset("llama", vocabulary=1000, width=64, heads=4, key_heads=2, hidden=128, layers=2))
    assert "encoding=RoPE.Config(kind='rope', base=500000.0)" in shown
    assert "vocabulary=1000" in shown
    assert "soft_cap" not in shown
