"""Positions built from lengths, documents and grids: the numbers themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from ropewalk import positions
from ropewalk.attention import Rule, Score, attend
from ropewalk.encodings import build
from ropewalk.encodings.none import NoPE
from ropewalk.positions import FARTHEST, PAD, Positions
from tests.closeness import assert_close


def test_plain() -> None:
    at = positions.plain(4, batch=2, start=10)
    assert at.index.tolist() == [[10, 11, 12, 13]] * 2
    assert at.order.tolist() == at.index.tolist()
    assert at.segment.tolist() == [[0] * 4] * 2
    assert at.limit == 14
    assert at.shape == (2, 4)


def test_padded_on_either_side() -> None:
    left, right = positions.padded([1, 3], side="left", width=4), positions.padded([1, 3], side="right", width=4)
    assert left.segment.tolist() == [[PAD, PAD, PAD, 0], [PAD, 0, 0, 0]]
    assert left.index.tolist() == [[0, 0, 0, 0], [0, 0, 1, 2]]
    assert right.segment.tolist() == [[0, PAD, PAD, PAD], [0, 0, 0, PAD]]
    assert right.index.tolist() == [[0, 0, 0, 0], [0, 1, 2, 0]]
    assert left.limit == right.limit == 3


def test_packed() -> None:
    at = positions.packed([[2, 3], [4]], width=6)
    assert at.index.tolist() == [[0, 1, 0, 1, 2, 0], [0, 1, 2, 3, 0, 0]]
    assert at.segment.tolist() == [[0, 0, 1, 1, 1, PAD], [0, 0, 0, 0, PAD, PAD]]
    assert at.limit == 4


@pytest.mark.parametrize(
    "make",
    [positions.plain, lambda n, limit=None: positions.padded([n], limit=limit)],
    ids=["plain", "padded"],
)
def test_no_tokens_have_a_limit_too(make: Any) -> None:
    """Of which a scaling that depends on the length makes frequencies, and 0 is no length."""
    dynamic = build({"kind": "rope", "scaling": {"kind": "dynamic", "factor": 2, "trained": 8}}, head_width=4)
    assert dynamic.at(make(0)).rotate(torch.zeros(1, 1, 0, 4), "query").shape == (1, 1, 0, 4)
    for length in (0, 3):
        with pytest.raises(ValueError, match="limit 0 must lie between"):
            make(length, limit=0)


def test_grid_is_row_major() -> None:
    at = positions.grid(2, 3)
    assert at.index.tolist() == [[[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]]
    assert at.order.tolist() == [[0, 1, 2, 3, 4, 5]]
    assert at.axes == 2
    assert at.limit == 3


def test_interleaved_text_and_images_by_hand() -> None:
    """Two words, an image of 1 x 2 x 3, one word: the worked example of M-RoPE's rule."""
    at = positions.interleaved([2, (1, 2, 3), 1])
    want = [[0, 0, 0], [1, 1, 1], [2, 2, 2], [2, 2, 3], [2, 2, 4], [2, 3, 2], [2, 3, 3], [2, 3, 4], [5, 5, 5]]
    assert at.index.tolist() == [want]
    assert at.order.tolist() == [list(range(9))]
    assert at.limit == 6


def test_bare_integers_of_any_shape() -> None:
    index = torch.tensor([5, 7], dtype=torch.int32)
    for shape in (index, index[None]):
        at = positions.explicit(shape)
        assert at.index.tolist() == [[5, 7]]
        assert at.index.dtype == torch.int64
        assert at.limit == FARTHEST
    space = positions.explicit(torch.zeros(1, 3, 2, dtype=torch.int64), limit=4)
    assert space.order.tolist() == [[0, 1, 2]]


