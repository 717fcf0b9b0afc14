"""Compiled models: several in one process, each with its own frequencies, and few graphs over many lengths."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._dynamo
import torch._dynamo.testing
from torch import Tensor

from ropewalk import positions
from ropewalk.models import Transformer, TransformerConfig, preset
from ropewalk.models.presets import PRESETS
from ropewalk.nn import DropoutKey
from tests.closeness import assert_close

LENGTHS = (5, 9, 12, 17, 24, 33, 40, 47)
SCALINGS: dict[str, dict[str, Any]] = {
    "base 1e4": {},
    "base 5e5": {"base": 5e5},
    "base 1e6": {"base": 1e6},
    "linear 2": {"scaling": {"kind": "linear", "factor": 2}},
    "linear 8": {"scaling": {"kind": "linear", "factor": 8}},
    "ntk 2": {"scaling": {"kind": "ntk", "factor": 2}},
    "ntk 8": {"scaling": {"kind": "ntk", "factor": 8}},
    "dynamic 2": {"scaling": {"kind": "dynamic", "factor": 2, "trained": 16}},
    "dynamic 8": {"scaling": {"kind": "dynamic", "factor": 8, "trained": 16}},
    "yarn 4": {"scaling": {"kind": "yarn", "factor": 4, "trained": 16}},
    "yarn 16": {"scaling": {"kind": "yarn", "factor": 16, "trained": 16}},
    "llama3 8": {"scaling": {"kind": "llama3", "factor": 8, "trained": 16}},
    "longrope": {"scaling": {"kind": "longrope", "short": [1.0] * 8, "long": [4.0] * 8, "factor": 4, "trained": 16}},
    "proportional": {"scaling": {"kind": "proportional", "fraction": 0.5}},
}


def rotary(encoding: dict[str, Any]) -> Transformer:
    torch.manual_seed(0)
    config = TransformerConfig(
        width=32, heads=2, layers=1, vocabulary=50, std=0.3, encoding={"kind": "rope", **encoding}
    )
    return Transformer(config).eval()


@torch.no_grad()
def test_every_pair_of_scalings_and_bases_in_one_process() -> None:
    """One shape, equal weights: only the frequencies tell the models apart, and each keeps its own."""
    torch._dynamo.reset()
    tokens = torch.arange(48)[None] % 50
    models = {name: rotary(encoding) for name, encoding in SCALINGS.items()}
    wanted = {name: model(tokens) for name, model in models.items()}
    names = list(models)
    apart = [(wanted[a] - wanted[b]).abs().max() for n, a in enumerate(names) for b in names[:n]]
    assert min(apart) > 0.01
    with torch._dynamo.config.patch(recompile_limit=2 * len(models)):
        compiled = {name: torch.compile(model, backend="eager", fullgraph=True) for name, model in models.items()}
        for first in names:
            for second in names:
                for name in (first, second):
                    assert_close(f"{first}, {second}", wanted[name], compiled[name](tokens), 1e-5)


def small(name: str) -> Transformer:
    sizes: dict[str, Any] = {"width": 32, "heads": 2, "vocabulary": 50, "layers": 1, "hidden": 32}
    if name == "llama":
        sizes["key_heads"] = 1
    if name == "t5":
        both = {"count": 1, "pattern": ["both"], "kinds": {"both": {"encoding": {"kind": "t5", "bidirectional": True}}}}
        sizes["layers"] = {"encoder": both, "decoder": 1}
    return Transformer(preset(name, **sizes))


QUICK = {("gpt2", True), ("t5", True)} | {(name, False) for name in PRESETS if name != "deepnet"}
"""Dropout of attention, a learned bias, and every architecture once; the rest takes two minutes (-m slow)."""
EVERY = [
    pytest.param(name, training, id=f"{name}-{mode}", marks=() if (name, training) in QUICK else pytest.mark.slow)
    for name in PRESETS
    for training, mode in ((False, "eval"), (True, "train"))
]


@pytest.mark.parametrize(("name", "training"), EVERY)
def test_presets_compile_whole_and_at_most_twice_over_eight_lengths(name: str, training: bool) -> None:
    torch._dynamo.reset()
    model = small(name).train(training)
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager" if name == "gpt2" else "eager")
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    dropout_key = DropoutKey(torch.tensor([3, 4])) if training else None
    for length in LENGTHS:
        given: dict[str, Any] = {"dropout_key": dropout_key}
        if model.encoder is not None and model.decoder is not None:
            given["source"] = torch.randint(0, 50, (2, length + 3))
        tokens = torch.randint(0, 50, (2, length))
        want, got = model(tokens, **given), compiled(tokens, **given)
        assert_close(f"{name} {length}", want, got, 1e-5)
        if training:
            assert_close(f"{name} {length} gradient", gradient(model, want), gradient(model, got), 2e-5)
    assert counter.frame_count <= 2


def gradient(model: Transformer, out: Tensor) -> Tensor:
    """Of all parameters, each over its own largest."""
    used = [p for p in model.parameters() if p.requires_grad]
    parts = torch.autograd.grad(out.square().mean(), used, allow_unused=True)
    return torch.cat([(part / part.abs().max().clamp(min=1e-6)).flatten() for part in parts if part is not None])


@pytest.mark.parametrize("options", [{"soft_cap": 5.0}, {"sink": True}, {"encoding": "alibi"}], ids=str)
def test_a_score_that_no_kernel_fuses_compiles_whole_in_parts(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More scores than are built at once: the queries are taken in eight parts, forward and backward."""
    monkeypatch.setattr("ropewalk.attention.tiled.TILE", 2**13)
    torch._dynamo.reset()
    config = TransformerConfig(width=32, heads=4, layers=1, vocabulary=50, std=0.3, **options)
    model = Transformer(config)
    tokens = torch.randint(0, 50, (4, 101))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    want, got = model(tokens), compiled(tokens)
    assert_close("logits", want, got, 1e-4)
    assert_close("gradient", gradient(model, want), gradient(model, got), 1e-4)


def test_blocks_compiled_one_by_one_see_that_plain_positions_were_edited() -> None:
    """As `parallelise(compiled=True)` compiles them: the encoding runs outside, where the edit can be seen."""
    torch._dynamo.reset()
    model, tokens = rotary({}), torch.arange(8)[None]
    at = positions.plain(8)
    with torch.no_grad():
        as_made = model(tokens, at)
        at.segment[:, 4:] = 1
        want = model(tokens, at)
        for block in model.decoder.blocks:
            block.forward = torch.compile(block.forward, backend="eager", fullgraph=True)
        assert_close("two documents", want, model(tokens, at), 1e-5)
    assert not torch.allclose(as_made, want, atol=1e-3)


def test_a_compiled_model_stops_at_plain_positions_that_were_edited() -> None:
    torch._dynamo.reset()
    model = rotary({})
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    tokens = torch.arange(8)[None]
    at = positions.plain(8)
    with torch.no_grad():
        assert_close("as made", model(tokens, at), compiled(tokens, at), 1e-5)
        at.segment[:, 4:] = 1
        with pytest.raises(RuntimeError, match="edited in place"):
            compiled(tokens, at)
