"""Documents attended to one by one give what the reference gives with its mask: values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ropewalk import positions
from ropewalk.attention import Rule, Score, attend, documents
from ropewalk.encodings.none import NoPE
from ropewalk.positions import PAD, Positions

FAR = 1 << 30  # where documents begin: far from 0
ROWS, LENGTH, LIMIT = 2, 48, FAR + 100


def moved(at: Positions, by: int = FAR) -> Positions:
    return Positions(at.index + by, at.order + by, at.segment, LIMIT)


def pieces(*names: int) -> Positions:
    """Documents in pieces of four tokens, each going on where its last piece ended."""
    segment = torch.tensor(names).repeat_interleave(LENGTH // len(names)).repeat(ROWS, 1)
    order = torch.arange(LENGTH).repeat(ROWS, 1)
    return Positions(order, order, segment, LENGTH)


SHUFFLED = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(1))
CASES = {
    "packed": positions.packed([[20, 3, 25], [1, 47]], limit=LENGTH),
    "padded behind": positions.packed([[20, 3], [48]], limit=LENGTH),
    "padded before": pieces(PAD, PAD, 0, 1),
    "nothing but padding": pieces(PAD),
    "one row for all": positions.packed([[10, 38]], limit=LENGTH),
    "documents in pieces": pieces(0, 1, 0, PAD, 1, 2),
    "shuffled": positions.packed([[20, 28], [7, 41]], limit=LENGTH).take(SHUFFLED),
    "read two at a time": positions.Positions(*[x // 2 for x in positions.plain(LENGTH, batch=ROWS)[:3]], LENGTH),
}


def both(at: Positions, causal: bool, dtype: torch.dtype, key_heads: int = 4) -> list[tuple[Tensor, ...]]:
    torch.manual_seed(0)
    shapes = [(ROWS, 4, LENGTH, 16), (ROWS, key_heads, LENGTH, 16), (ROWS, key_heads, LENGTH, 16)]
    inputs = [torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]
    grad = torch.randn(shapes[0], dtype=torch.float64).to(dtype)
    found: list[tuple[Tensor, ...]] = []
    for backend in ("eager", "documents"):
        out = attend(*inputs, Score(NoPE().at(at), Rule(causal=causal)), backend=backend, strict=True)
        found.append((out, *torch.autograd.grad(out, inputs, grad)))
    return found


@pytest.fixture(autouse=True)
def documents_are_never_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "SMALL", 0)


@pytest.mark.parametrize(
    ("small", "mask"), [(0, documents.MASK), (1 << 20, documents.MASK), (1 << 20, 5 * ROWS * LENGTH)]
)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_equals_the_reference(case: str, causal: bool, small: int, mask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "SMALL", small)
    monkeypatch.setattr(documents, "MASK", mask)
    for name, right, got in zip("oqkv", *both(moved(CASES[case]), causal, torch.float64), strict=True):
        torch.testing.assert_close(got, right, rtol=0, atol=1e-13, msg=lambda said, name=name: f"{name}: {said}")


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 2e-6), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_fewer_key_heads_and_rounded_numbers(key_heads: int, dtype: torch.dtype, bound: float) -> None:
    for right, got in zip(*both(moved(CASES["packed"]), True, dtype, key_heads), strict=True):
        assert (got - right).abs().max() <= bound * right.abs().max()


@pytest.mark.parametrize("key_heads", [1, 4])
def test_rows_of_one_token(key_heads: int) -> None:
    order = torch.full((ROWS, 1), FAR)
    signal = NoPE().at(Positions(order, order, torch.tensor([[0], [PAD]]), LIMIT))
    q, k, v = (torch.randn(ROWS, heads, 1, 16) for heads in (4, key_heads, key_heads))
    right, got = (
        attend(q, k, v, Score(signal, Rule()), backend=backend, strict=True) for backend in ("eager", "documents")
    )
    torch.testing.assert_close(got, right, rtol=0, atol=1e-6)
    assert not got[1].any()


def test_which_positions_are_documents_side_by_side() -> None:
    for name, at in CASES.items():
        found = documents._documents(at.order, at.segment, ROWS, Rule())
        assert (found is None) == (name in ("documents in pieces", "shuffled", "read two at a time")), name
    at = CASES["packed"]
    assert documents._documents(at.order, at.segment, ROWS, Rule())
    lengths = [
        (rows.start, some.stop - some.start) for rows, some in documents._documents(at.order, at.segment, 2, Rule())
    ]
    assert lengths == [(0, 20), (0, 3), (0, 25), (1, 1), (1, 47)]


@pytest.mark.parametrize(("document", "alone"), [(8, False), (128, True)])
def test_many_small_documents_share_a_mask(document: int, alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    at = positions.packed([[document] * (512 // document)], limit=512)
    assert (documents._documents(at.order, at.segment, 1, Rule()) is not None) == alone


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # opcheck's own, in torch 2.15
@pytest.mark.parametrize("window", [0, 20])
@pytest.mark.parametrize(("case", "own"), [("packed", True), ("documents in pieces", True), ("packed", False)])
def test_as_an_operator(case: str, own: bool, window: int) -> None:
    at = CASES[case]
    q, k, v = (torch.randn(ROWS, 4, LENGTH, 16, requires_grad=True) for _ in range(3))
    places = (at.order, at.segment, at.order, at.segment)
    torch.library.opcheck(documents._attend, (q, k, v, *places, own, True, window, 0 if own else window // 4, 0.25))


def test_compiled_once_for_any_documents() -> None:
    inputs = [torch.randn(ROWS, 4, LENGTH, 16, requires_grad=True) for _ in range(3)]
    encoding, counted = NoPE(), torch._dynamo.testing.CompileCounterWithBackend("aot_eager")

    def loss(at: Positions) -> Tensor:
        return attend(*inputs, Score(encoding.at(at), Rule())).square().sum()

    compiled = torch.compile(loss, backend=counted, fullgraph=True)
    for case in ("packed", "documents in pieces", "padded behind"):
        expected = torch.autograd.grad(loss(CASES[case]), inputs)
        for right, got in zip(expected, torch.autograd.grad(compiled(CASES[case]), inputs), strict=True):
            torch.testing.assert_close(got, right, rtol=0, atol=2e-6)
    assert counted.frame_count == 1
