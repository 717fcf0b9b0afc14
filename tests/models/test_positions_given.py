"""Positions as people give them: lists, bare tensors, or forgotten; with a cache and without."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

from ropewalk import encodings, positions
from ropewalk.attention import Rule
from ropewalk.models import Transformer, TransformerConfig
from tests.closeness import assert_close

TOKENS = torch.tensor([[3, 1, 4, 1, 5]])


def small(**settings: Any) -> Transformer:
    torch.manual_seed(0)
    given = {"vocabulary": 40, "width": 32, "heads": 4, "layers": 2, **settings}
    return Transformer(TransformerConfig(**given)).eval()


@torch.no_grad()
@pytest.mark.parametrize(
    "form", [lambda at: at, lambda at: at[0], lambda at: at.tolist(), lambda at: at[0].tolist(), lambda at: at.int()]
)
def test_bare_integers_are_positions(form: Any) -> None:
    model, index = small(), torch.tensor([[7, 8, 9, 20, 21]])
    want = model(TOKENS, positions.explicit(index, limit=64))
    assert torch.equal(model(TOKENS, form(index)), want)
    cache = model.cache(1, 8, limit=64)
    parts = [model(TOKENS[:, i : i + 1], form(index[:, i : i + 1]), cache=cache) for i in range(5)]
    assert (torch.cat(parts, dim=1) - want).abs().max() < 1e-5
    rope = encodings.RoPE(head_width=8)
    x = torch.randn(1, 2, 5, 8)
    assert torch.equal(rope.at(form(index)).rotate(x, "query"), rope.at(index).rotate(x, "query"))


@torch.no_grad()
def test_bare_integers_on_several_axes_come_after_what_is_cached() -> None:
    """They are places in space, and an image's stand still while reading goes on."""
    model = small(encoding={"kind": "rope", "sections": [2, 1, 1]}, std=0.3)
    at = positions.interleaved([5, (1, 3, 4), 20], limit=64).expanded(2)
    tokens = torch.randint(0, 40, at.shape)
    want, cache = model(tokens, at), model.cache(2, 64, limit=64)
    bounds = [0, 9, 30, *range(31, at.shape[1] + 1)]
    parts = [model(tokens[:, i:j], at.index[:, i:j], cache=cache) for i, j in pairwise(bounds)]
    assert_close("decoded", want, torch.cat(parts, dim=1), 1e-4)
    rope = encodings.RoPE(head_width=8, sections=[2, 1, 1])
    with pytest.raises(ValueError, match="the queries are bare integers on several axes"):
        rope.at(at.index[:, 36:], at.index)
    with pytest.raises(ValueError, match=r"the keys are .* at\.take"):
        rope.at(at.take(slice(36, 37)), at.index)
    signal = rope.at(at.take(slice(36, 37)), at)
    assert Rule().mask(signal.q, signal.k).all(), "the last token sees all"


def test_bare_integers_that_repeat_are_refused() -> None:
    """As transformers writes documents in a sequence: read as one, token 15 of the text would be seen by token 5."""
    model, tokens = small(), torch.randint(0, 40, (2, 12))
    index = torch.stack([torch.arange(12), torch.tensor([*range(5), *range(7)])])
    with pytest.raises(ValueError, match=r"tokens 0 and 5 of sequence 1 have the same position, 0\. Several .*packed"):
        model(tokens, index)
    with pytest.raises(ValueError, match="tokens 0 and 5 of sequence 1"):
        model(tokens, index, cache=model.cache(2, 12, limit=64))
    explicit = positions.explicit(index)
    assert model(tokens, explicit).shape == (2, 12, 40), "said with Positions, it is meant"


class Sharper(encodings.RoPE):
    """Queries alone get longer."""

    def rotate(self, x: torch.Tensor, table: Any, role: Any) -> torch.Tensor:
        return super().rotate(x, table, role) * (3 if role == "query" else 1)


@torch.no_grad()
def test_a_rotation_of_ones_own_is_asked_for_queries_and_for_keys() -> None:
    """RoPE turns both in one step, which its subclass must not inherit."""
    model = small()
    model.decoder.kinds[0].__class__ = Sharper
    got = model(TOKENS)
    model = small()
    for block in model.decoder.blocks:
        block.attention.qkv.weight[:32] *= 3
    assert_close("longer queries", model(TOKENS), got, 1e-5)
    assert encodings.RoPE.one_rotation
    assert not Sharper.one_rotation


def test_source_positions_may_be_a_list() -> None:
    model = small(stack="encoder-decoder", encoding="sinusoidal")
    want = model(TOKENS, source=TOKENS, source_at=positions.plain(5, start=9))
    assert torch.equal(model(TOKENS, source=TOKENS, source_at=[9, 10, 11, 12, 13]), want)


