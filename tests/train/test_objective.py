"""The loss a learner answers with, against logits and torch's cross entropy written out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from ropewalk import positions
from ropewalk.data.batch import IGNORE, Batch
from ropewalk.models import Transformer, preset
from ropewalk.models.config import TransformerConfig
from ropewalk.nn import DropoutKey
from ropewalk.train import objective
from ropewalk.train.objective import Learner, dropout_key_of

SMALL = {"vocabulary": 53, "width": 32, "heads": 4, "head_width": 8, "key_heads": 4, "hidden": 64, "layers": 2}


def learner(name: str, **changes: object) -> Learner:
    torch.manual_seed(0)
    # T5's two stacks look in different directions, which a bare number of layers would forget.
    sizes = {key: value for key, value in SMALL.items() if name != "t5" or key != "layers"}
    return Learner(preset(name, **{**sizes, **changes}))


def batch_for(model: Transformer, rows: int = 3, length: int = 12) -> Batch:
    draw = torch.Generator().manual_seed(1)
    tokens, target = torch.randint(0, 53, (2, rows, length), generator=draw)
    target[:, ::4] = IGNORE
    at = positions.plain(length, batch=rows)
    source = torch.randint(0, 53, (rows, 9), generator=draw) if model.config.stack == "encoder-decoder" else None
    where = None if source is None else positions.plain(9, batch=rows)
    return Batch(tokens, at, target, torch.arange(rows), source, where)


def plainly(model: Learner, batch: Batch, smoothing: float = 0.0) -> Tensor:
    """By logits of the whole vocabulary, in float64 from there on."""
    logits = Transformer.forward(model, batch.tokens, batch.at, source=batch.source, source_at=batch.source_at)
    chosen = logits.double().log_softmax(-1)
    nll = -chosen.gather(-1, batch.target.clamp(min=0)[..., None])[..., 0]
    nll = (1 - smoothing) * nll - smoothing * chosen.mean(-1)
    return torch.where(batch.target == IGNORE, 0.0, nll)


def loss(model: Learner, batch: Batch, **settings: object) -> Tensor:
    return model(batch.tokens, batch.at, batch.target, source=batch.source, source_at=batch.source_at, **settings)


def value(model: Learner, batch: Batch, **settings: object) -> float:
    return loss(model, batch, **settings).item()


def test_the_output_map_learns_alike_from_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under autocast all pieces shared one bfloat16 copy of it, in which their gradients were added up."""

    def gradient(pieces: int, enabled: bool = True) -> Tensor:
        monkeypatch.setattr(objective, "LOGITS", 512 * 53 // pieces)
        model, draw = learner("llama", tie=False), torch.Generator().manual_seed(1)
        tokens, target = torch.randint(0, 53, (2, 4, 128), generator=draw)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            model(tokens, positions.plain(128, batch=4), target).backward()
        assert model.head is not None
        assert model.head.weight.grad is not None
        return model.head.weight.grad

    exact = gradient(1, enabled=False)
    whole, parts = (float((gradient(pieces) - exact).norm() / exact.norm()) for pieces in (1, 128))
    assert parts < 1.2 * whole, "4.9 times before"


@pytest.mark.parametrize("name", ["llama", "bert", "t5", "vaswani2017", "gpt2", "bloom"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_the_logits(name: str, smoothing: float) -> None:
    model = learner(name).eval()
    batch = batch_for(model)
    want = plainly(model, batch, smoothing)
    torch.testing.assert_close(loss(model, batch, smoothing=smoothing).double(), want.sum(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(loss(model, batch, smoothing=smoothing, each=True).double(), want, rtol=1e-5, atol=1e-5)


def test_a_capped_output_is_capped() -> None:
    model = learner("llama", output_cap=3.0).eval()
    batch = batch_for(model)
    torch.testing.assert_close(loss(model, batch).double(), plainly(model, batch).sum(), rtol=1e-5, atol=1e-5)


def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, gradients = learner("llama"), []
    batch = batch_for(model)
    for most in (1 << 26, 53 * 5):
        monkeypatch.setattr(objective, "LOGITS", most)
        model.zero_grad()
        loss(model, batch).backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    whole, cut = gradients
    for name, gradient in whole.items():
        torch.testing.assert_close(cut[name], gradient, rtol=1e-5, atol=1e-6)


def test_gradients_of_passes_add_up_to_those_of_the_batch() -> None:
    model = learner("llama")
    batch = batch_for(model, rows=4)
    (loss(model, batch) / batch.targets).backward()
    whole = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    for rows in (slice(0, 1), slice(1, 4)):
        part = batch.take(rows)
        (loss(model, part) / batch.targets).backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, whole[name], rtol=1e-5, atol=1e-7)


def test_bfloat16_sums_are_float32() -> None:
    model = learner("llama")
    batch = batch_for(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = loss(model, batch)
    assert found.dtype == torch.float32
    assert abs(found.item() / value(model, batch) - 1) < 2e-2


class Products(TorchDispatchMode):
    """The types matrix products are taken in."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if op.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
            self.seen |= {one.dtype for one in args if isinstance(one, Tensor)}
        return op(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["llama", "vaswani2017"])
def test_in_bfloat16_every_matrix_product_is(name: str) -> None:
    """The output map's too, though a LayerNorm answers in float32 under autocast."""
    model = learner(name).eval()
    batch = batch_for(model)
    with Products() as products, torch.autocast("cpu", torch.bfloat16):
        loss(model, batch).backward()
    assert products.seen == {torch.bfloat16}


def test_dropout_masks_depend_on_seed_step_and_sample_and_nothing_else() -> None:
    config = TransformerConfig(**SMALL, dropout={"residual": 0.3})
    torch.manual_seed(0)
    model = Learner(config)
    batch = batch_for(model)
    first = value(model, batch, dropout_key=dropout_key_of(batch, 7, 3))
    assert first == value(model, batch, dropout_key=dropout_key_of(batch, 7, 3))
    others = [
        dropout_key_of(batch, 8, 3),
        dropout_key_of(batch, 7, 4),
        dropout_key_of(batch._replace(sample=batch.sample + 1), 7, 3),
    ]
    assert len({first, *(value(model, batch, dropout_key=other) for other in others)}) == 4
    assert isinstance(dropout_key_of(batch, 2**32 - 1, 10**9), DropoutKey)


def test_an_untrained_model_knows_nothing() -> None:
    model = learner("llama").eval()
    batch = batch_for(model)
    mean = value(model, batch) / int(batch.targets)
    assert abs(mean - math.log(53)) < 0.5
    assert F.cross_entropy(torch.zeros(1, 53), torch.tensor([0])).item() == pytest.approx(math.log(53))
