"""Gradients of everything that is learned or passed through, by finite differences in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ropewalk import positions
from ropewalk.attention import Rule, Score, attend
from ropewalk.encodings import Encoding, build
from tests.closeness import assert_close
from tests.encodings.rows import HEAD_WIDTH, HEADS, KEY_HEADS, LIMIT, ROWS, Row

LEARNED = [row for row in ROWS if list(row.build().parameters())]
PLACES = [0, 1, 2, 40, 41, 700]


def whole_pass(encoding: Encoding, backend: str):
    """All sites at once as a function of the parameters and the inputs."""
    names = [name for name, _ in encoding.named_parameters()]

    def run(tokens: Tensor, q: Tensor, k: Tensor, v: Tensor, *values: Tensor) -> Tensor:
        def inside() -> Tensor:
            signal = encoding.at(positions.explicit(torch.tensor(PLACES), limit=LIMIT))
            turned = signal.rotate(q, "query"), signal.rotate(k, "key")
            out = attend(*turned, v, Score(signal, Rule()), backend=backend, strict=True)
            return torch.cat([few(signal.embed(tokens)), few(out)])

        return torch.func.functional_call(
            Call(encoding, inside), dict(zip((f"encoding.{n}" for n in names), values, strict=True)), ()
        )

    return run


def few(x: Tensor) -> Tensor:
    """Four random sums of all the numbers: as telling as the numbers, and a hundredth of the finite differences."""
    return x.flatten() @ torch.randn(x.numel(), 4, dtype=x.dtype, generator=torch.Generator().manual_seed(5))


class Call(torch.nn.Module):
    def __init__(self, encoding: Encoding, inside) -> None:
        super().__init__()
        self.encoding, self.inside = encoding, inside

    def forward(self) -> Tensor:
        return self.inside()


def given(encoding: Encoding) -> list[Tensor]:
    L = len(PLACES)
    shapes = [(1, L, encoding.token_width), (1, HEADS, L, HEAD_WIDTH), (1, KEY_HEADS, L, HEAD_WIDTH)]
    inputs = [torch.randn(shape, dtype=torch.float64) for shape in (*shapes, shapes[-1])]
    return [x.requires_grad_() for x in inputs]


@pytest.mark.parametrize("backend", ["eager", "sdpa", "tiled"])
@pytest.mark.parametrize("row", LEARNED, ids=str)
def test_learned_parameters(row: Row, backend: str) -> None:
    encoding = row.build().double()
    with torch.no_grad():  # away from the kinks of clamp and relu, and off rows that no position reads
        for name, value in encoding.named_parameters():
            if row.kind == "kerple":
                value.uniform_(0.2, 0.9)
            elif value.ndim == 0:
                value.fill_(24.3 / 24 if "multiplier" in name else 0.13)
    values = [value.detach().clone().requires_grad_() for value in encoding.parameters()]
    inputs = [x.detach() for x in given(encoding)]
    run = whole_pass(encoding, backend)
    # A random direction through the larger tables: finite differences of every number would take minutes.
    fast = sum(value.numel() for value in values) > 60
    assert torch.autograd.gradcheck(lambda *v: run(*inputs, *v), values, fast_mode=fast, nondet_tol=0.0)


@pytest.mark.parametrize("row", [row for row in ROWS if row.loose == 1.0], ids=str)
def test_inputs(row: Row) -> None:
    encoding = row.build().double()
    values = [value.detach() for value in encoding.parameters()]
    run = whole_pass(encoding, "tiled")
    assert torch.autograd.gradcheck(lambda *x: run(*x, *values), given(encoding), fast_mode=True, nondet_tol=0.0)


@pytest.mark.parametrize("row", LEARNED, ids=str)
def test_tiles_give_the_dense_gradient(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small tiles in float32 against one dense matrix in float64, packed documents and padding among them."""
    monkeypatch.setattr("ropewalk.attention.tiled.TILE", 2**9)
    monkeypatch.setattr("ropewalk.attention.tiled.FEWEST", 3)
    at = positions.packed([[20, 30], [45]], width=52, limit=LIMIT)
    found = {}
    for backend, dtype in (("eager", torch.float64), ("tiled", torch.float32)):
        torch.manual_seed(0)
        encoding = row.build().to(dtype)
        shapes = [(2, HEADS, 52, HEAD_WIDTH), (2, KEY_HEADS, 52, HEAD_WIDTH), (2, KEY_HEADS, 52, 24)]
        q, k, v = inputs = [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]
        signal = encoding.at(at)
        out = attend(signal.rotate(q, "query"), signal.rotate(k, "key"), v, Score(signal, Rule()), backend=backend)
        (out * torch.randn(out.shape).to(dtype)).sum().backward()
        grads = [x.grad for x in inputs] + [p.grad for p in encoding.parameters() if p.grad is not None]
        found[backend] = [out.detach(), *grads]
    for number, (want, got) in enumerate(zip(found["eager"], found["tiled"], strict=True)):
        assert_close(f"{row} {number}", want, got, 5e-6 * max(1.0, want.abs().max().item()))


@pytest.mark.parametrize("backend", ["eager", "sdpa", "tiled"])
def test_buckets_in_bfloat16_learn_from_every_score(backend: str) -> None:
    """torch's CPU kernel adds a bucket's gradients one by one in bfloat16, and rounds most of the last ones away."""
    torch.manual_seed(0)
    half, exact = (build("t5", heads=2).to(dtype) for dtype in (torch.bfloat16, torch.float64))
    exact.load_state_dict(half.state_dict())
    q, k, v = torch.randn(3, 2, 2, 384, 8).bfloat16()
    weigh = torch.randn_like(v) + (v > 0)

    def learned(t5: Encoding, backend: str) -> Tensor:
        (weight,) = t5.parameters()
        given = (x.to(weight.dtype) for x in (q, k, v))
        out = attend(*given, Score(t5.at(positions.plain(384)), Rule()), backend=backend, strict=True)
        (gradient,) = torch.autograd.grad(out, [weight], weigh.to(out.dtype))
        return gradient

    want = learned(exact, "eager")
    assert_close("gradient", want, learned(half, backend).double(), 0.02 * float(want.abs().max()))