@pytest.mark.parametrize(
    "encoding", ["rope", {"kind": "rope", "scaling": {"kind": "dynamic", "factor": 2, "trained": 4}}]
)
def test_forgotten_positions_are_answered_with_what_to_write(encoding: Any) -> None:
    model = small(encoding=encoding)
    cache = model.cache(1, 8, limit=64)
    with pytest.raises(ValueError, match="limit 64") as caught:
        model(TOKENS, cache=cache)
    at = eval(str(caught.value).partition("at=")[2], {"cache": cache, "positions": positions, "torch": torch})  # noqa: S307
    model(TOKENS, at, cache=cache)
    with pytest.raises(ValueError, match="limit 64") as caught:
        model(TOKENS[:, :1], cache=cache)
    at = eval(str(caught.value).partition("at=")[2], {"cache": cache, "positions": positions})  # noqa: S307
    assert at.index.tolist() == [[5]]
    model(TOKENS[:, :1], at, cache=cache)


def test_tokens_without_rows() -> None:
    with pytest.raises(ValueError, match=r"got of shape \(5,\); write tokens\[None\] for one text"):
        small()(TOKENS[0])
    with pytest.raises(ValueError, match="a row for each text, got list"):
        small()([[3, 1]])


def test_lists_that_are_no_positions() -> None:
    with pytest.raises(ValueError, match=r"lists of equal length .*positions\.padded"):
        positions.explicit([[0, 1], [0]])
    with pytest.raises(ValueError, match=r"positions are integers, got torch\.float32"):
        positions.explicit([0.5, 1.0])
    with pytest.raises(
        ValueError, match=r"write packed\(\[\[5, 7\]\]\) for one row of 2 documents, padded\(\[5, 7\]\)"
    ):
        positions.packed([5, 7])


def test_a_learned_table_reads_positions_without_a_limit() -> None:
    learned = encodings.Learned(longest=8, width=4)
    assert torch.equal(learned.at([2, 7]).q_table[0], learned.weight[[2, 7]])
    with pytest.raises(ValueError, match="position 8 comes and the learned table ends at 8 positions"):
        learned.at([2, 8])
    with pytest.raises(ValueError, match=r"declare no limit .*at\(index, limit=8\)"):
        learned.at(torch.zeros(1, 2, dtype=torch.int64, device="meta"))


@pytest.mark.parametrize("kind", ["rope", "xpos", "none", {"kind": "temperature", "trained": 4}])
def test_vectors_of_fewer_dimensions(kind: Any) -> None:
    signal = encodings.build(kind, head_width=8, width=32, heads=4).at(torch.arange(5) + 100, limit=200)
    x = torch.randn(1, 3, 5, 8)
    want = signal.rotate(x, "query")
    assert torch.equal(signal.rotate(x[0], "query"), want[0])
    assert torch.equal(signal.rotate(x[0, 0], "query"), want[0, 0])
    with pytest.raises(ValueError, match=r"give \(B, H, 5, K\), or \(5, K\)"):
        signal.rotate(x[0, 0, :4], "query")
    two = encodings.RoPE(head_width=8).at(torch.arange(10).view(2, 5))
    with pytest.raises(ValueError, match=r"positions of 2 sequences of 5 tokens; give \(B, H, 5, K\)$"):
        two.rotate(x[0], "query")


@torch.no_grad()
def test_a_model_moves_the_keys_of_its_cache() -> None:
    model = small(
        layers={
            "count": 2,
            "pattern": ["a", "b"],
            "kinds": {"a": {}, "b": {"encoding": {"kind": "rope", "base": 500.0}}},
        }
    )

    def after(start: int) -> torch.Tensor:
        cache = model.cache(1, 8, limit=64)
        model(TOKENS, positions.plain(5, start=start, limit=64), cache=cache)
        if start != 3:
            model.shift(cache, 3 - start)
        assert cache.next.tolist() == [8]
        return model(TOKENS[:, :1], [8], cache=cache)

    assert (after(10) - after(3)).abs().max() < 1e-5
    cache = model.cache(1, 8, limit=64)
    with pytest.raises(ValueError, match=r"1 encodings for the keys of 2 layers; use model\.shift\(cache, delta\)"):
        cache.shift(model.decoder.kinds[0], 3)


@torch.no_grad()
def test_a_function_or_a_mask_evicts_from_a_model_or_a_layer() -> None:
    model = small(layers=1)

    def left(evict: Any) -> list[int]:
        cache = model.cache(1, 8, limit=64)
        model(TOKENS, positions.plain(5, start=3, limit=64), cache=cache)
        evict(cache)
        at = cache[0].read()[2]
        return at.order[at.segment == 0].tolist()

    mask = torch.tensor([[True, False, True, False, False]])
    for owner in (lambda cache: cache, lambda cache: cache[0]):
        assert left(lambda cache, owner=owner: owner(cache).evict(mask)) == [4, 6, 7]
        assert left(lambda cache, owner=owner: owner(cache).evict(lambda at: at.order % 2 == 1)) == [4, 6]
        assert left(lambda cache, owner=owner: owner(cache).crop(6)) == [3, 4, 5]
    windows = {"count": 2, "pattern": ["a", "b"], "kinds": {"a": {}, "b": {"window": 2}}}
    with pytest.raises(ValueError, match="layers of different windows hold different keys"):
        small(layers=windows).cache(1, 8, limit=64).evict(mask)
