"""ALiBi's slopes and T5's buckets against the libraries that shipped them, to the bit; learned tables at their end."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from ropewalk import positions
from ropewalk.encodings import ALiBi, Fire, Learned, Scalar, XPos
from ropewalk.encodings.alibi import slopes
from ropewalk.encodings.t5 import T5, bucket_edges
from tests.encodings import oracles
from tests.encodings.rows import HEAD_WIDTH, HEADS, LIMIT, ROWS, Row


@pytest.mark.parametrize("heads", range(1, 129))
def test_alibi_slopes(heads: int) -> None:
    want = [oracles.alibi_slope(h, heads) for h in range(heads)]
    assert slopes(heads) == pytest.approx(want, rel=1e-14)
    shipped = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]  # slope x key position 1
    # BLOOM raises a float32 to powers up to the number of heads, so its own error grows with it.
    assert torch.allclose(torch.tensor(slopes(heads)), shipped, rtol=1.2e-7 * (1 + heads), atol=0)


def test_alibi_is_a_penalty_and_strictly_monotone() -> None:
    table = ALiBi(heads=8).at(torch.arange(2)).q_table
    apart = torch.tensor([0, 1, 2, 1000, 2**20, 2**24 - 1, 2**24])
    bias = ALiBi(heads=8).bias(table, torch.tensor(3), apart + 77, torch.tensor(77))
    assert bias[0] == 0
    assert (bias.diff() < 0).all()


SETTINGS = [(32, 128), (32, 256), (64, 128), (16, 20), (8, 1000)]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("buckets", "farthest"), SETTINGS)
def test_t5_buckets(buckets: int, farthest: int, bidirectional: bool) -> None:
    ahead = torch.arange(-5000, 5001)
    want = T5Attention._relative_position_bucket(
        ahead, bidirectional=bidirectional, num_buckets=buckets, max_distance=farthest
    )
    encoding = T5(heads=2, buckets=buckets, farthest=farthest, bidirectional=bidirectional)
    assert torch.equal(encoding.bucket(ahead), want)
    assert torch.equal(encoding.bucket(ahead, one_by_one=True), want)
    far = encoding.bucket(torch.tensor([-(2**40), 2**40]))
    assert far.tolist() == ([buckets // 2 - 1, buckets - 1] if bidirectional else [buckets - 1, 0])


def test_t5_edges_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With big integers: 9 ms for distances up to 2,048."""
    encoding = T5(heads=2, farthest=2048)
    monkeypatch.setattr("ropewalk.encodings.t5.bucket_edges", None)
    assert encoding.bucket(torch.tensor([-2048, -7, 3])).tolist() == [31, 7, 0]


def test_t5_edges_rise() -> None:
    edges = bucket_edges(32, 128)
    assert edges[:16] == tuple(range(1, 17))
    assert list(edges) == sorted(edges)
    assert len(edges) == 31


@pytest.mark.parametrize(("bidirectional", "exact"), [(False, 16), (True, 8)])
def test_t5_refuses_a_farthest_within_the_exact_buckets(bidirectional: bool, exact: int) -> None:
    with pytest.raises(ValueError, match=f"within the {exact} distances that have a bucket each"):
        T5(heads=2, buckets=32, farthest=exact, bidirectional=bidirectional)
    with pytest.raises(ValueError, match="buckets=31 is odd"):
        T5(heads=2, buckets=31)
    assert T5(heads=2, buckets=32, farthest=exact + 1, bidirectional=bidirectional)._edges[exact - 1] == exact


def test_a_learned_table_ends_with_an_error() -> None:
    """Before any kernel, with the position, the limit and the ways out."""
    encoding = Learned(width=8, longest=512)
    encoding.at(positions.plain(512))
    with pytest.raises(ValueError, match=r"position 512 may come \(limit 513\) and the learned table ends at 512"):
        encoding.at(positions.plain(513))
    with pytest.raises(ValueError, match=r"position 512 comes and .* limit=512 or less"):
        encoding.at(torch.arange(513))
    with pytest.raises(ValueError, match="position -1 is before the first of the learned table"):
        encoding.at(torch.tensor([-1, 5]), limit=512)
    with pytest.raises(ValueError, match="position 512 is not below the limit 512"):
        encoding.at(torch.tensor([512]), limit=512)


