"""The whole model: what it prints, and that compile, meta device, checkpointing and FSDP2 change no number of it."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ropewalk import positions
from ropewalk.models import PRESETS, Transformer, TransformerConfig, preset
from ropewalk.nn import DropoutKey
from tests.closeness import assert_close
from tests.encodings.rows import ROWS, Row

SMALL = {"vocabulary": 37, "width": 32, "heads": 4, "key_heads": 4, "hidden": 64}


def small(name: str, **changes: object) -> TransformerConfig:
    return preset(name, **{**SMALL, "layers": 2, **changes})


def loss_of(model: Transformer, tokens: Tensor, **told: object) -> Tensor:
    told = {"source": tokens.flip(1), **told} if model.config.stack == "encoder-decoder" else told
    return F.cross_entropy(model(tokens, **told).flatten(0, 1).float(), tokens.flatten())


def gradients(model: Transformer, tokens: Tensor, run=loss_of) -> dict[str, Tensor]:
    model.zero_grad()
    loss = run(model, tokens)
    loss.backward()
    return {"loss": loss.detach(), **{name: p.grad.clone() for name, p in model.named_parameters()}}


def same(want: dict[str, Tensor], got: dict[str, Tensor], bound: float = 1e-6) -> None:
    assert want.keys() == got.keys()
    for name, value in want.items():
        assert_close(name, value, got[name], bound)


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(0, 37, (2, 12), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", PRESETS)
def test_meta_then_filled(name: str, tokens: Tensor) -> None:
    torch.manual_seed(0)
    fresh = Transformer(small(name)).eval()
    with torch.device("meta"):
        hollow = Transformer(small(name))
    filled = hollow.to_empty(device="cpu").eval()
    filled.load_state_dict(fresh.state_dict(), strict=True)
    same(gradients(fresh, tokens), gradients(filled, tokens), 0.0)
    assert list(fresh.buffers()) == []
    for parameter in filled.parameters():
        nn.init.constant_(parameter, torch.nan)
    filled.reset_parameters()
    assert all(torch.isfinite(parameter).all() for parameter in filled.parameters())


@pytest.mark.parametrize("name", PRESETS)
def test_activation_checkpointing(name: str, tokens: Tensor) -> None:
    """Blocks computed again in the backward pass, dropout on: the coins fall the same way."""
    model = Transformer(small(name, dropout={"residual": 0.2, "attention": 0.2, "embedding": 0.1})).train()
    dropout_key = DropoutKey.for_step(seed=3, step=5, sample=torch.tensor([10, 11]))
    want = gradients(model, tokens, partial(loss_of, dropout_key=dropout_key))
    for stack in (model.encoder, model.decoder):
        for block in stack.blocks if stack is not None else ():
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    same(want, gradients(model, tokens, partial(loss_of, dropout_key=dropout_key)))


def test_fsdp2_on_two_ranks() -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    command = [sys.executable, "-m", "tests.models.fsdp_worker"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("as on one rank") == 2 * len(PRESETS), done.stdout


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_encoding_in_a_model(row: Row, tokens: Tensor) -> None:
    """Packed documents in the whole model equal each alone, and a gradient reaches every parameter."""
    config = TransformerConfig(
        **{**SMALL, "width": 64}, layers=2, tie=False, encoding={"kind": row.kind, **row.settings}
    )
    model = Transformer(config).eval()
    at = positions.packed([[5, 7], [12]], limit=4096)
    out = model(tokens, at)
    alone = model(tokens[:1, 5:], positions.plain(7, limit=4096))
    assert_close(str(row), alone[0], out[0, 5:], 2e-5 * max(1.0, alone.abs().max().item()))
    out.square().mean().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_layers_of_several_kinds() -> None:
    """Local layers in a ring of their window, global ones without positions: a decoder of 2026."""
    layers = {
        "count": 4,
        "pattern": ["local", "local", "local", "global"],
        "kinds": {"local": {"window": 3}, "global": {"encoding": {"kind": "temperature", "trained": 8}}},
    }
    model = Transformer(TransformerConfig(**SMALL, layers=layers, qk_norm="head", soft_cap=5.0, sink=True)).eval()
    assert [layer.kind for layer in model.plan.layers] == ["rope", "rope", "rope", "temperature"]
    assert [rule.window for rule in model.decoder.rules] == [3, 3, 3, None]
    tokens = torch.randint(0, 37, (2, 20))
    with torch.no_grad():
        want = model(tokens, positions.plain(20, batch=2, limit=64))
        cache = model.cache(2, 20, limit=64)
        assert [layer.capacity for layer in cache.layers] == [3, 3, 3, 20]
        steps = [
            model(tokens[:, t : t + 1], positions.plain(1, batch=2, start=t, limit=64), cache=cache) for t in range(20)
        ]
    assert_close("decoded", want, torch.cat(steps, dim=1), 1e-5)


def test_a_pass_that_is_refused_or_interrupted_is_not_half_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of different windows have slots of their own; the local one always has room."""
    kinds = {"local": {"window": 6}, "global": {"window": None}}
    layers = {"count": 2, "pattern": ["local", "global"], "kinds": kinds}
    model = Transformer(TransformerConfig(**SMALL, layers=layers)).eval().double()
    tokens = torch.randint(0, 37, (1, 12))

    def part(start: int, stop: int) -> positions.Positions:
        return positions.plain(stop - start, start=start, limit=64)

    with torch.no_grad():
        want = model(tokens, part(0, 12))[:, 8:]
        cache = model.cache(1, 10, limit=64)
        model(tokens[:, :8], part(0, 8), cache=cache)
        with pytest.raises(ValueError, match="4 keys do not fit"):
            model(tokens[:, 8:], part(8, 12), cache=cache)
        assert [int(layer.next) for layer in cache.layers] == [8, 8]
        cache = model.cache(1, 12, limit=64)
        model(tokens[:, :8], part(0, 8), cache=cache)
        with monkeypatch.context() as patched:
            patched.setattr(cache[1], "append", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                model(tokens[:, 8:], part(8, 12), cache=cache)
        for held in (cache, cache.fork()):
            with pytest.raises(ValueError, match="a pass over this cache was interrupted"):
                model(tokens[:, 8:], part(8, 12), cache=held)
        cache = model.cache(1, 12, limit=64)
        model(tokens[:, :8], part(0, 8), cache=cache)
        assert_close("after a new start", want, model(tokens[:, 8:], part(8, 12), cache=cache), 1e-12)


@pytest.mark.parametrize("window", [None, 3])
def test_a_text_of_no_tokens(window: int | None) -> None:
    model = Transformer(TransformerConfig(**SMALL, layers=2, window=window)).eval()
    assert model(torch.zeros(2, 0, dtype=torch.int64)).shape == (2, 0, 37)


def test_a_changed_plan_is_refused_by_the_cache() -> None:
    yarn = {"kind": "rope", "scaling": {"kind": "dynamic", "factor": 2, "trained": 16}}
    model = Transformer(TransformerConfig(**SMALL, layers=1, encoding=yarn)).eval()
    cache = model.cache(1, 30, limit=30)
    tokens = torch.zeros(1, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match="positions of limit 31 cannot join a cache of limit 30"):
        model(tokens, positions.plain(2, limit=31), cache=cache)
    other = Transformer(TransformerConfig(**SMALL, layers=1, encoding={**yarn, "base": 5e5})).eval()
    with pytest.raises(ValueError, match="rotated under plan"):
        other(tokens, positions.plain(2, limit=30), cache=cache)


def test_weights_start_as_the_config_says() -> None:
    """The parts' own starts hold in the whole model: DeepNorm's beta on the values, no more on the queries."""
    wide = {**SMALL, "width": 256, "hidden": 256, "layers": 8}
    torch.manual_seed(0)
    attention = Transformer(preset("gpt2", **wide, std=0.05)).decoder.blocks[3].attention
    assert attention.qkv.weight.std().item() == pytest.approx(0.05, rel=0.02)
    assert not attention.qkv.bias.any()
    config = TransformerConfig(**wide, std=None, fused=False, norm={"kind": "layer", "placement": "deep"})
    attention = Transformer(config).decoder.blocks[3].attention
    assert (attention.v.weight.std() / attention.q.weight.std()).item() == pytest.approx(64**-0.25, rel=0.02)


def test_printing_says_what_it_is() -> None:
    model = Transformer(small("t5"))
    said = repr(model)
    count = sum(p.numel() for p in model.parameters())
    assert said.splitlines()[0] == f"Transformer, encoder-decoder, {count:,} parameters"
    assert "rms norm, pre; relu of 64; 37 tokens" in said
    assert "encoder: 2 layers" in said


def test_errors_name_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"no preset 'gpt3': did you mean 'gpt2'\? there are vaswani2017, bert"):
        preset("gpt3")
    decoder, both = Transformer(small("llama")), Transformer(small("t5")).eval()
    with pytest.raises(ValueError, match="has no encoder"):
        decoder.encode(torch.zeros(1, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="pass source tokens"):
        both(torch.zeros(1, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="only a decoder has a cache"):
        Transformer(small("bert")).cache(1, 4, limit=4)


def test_an_argument_that_would_not_be_read_is_refused(tokens: Tensor) -> None:
    encoder, decoder, both = (Transformer(small(name)).eval() for name in ("bert", "llama", "vaswani2017"))
    memory = both.encode(tokens)
    at = positions.plain(tokens.shape[1], batch=len(tokens))
    cache = decoder.cache(len(tokens), 32, limit=32)
    crossed = both.cache(len(tokens), 32, limit=tokens.shape[1], memory=memory)
    for model, told, said in (
        (encoder, {"source": tokens}, "source= means nothing"),
        (encoder, {"memory": memory}, "memory= means nothing"),
        (encoder, {"cache": cache}, "cache= means nothing"),
        (decoder, {"memory": memory}, "memory= means nothing"),
        (decoder, {"source": tokens}, "source= means nothing"),
        (decoder, {"source_at": at}, "source_at= means nothing"),
        (both, {"source": tokens, "memory": memory}, "same text twice"),
        (both, {"memory": memory, "source_at": at}, "there are none"),
        (both, {"source": tokens.flip(1), "cache": crossed}, "source= would not be read"),
        (both, {"memory": memory, "cache": crossed}, "memory= would not be read"),
    ):
        with pytest.raises(ValueError, match=said):
            model(tokens, **told)


@pytest.mark.parametrize("rows", [1, 3])
def test_one_token_under_autocast(rows: int) -> None:
    """One token of one sequence takes a matrix-vector product in bfloat16, which the weights in float32 are not."""
    model = Transformer(small("llama")).eval()
    tokens = torch.full((rows, 1), 5)
    with torch.no_grad():
        want = model(tokens)
        with torch.autocast("cpu", torch.bfloat16):
            assert_close("one token", want, model(tokens), 0.02 * want.abs().max().item())


@pytest.mark.parametrize("parts", [[], ["none"]])
def test_a_cache_on_several_axes_changes_nothing(parts: list[str]) -> None:
    """Text, an image of 2 x 3, text: M-RoPE, whole and token by token."""
    torch.manual_seed(0)
    rope = {"kind": "rope", "sections": [2, 1, 1]}
    encoding = {"kind": "chain", "parts": [rope, *parts]} if parts else rope
    model = Transformer(TransformerConfig(**SMALL, layers=2, encoding=encoding, std=0.3)).eval()
    at = positions.interleaved([3, (1, 2, 3), 4], limit=32)
    tokens = torch.randint(37, (2, 13))
    cache = model.cache(2, 13, limit=32)
    with torch.no_grad():
        want = model(tokens, at)
        got = [model(tokens[:, :5], at.take(slice(5)), cache=cache)]
        got += [model(tokens[:, [n]], at.take(slice(n, n + 1)), cache=cache) for n in range(5, 13)]
    assert cache[0].read()[2].index[0].equal(at.index[0])
    torch.testing.assert_close(torch.cat(got, dim=1), want, rtol=1e-5, atol=1e-5)