def test_take_rows_and_join() -> None:
    at = positions.packed([[2, 3], [5]])
    shuffled = at.take(torch.tensor([4, 0]))
    assert shuffled.index.tolist() == [[2, 0], [4, 0]]
    assert shuffled.segment.tolist() == [[1, 0], [0, 0]]
    joined = at.take(slice(0, 2)).join(at.take(slice(2, 5)))
    assert all(torch.equal(a, b) for a, b in zip(joined[:3], at[:3], strict=True))
    assert at.rows(slice(1, 2)).index.tolist() == [[0, 1, 2, 3, 4]]
    with pytest.raises(ValueError, match="one generation, one limit"):
        at.join(positions.plain(5, batch=2, limit=99))


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: positions.explicit(torch.zeros(3)), "positions are integers, got torch.float32"),
        (
            lambda: positions.explicit(torch.zeros(3, dtype=torch.complex64)),
            "positions are integers, got torch.complex64",
        ),
        (lambda: positions.explicit([True, False]), "positions are integers, got torch.bool"),
        (lambda: positions.explicit(torch.zeros(1, 2, 3, 4, dtype=torch.int64)), "shape"),
        (lambda: positions.explicit([5, 2**40 + 1]), "position 1,099,511,627,777 is farther than"),
        (lambda: positions.explicit([5, -(2**40) - 1]), "position -1,099,511,627,777 is farther than"),
        (lambda: positions.plain(10, limit=5), "limit 5 must lie between 10"),
        (lambda: positions.plain(10, limit=2**41), "2\\*\\*40"),
        (lambda: positions.padded([5], width=3), "a text of 5 tokens does not fit a row of 3"),
        (lambda: positions.padded([5], side="top"), "'left' or 'right', got 'top'"),
        (lambda: positions.packed([[3, 4]], width=6), "documents of 7 tokens do not fit a row of 6"),
        (lambda: positions.interleaved([(2, 2)]), "has 2 sides, the positions have 3 axes"),
    ],
)
def test_errors_say_the_value_and_the_limit(build, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        build()


def test_a_part_of_known_positions_is_not_called_plain() -> None:
    whole = positions.plain(8)
    part = whole.take(torch.tensor([0, 1, 6, 7])).know(whole=whole)
    assert part.whole is whole
    assert not part.is_plain


def test_plain_positions_stay_plain_on_another_device() -> None:
    assert positions.plain(4, batch=2).to("meta").is_plain


def edits() -> dict[str, Positions]:
    """Plain positions of 8 tokens with two documents made of them, in every way people edit a tuple of tensors."""
    halves = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]])
    written = positions.plain(8)
    written.segment[:, 4:] = 1
    with torch.inference_mode():
        inferred = positions.plain(8)
        inferred.segment[:, 4:] = 1
    flipped = tree_map_only(Tensor, lambda x: x.flip(1), positions.plain(8))
    moved = positions.plain(8)
    moved.order.add_(torch.tensor([[0, 0, 0, 0, -9, -9, -9, -9]]))
    return {
        "replaced": positions.plain(8)._replace(segment=halves),
        "order replaced": positions.plain(8)._replace(order=torch.arange(8).flip(0)[None]),
        "made anew": Positions(*positions.plain(8)[:2], halves, *positions.plain(8)[3:]),
        "written to": written,
        "written to in inference mode": inferred,
        "mapped": flipped,
        "order written to": moved,
    }


@pytest.mark.parametrize("edit", edits())
def test_of_edited_positions_nothing_is_known(edit: str) -> None:
    at = edits()[edit]
    assert not at.is_plain
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 8, 16) for _ in range(3))
    signal = NoPE().at(at)
    want = attend(q, k, v, Score(signal, Rule()), backend="eager")
    assert_close(edit, want, attend(q, k, v, Score(signal, Rule())), 1e-6)
    with torch.inference_mode():
        assert_close(edit, want, attend(q, k, v, Score(signal, Rule())), 1e-6)


def test_rows_and_devices_keep_what_is_known() -> None:
    at = positions.plain(4, batch=3)
    assert at.is_plain
    assert at.rows(slice(1, 3)).is_plain
    assert at.to("meta").is_plain
    assert not at.take(slice(0, 2)).is_plain
    assert not at.join(at).is_plain
    with torch.inference_mode():
        assert positions.plain(4).is_plain


DYNAMIC = {"kind": "rope", "scaling": {"kind": "dynamic", "factor": 2, "trained": 16}}


@pytest.mark.parametrize("kind", [DYNAMIC, "rope", "alibi", "none", "xpos"], ids=str)
def test_no_index_reaches_the_limit(kind: object) -> None:
    encoding = build(kind, heads=2, head_width=8)
    at = torch.tensor([[3, 15], [0, 16]])
    assert encoding.at(at, limit=17).q.limit == 17
    with pytest.raises(ValueError, match=r"position 16 is not below the limit 16 .* give limit=17 or more"):
        encoding.at(at, limit=16)
    by_hand = positions.Positions(at, at, torch.zeros_like(at), 16)
    with pytest.raises(ValueError, match="position 16 is not below the limit 16"):
        encoding.at(by_hand)
    with pytest.raises(ValueError, match="position 16 is not below the limit 16"):
        encoding.at(positions.plain(4, limit=16), by_hand)


def test_the_promise_ends_at_two_to_the_forty() -> None:
    rope = build("rope", head_width=8)
    rope.at(torch.tensor([-FARTHEST, FARTHEST]))
    for far in (FARTHEST + 1, 2 * FARTHEST, -FARTHEST - 1):
        with pytest.raises(ValueError, match=rf"position {far:,} is farther than 2\*\*40"):
            rope.at(torch.tensor([far]))


def test_what_cannot_be_read_is_not_looked_at() -> None:
    rope, past = build("rope", head_width=8), torch.tensor([5])
    assert positions.known_range(past) == (5, 5)
    assert positions.known_range(torch.empty(0, dtype=torch.int64)) is None
    assert rope.at(past.to("meta"), limit=4).q_table[0].is_meta
    with FakeTensorMode() as mode:
        rope.at(mode.from_tensor(past), limit=4)
    each = torch.vmap(lambda at: rope.at(at, limit=4).q_table[0])(past[:, None])
    assert each.shape == (1, 1, 1, 1, 4)
    whole = torch.compile(lambda at: rope.at(at, limit=8).q_table[0], fullgraph=True, backend="eager")
    assert whole(past).equal(rope.at(past, limit=8).q_table[0])
