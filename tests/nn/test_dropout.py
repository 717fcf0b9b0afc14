"""Dropout masks: a function of seed, step, sample and place, whatever the batch, the order or the rank."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from ropewalk import positions
from ropewalk.attention import Rule, Score, attend, choose
from ropewalk.encodings import ALiBi, NoPE
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.nn import Dropout, DropoutKey
from tests.closeness import assert_close
from tests.encodings.test_biases import NoFloat64


def dropout_key(samples: list[int], seed: int = 1, step: int = 2) -> DropoutKey:
    return DropoutKey.for_step(seed, step, torch.tensor(samples))


def masked(samples: list[int], at: positions.Positions, place: int = 0, **told: int) -> torch.Tensor:
    x = torch.ones(len(samples), at.shape[1], 32)
    return Dropout(0.25, place)(x, dropout_key(samples, **told), at)


def test_the_rate_and_the_scale() -> None:
    out = masked(list(range(64)), positions.plain(100, batch=64))
    assert out.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert (out == 0).float().mean().item() == pytest.approx(0.25, abs=0.003)
    for axis in ((0, 1), (0, 2), (1, 2)):  # no sample, position or feature is luckier than another
        assert (out == 0).float().mean(axis).std().item() < 0.02


def test_another_batch_another_order_another_shard_draw_the_same() -> None:
    at = positions.plain(20, batch=3)
    whole = masked([7, 8, 9], at)
    assert torch.equal(masked([9], positions.plain(20)), whole[2:])
    shuffle = torch.randperm(20)
    assert torch.equal(masked([7, 8, 9], at.take(shuffle)), whole[:, shuffle])


@pytest.mark.parametrize("change", [{"seed": 5}, {"step": 3}, {"place": 4}])
def test_each_number_matters(change: dict) -> None:
    at = positions.plain(20)
    one, other = masked([7], at), masked([7], at, **change)
    agree = (one == other).float().mean().item()
    assert agree == pytest.approx(0.75**2 + 0.25**2, abs=0.08), "independent masks agree this often"


def test_documents_of_one_row_draw_apart() -> None:
    out = masked([3], positions.packed([[20, 20]]))
    assert not torch.equal(out[:, :20], out[:, 20:])


def test_tokens_of_one_order_draw_apart() -> None:
    """A prefix that sees itself both ways has one order."""
    at = positions.plain(20)
    prefix = positions.Positions(at.index, at.order.clone().index_fill_(1, torch.arange(8), 0), at.segment, at.limit)
    out = masked([3], prefix)
    assert len({tuple(each) for each in out[0].tolist()}) == 20
    assert torch.equal(out[:, 8:], masked([3], at)[:, 8:]), "where the order is the index, both draw alike"
    keep = Dropout(0.25).of_weights(dropout_key([3]), torch.zeros(1, 2, 20, 4))
    assert keep is not None
    kept = keep.kept(slice(None), torch.arange(2)[:, None, None], prefix, prefix)
    assert len({tuple(each) for each in kept[0, 0].tolist()}) == 20
    assert len({tuple(each) for each in kept[0, 0].T.tolist()}) == 20


def test_evaluation_and_rate_zero_change_nothing() -> None:
    x, at = torch.randn(1, 4, 8), positions.plain(4)
    assert Dropout(0.5).eval()(x, None, at) is x
    assert Dropout(0.0)(x, None, at) is x
    with pytest.raises(ValueError, match=r"\[0, 1\)"):
        Dropout(1.0)


def test_attention_weights_tiled_and_dense_draw_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ropewalk.attention.tiled.TILE", 2**8)
    monkeypatch.setattr("ropewalk.attention.tiled.FEWEST", 3)
    dropout = Dropout(0.3)
    found = {}
    for backend in ("eager", "tiled"):
        torch.manual_seed(0)
        q, k, v = (torch.randn(3, heads, 20, 8, requires_grad=True) for heads in (4, 2, 2))
        signal = ALiBi(heads=4).at(positions.packed([[12, 8], [20], [5]], width=20))
        out = attend(
            q, k, v, Score(signal, Rule(), dropout=dropout.of_weights(dropout_key([4, 5, 6]), q)), backend=backend
        )
        (out * torch.randn_like(out)).sum().backward()
        found[backend] = [out.detach(), q.grad, k.grad, v.grad]
    for want, got in zip(*found.values(), strict=True):
        assert_close("dropped", want, got, 3e-6 * max(1.0, want.abs().max().item()))
    part = slice(2, 4)  # a rank with half the heads
    signal = ALiBi(heads=4).at(positions.packed([[12, 8], [20], [5]], width=20))
    keep = dropout.of_weights(dropout_key([4, 5, 6]), q)
    got = attend(q[:, part], k[:, 1:], v[:, 1:], Score(signal, Rule(), dropout=keep, first_head=2))
    assert_close("rank", found["eager"][0][:, part], got, 2e-6)


def test_without_a_draw_torchs_generator_decides() -> None:
    x, at = torch.ones(4, 200, 64), positions.plain(200, batch=4)
    dropout = Dropout(0.25)
    torch.manual_seed(3)
    once, other = dropout(x, None, at), dropout(x, None, at)
    torch.manual_seed(3)
    assert torch.equal(once, torch.nn.functional.dropout(x, 0.25)), "the same numbers as torch's own"
    assert not torch.equal(once, other)
    dropout.needs_key = True
    with pytest.raises(ValueError, match="pass dropout_key=DropoutKey"):
        dropout(x, None, at)


@pytest.mark.parametrize("backend", [None, "eager", "tiled"])
def test_attention_without_a_draw_drops_the_rate_and_keeps_the_mean(
    backend: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values are one-hot, so the output is the weights themselves: alike before dropout, 1/n each."""
    monkeypatch.setattr("ropewalk.attention.tiled.TILE", 2**12)
    q, k, v = torch.zeros(8, 4, 64, 64), torch.zeros(8, 4, 64, 64), torch.eye(64).expand(8, 4, 64, 64)
    signal = NoPE().at(positions.packed([[24, 40]] * 8))
    keep = Dropout(0.3).of_weights(None, q)
    assert keep is not None
    if backend is None:
        assert choose(q, k, v, Score(signal, Rule(causal=False), dropout=keep)).backend == "sdpa"
    weights = attend(q, k, v, Score(signal, Rule(causal=False), dropout=keep), backend=backend)
    assert weights[:, :, :24, 24:].abs().max() == 0, "documents stay apart"
    inside = weights[:, :, 24:, 24:] * 40
    assert inside.unique().tolist() == pytest.approx([0.0, 1 / 0.7], rel=1e-5)
    assert (inside == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    for axis in ((0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)):
        assert (inside == 0).float().mean(axis).std().item() < 0.03, "no key, query, head or sequence is luckier"


@pytest.mark.parametrize("backend", ["sdpa", "tiled"])
def test_the_gradient_of_dropped_weights_is_that_of_the_same_mask(backend: str) -> None:
    q, k, v = (torch.randn(2, 2, 12, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    signal = NoPE().at(positions.plain(12))
    dropout = Dropout(0.4)

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return attend(q, k, v, Score(signal, Rule(), dropout=dropout.of_weights(None, q)), backend=backend, strict=True)

    assert torch.autograd.gradcheck(run, (q, k, v))


def test_attention_drops_by_integers_which_every_device_has() -> None:
    at, heads = positions.plain(40, start=100_000), torch.arange(3)[:, None, None]
    dropout = Dropout(0.3).train()
    keep = dropout.of_weights(dropout_key([5]), torch.empty(1, 3, 40, 8))
    assert keep is not None
    with NoFloat64():
        chosen = keep.kept(slice(None), heads, at, at)
    segment, order = at.segment[:, None, :, None], at.order[:, None, :, None]
    bits = dropout.bits(dropout_key([5]), slice(None), segment, order, heads[None], at.order[:, None, None, :])
    want = [Fraction(value % 2**64 >> 11, 2**53) >= Fraction(0.3) for value in bits.flatten().tolist()]
    assert chosen.flatten().tolist() == want


def test_the_keyed_mask_of_attention_has_the_rate_the_scale_and_no_favourites() -> None:
    """By head, query and key: the rate is the rate of each, and two of them agree as often as independent masks do."""
    q, k, v = torch.zeros(4, 6, 64, 64), torch.zeros(4, 6, 64, 64), torch.eye(64).expand(4, 6, 64, 64)
    signal = NoPE().at(positions.plain(64, start=100_000, batch=4))
    drop = Dropout(0.3)
    weights = attend(q, k, v, Score(signal, Rule(causal=False), dropout=drop.of_weights(dropout_key([1, 2, 3, 4]), q)))
    weights = weights * 64
    assert weights.unique().tolist() == pytest.approx([0.0, 1 / 0.7], rel=1e-5), "kept weights are scaled by 1 / 0.7"
    dropped = (weights == 0).float()
    assert dropped.mean().item() == pytest.approx(0.3, abs=0.01)
    for axis in range(4):  # sequence, head, query, key
        other = dropped.roll(1, axis)
        assert (dropped == other).float().mean().item() == pytest.approx(0.7**2 + 0.3**2, abs=0.02), axis


@pytest.mark.parametrize("rate", [{"residual": 0.5}, {"attention": 0.5}])
def test_no_two_layers_and_no_two_stacks_draw_the_same(rate: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """The number that tells one layer's masks from another's, of every layer of an encoder and a decoder."""
    used: list[tuple[int, int]] = []
    original = Dropout.bits

    def noted(self: Dropout, key: DropoutKey | None, *rest: object) -> torch.Tensor:
        assert key is not None
        used.append((int(key.numbers[0]), self.place))
        return original(self, key, *rest)

    monkeypatch.setattr(Dropout, "bits", noted)
    config = {"stack": "encoder-decoder", "vocabulary": 11, "width": 16, "heads": 2, "layers": 3, "dropout": rate}
    model = Transformer(TransformerConfig(**config)).train()
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    model(tokens, source=tokens, dropout_key=dropout_key([3]))
    # Each of 3 + 3 layers: one attention and one FFN, and a cross-attention in the decoder's.
    places = 3 * 2 + 3 * 3 if "residual" in rate else 3 + 3 * 2
    assert len(used) >= places
    assert len(set(used)) == len(used), "no two places of the model share a mask"
