"""ALiBi's slopes and T5's buckets against the libraries that shipped them, to the bit; learned tables at their end."""

from __future__ import annotations

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from ropewalk import positions
from ropewalk.encodings import ALiBi, Learned, Scalar, XPos
from ropewalk.encodings.alibi import slopes
from ropewalk.encodings.t5 import T5, bucket_edges
from tests.encodings import oracles


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


def test_t5_edges_rise() -> None:
    edges = bucket_edges(32, 128)
    assert edges[:16] == list(range(1, 17))
    assert edges == sorted(edges)
    assert len(edges) == 31


def test_a_learned_table_ends_with_an_error() -> None:
    """Before any kernel, with the position, the limit and the ways out."""
    encoding = Learned(width=8, longest=512)
    encoding.at(positions.plain(512))
    with pytest.raises(ValueError, match=r"position 512 may come \(limit 513\) and the learned table ends at 512"):
        encoding.at(positions.plain(513))
    with pytest.raises(ValueError, match="limit=512 or less"):
        encoding.at(torch.arange(5))
    for outside in (-1, 512):  # positions that break the word of their limit
        with pytest.raises(IndexError):
            encoding.at(torch.tensor([outside]), limit=512)


def test_encodings_of_the_length_ask_for_it() -> None:
    with pytest.raises(ValueError, match=r"at\(\.\.\., limit=N\)"):
        Scalar(width=8).at(torch.arange(4))
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
