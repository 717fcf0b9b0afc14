"""Each encoding's sites against its oracle, at positions near and far; and what it says of itself."""

from __future__ import annotations

import pytest
import torch

from ropewalk import positions
from ropewalk.encodings import Encoding
from tests.closeness import assert_close
from tests.encodings.rows import HEAD_WIDTH, HEADS, LIMIT, ROWS, Row

PLACES = [0, 1, 2, 31, 32, 255, 257, 1000, 2047, 4095]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_embed(row: Row) -> None:
    encoding = row.build()
    assert ("embed" in encoding.sites) == (row.embed is not None)
    x = torch.randn(1, len(PLACES), encoding.token_width)
    got = encoding.at(torch.tensor(PLACES), limit=LIMIT).embed(x)
    want = x if row.embed is None else [[row.embed(encoding, v, p) for v, p in zip(x[0].tolist(), PLACES, strict=True)]]
    # Past 1 a float32 has fewer digits behind the point.
    assert_close(str(row), want, got, 1e-6 * max(1.0, got.abs().max().item()))


@pytest.mark.parametrize("role", ["query", "key"])
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rotate(row: Row, role: str) -> None:
    encoding = row.build()
    assert ("rotate" in encoding.sites) == (row.rotate is not None)
    x = torch.randn(1, 1, len(PLACES), HEAD_WIDTH)
    got = encoding.at(torch.tensor(PLACES), limit=LIMIT).rotate(x, role)
    want = x
    if row.rotate is not None:
        want = [[[row.rotate(encoding, v, p, role) for v, p in zip(x[0, 0].tolist(), PLACES, strict=True)]]]
    assert_close(str(row), want, got, 1e-6 * max(1.0, got.abs().max().item()))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_bias(row: Row) -> None:
    encoding = row.build()
    assert ("bias" in encoding.sites) == (row.bias is not None)
    if row.bias is None:
        return
    both = encoding.claims.bidirectional
    signal = encoding.at(torch.tensor(PLACES), limit=LIMIT)
    index = signal.q.index
    head = torch.arange(HEADS)[:, None, None]
    got = signal.bias(head, index[:, None, :, None], index[:, None, None, :]).expand(1, HEADS, -1, -1).detach()
    for h in range(HEADS):
        for a, i in enumerate(PLACES):
            for b, j in enumerate(PLACES):
                if j <= i or both:
                    want = row.bias(encoding, h, i, j)
                    assert got[0, h, a, b].item() == pytest.approx(want, rel=2e-6, abs=2e-6), (h, i, j)
                    one = signal.bias(torch.tensor(h), torch.tensor(i), torch.tensor(j))
                    assert one.item() == pytest.approx(want, rel=2e-6, abs=2e-6), "one score at a time"


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_no_buffers_and_no_state(row: Row) -> None:
    encoding = row.build()
    assert list(encoding.buffers()) == []
    assert set(encoding.state_dict()) == {name for name, _ in encoding.named_parameters()}
    x = torch.randn(1, HEADS, 5, HEAD_WIDTH)
    before = encoding.at(torch.arange(5), limit=LIMIT).rotate(x, "query")
    attributes = dict(vars(encoding))
    encoding.at(torch.arange(4000), limit=LIMIT)  # a long call must not change the short one
    after = encoding.at(torch.arange(5), limit=LIMIT).rotate(x, "query")
    assert torch.equal(before, after)
    assert attributes == dict(vars(encoding))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_positions_of_any_shape_agree(row: Row) -> None:
    encoding = row.build()
    index = torch.tensor([3, 1, 1000, 7])
    x, tokens = torch.randn(2, HEADS, 4, HEAD_WIDTH), torch.randn(2, 4, encoding.token_width)
    shapes = [index, index[None], index.expand(2, 4)]
    rotated = [encoding.at(shape, limit=LIMIT).rotate(x, "query") for shape in shapes]
    embedded = [encoding.at(shape, limit=LIMIT).embed(tokens) for shape in shapes]
    assert torch.equal(rotated[0], rotated[1])
    assert torch.equal(rotated[0], rotated[2])
    assert torch.equal(embedded[0], embedded[1])
    assert torch.equal(embedded[0], embedded[2])


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_claim_keeps_norm(row: Row) -> None:
    encoding = row.build()
    x = torch.randn(1, 1, 64, HEAD_WIDTH)
    turned = encoding.at(torch.arange(0, 64 * 60, 60), limit=LIMIT).rotate(x, "query")
    change = (turned.norm(dim=-1) / x.norm(dim=-1) - 1).abs().max()
    assert (change.item() <= 3e-7) == encoding.claims.keeps_norm


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_claim_shift_invariant(row: Row) -> None:
    """Scores of the same pairs, all moved by 1,000: equal where claimed, different where not (embed sites apart)."""
    encoding = row.build()
    if "embed" in encoding.sites:
        assert not encoding.claims.shift_invariant
        return
    torch.manual_seed(1)
    q, k = torch.randn(2, 1, HEADS, 48, HEAD_WIDTH)

    def scores(start: int) -> torch.Tensor:
        signal = encoding.at(torch.arange(start, start + 48), limit=LIMIT)
        score = signal.rotate(q, "query") @ signal.rotate(k, "key").mT
        if "bias" in encoding.sites:
            index, head = signal.q.index, torch.arange(HEADS)[:, None, None]
            score = score + signal.bias(head, index[:, None, :, None], index[:, None, None, :])
        return score.tril()

    drift = (scores(1000) - scores(0)).abs().max().item()
    scale = scores(0).abs().max().item()
    assert (drift <= 2e-6 * scale) == encoding.claims.shift_invariant, drift


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_built_on_meta_and_filled(row: Row) -> None:
    """Meta construction, to_empty and a load give the same as a fresh build: nothing is left uninitialised."""
    fresh = row.build()
    with torch.device("meta"):
        hollow = row.build()
    filled = hollow.to_empty(device="cpu")
    filled.load_state_dict(fresh.state_dict(), strict=True)
    x = torch.randn(1, HEADS, 3, HEAD_WIDTH)
    at = positions.explicit(torch.tensor([5, 900, 4000]), limit=LIMIT)
    assert torch.equal(fresh.at(at).rotate(x, "query"), filled.at(at).rotate(x, "query"))
    again = row.build(seed=0)
    torch.manual_seed(0)
    filled.reset_parameters()
    for name, value in again.named_parameters():
        assert torch.equal(value, dict(filled.named_parameters())[name]), name


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_several_axes_are_refused(row: Row) -> None:
    encoding = row.build()
    if row.kind == "none":
        return
    with pytest.raises(ValueError, match="axis"):
        encoding.at(positions.grid(3, 4, limit=LIMIT))


def test_every_site_is_inferred() -> None:
    assert Encoding.Config.model_fields["kind"].annotation is str
    assert {site for row in ROWS for site in row.build().sites} == {"embed", "rotate", "bias"}