def test_encodings_of_the_length_ask_for_it() -> None:
    with pytest.raises(ValueError, match=r"at\(\.\.\., limit=N\)"):
        Scalar(width=8).at(torch.arange(4))
    for outside in (1000, -1):
        with pytest.raises(ValueError, match=rf"position {outside:,} is"):
            Scalar(width=8).at(torch.tensor([3, outside]), limit=11)
    with pytest.raises(ValueError, match=r"stays within float32 up to limit 61,440, and no limit was declared"):
        XPos(head_width=8).at(torch.arange(4))
    with pytest.raises(ValueError, match="the limit is 131,072"):
        XPos(head_width=8).at(torch.arange(4), limit=131_072)


def test_share_belongs_to_concat() -> None:
    with pytest.raises(ValueError, match="share=3 belongs to combine=concat"):
        Scalar(width=8, share=3).at(torch.arange(4), limit=8)
    with pytest.raises(ValueError, match="share=8 must leave the tokens some of the width 8"):
        Scalar(width=8, combine="concat", share=8).at(torch.arange(4), limit=8)
    with pytest.raises(ValueError, match="token vectors must be 6 wide"):
        Scalar(width=8, combine="concat", share=2).at(torch.arange(4), limit=8).embed(torch.zeros(1, 4, 8))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_fire_keeps_positions_whatever_its_dtype(dtype: torch.dtype, autocast: bool) -> None:
    torch.manual_seed(0)
    encoding = Fire(heads=2).to(dtype).requires_grad_(False)
    near = range(4032, 4096)
    signal = encoding.at(torch.tensor([*near]))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        got = signal.bias(torch.arange(2)[:, None, None], torch.tensor([[4096]]), 4096 - torch.tensor([[*near]]))
    assert got.dtype == torch.float32
    assert len(got[0].unique()) > 50, "neighbouring distances have biases of their own"
    slope, threshold = encoding.slope.item(), encoding.threshold.item()
    for head in range(2):
        outer = [*encoding.outer[head].tolist(), encoding.offset[head].item()]
        want = [oracles.fire((4096, 4096 - d), slope, threshold, encoding.inner.tolist(), outer) for d in near]
        assert got[head].flatten().tolist() == pytest.approx(want, abs=2e-6)


@pytest.mark.parametrize("first_row", [0, 2])
def test_a_learned_table_reads_no_row_of_no_position(first_row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the reserved rows either, and not where positions cannot be read beforehand: there the kernel refuses."""
    monkeypatch.setattr("ropewalk.positions.known_range", lambda index: None)
    monkeypatch.setattr("ropewalk.encodings.learned.known_range", lambda index: None)
    encoding = Learned(width=8, longest=16, first_row=first_row)
    first = encoding.at(torch.tensor([0]), limit=16).q_table
    assert first.equal(encoding.weight[None, first_row : first_row + 1])
    for position in (-3, -2, -1, 16):
        with pytest.raises(IndexError):
            encoding.at(torch.tensor([3, position]), limit=16)


def test_xpos_in_float16_ends_before_it_overflows() -> None:
    encoding = XPos(head_width=16)
    x = torch.full((1, 1, 2, 16), 100.0, dtype=torch.float16)
    for role in ("query", "key"):
        ends = encoding.at(torch.tensor([0, 5119]), limit=5120)
        assert ends.rotate(x, role).isfinite().all()
        assert encoding.at(torch.tensor([0]), limit=20_000).rotate(x[:, :, :1].bfloat16(), role).isfinite().all()
        with pytest.raises(ValueError, match="within float16 up to limit 5,120, and the limit is 20,000; use bfloat16"):
            encoding.at(torch.tensor([0]), limit=20_000).rotate(x[:, :, :1], role)


class NoFloat64(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves((args, out)):
            assert not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.float64, f"{func} in float64"
        return out


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_device_without_float64_meets_none(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    encoding = row.build().requires_grad_(False)
    places = torch.tensor([0, 31, 1000, 4095])
    x, q = torch.randn(1, 4, encoding.token_width), torch.randn(1, HEADS, 4, HEAD_WIDTH)

    def results() -> list[torch.Tensor]:
        signal = encoding.at(places, limit=LIMIT)
        found = [signal.embed(x), signal.rotate(q, "query"), signal.rotate(q, "key")]
        if "bias" in encoding.sites:
            found.append(signal.bias(torch.arange(HEADS)[:, None, None], places[:, None], places))
        if row.embed is None and not encoding.claims.needs_limit:
            found.append(encoding.move(q, torch.full((1, 4), 77)))
        return found

    want = results()
    monkeypatch.setattr("ropewalk.phase.WITHOUT_FLOAT64", {"cpu"})
    with NoFloat64():
        got = results()
    for one, other in zip(want, got, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5)
