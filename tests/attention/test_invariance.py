"""Every encoding through one attention layer: other integers, other backends, other schedules, the same numbers.

float32 within 2e-6 of the outputs' scale; bfloat16 within 2e-2.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.nn.attention import flex_attention

from ropewalk import positions
from ropewalk.attention import Rule, Score, attend
from ropewalk.positions import PAD, Positions
from tests.attention.layer import Layer
from tests.closeness import assert_close
from tests.encodings.rows import HEADS, LIMIT, ROWS, Row

LENGTHS = (1, 7, 63, 128)
BOUND = {torch.float32: 2e-6, torch.bfloat16: 2e-2}


def without_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uncompiled, FlexAttention traces itself anew for every shape; here only its numbers are of interest."""
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


_flex_without_tracing = pytest.fixture(autouse=True)(without_tracing)

every_row = pytest.mark.parametrize("row", ROWS, ids=str)
every_dtype = pytest.mark.parametrize("dtype", BOUND, ids=["float32", "bfloat16"])


def same(row: Row, name: str, want: Tensor, got: Tensor, dtype: torch.dtype) -> None:
    """Equal within the bound, and where float32 is clear about the largest feature, agreeing about it."""
    scale = max(1.0, want.float().abs().max().item()) * row.loose
    assert_close(name, want, got, BOUND[dtype] * scale)
    best = want.float().topk(2, dim=-1)
    clear = (best.values[..., 0] - best.values[..., 1]) > 2 * BOUND[dtype] * scale
    assert torch.equal(best.indices[..., 0][clear], got.float().argmax(-1)[clear])


@every_dtype
@every_row
def test_backends_agree(row: Row, dtype: torch.dtype) -> None:
    layer = Layer(row, dtype)
    with torch.no_grad():
        for L in LENGTHS:
            x, at = layer.tokens(2, L), positions.plain(L, batch=2, start=900, limit=LIMIT)
            want = layer(x, at, backend="eager")
            for backend in ("sdpa", "tiled", "flex"):
                same(row, f"{row} {backend} {L}", want, layer(x, at, backend=backend, strict=True), dtype)


@every_dtype
@every_row
def test_backends_agree_on_windows_and_documents(row: Row, dtype: torch.dtype) -> None:
    rules = [Rule(window=5), Rule(window=9, keep_first=2)]
    if row.build().claims.bidirectional:
        rules += [Rule(causal=False), Rule(causal=False, window=6)]
    at = positions.packed([[20, 40, 3], [63]], width=66, limit=LIMIT)
    with torch.no_grad():
        for rule in rules:
            layer = Layer(row, dtype, rule=rule)
            x = layer.tokens(2, 66)
            want = layer(x, at, backend="eager")
            assert torch.equal(want.transpose(1, 2)[at.segment == PAD], torch.zeros(6, HEADS, 16, dtype=dtype))
            for backend in ("sdpa", "tiled", "flex"):
                same(row, f"{row} {backend} {rule}", want, layer(x, at, backend=backend, strict=True), dtype)


@every_dtype
@every_row
def test_decoding_and_chunks_equal_one_pass(row: Row, dtype: torch.dtype) -> None:
    layer = Layer(row, dtype)
    with torch.no_grad():
        for L in LENGTHS:
            x, at = layer.tokens(2, L), positions.plain(L, batch=2, start=100, limit=LIMIT)
            want = layer(x, at)
            cuts = sorted(set(torch.randint(1, L + 1, (4,)).tolist()) | {0, L})
            for starts in (list(range(L + 1)), cuts):
                cache = layer.cache(2, L, LIMIT)
                spans = itertools.pairwise(starts)
                pieces = [layer(x[:, a:b], at.take(slice(a, b)), cache) for a, b in spans]
                same(row, f"{row} {len(pieces)} chunks of {L}", want, torch.cat(pieces, dim=2), dtype)


@every_row
def test_windowed_ring_equals_one_pass(row: Row) -> None:
    for window in (1, 3, 16):
        layer = Layer(row, rule=Rule(window=window))
        x, at = layer.tokens(2, 63), positions.plain(63, batch=2, start=5, limit=LIMIT)
        want = layer(x, at)
        for starts in ([0, 20, 21, 22, 23, 24, 50, 63], list(range(64))):
            cache = layer.cache(2, 63, LIMIT)
            assert cache.capacity == window
            spans = itertools.pairwise(starts)
            pieces = [layer(x[:, a:b], at.take(slice(a, b)), cache) for a, b in spans]
            same(row, f"{row} window {window}", want.detach(), torch.cat(pieces, dim=2).detach(), torch.float32)


@every_dtype
@every_row
def test_packed_equals_separate(row: Row, dtype: torch.dtype) -> None:
    layer = Layer(row, dtype)
    lengths = [7, 63, 1, 57]
    with torch.no_grad():
        x, at = layer.tokens(1, 128), positions.packed([lengths], limit=LIMIT)
        together = layer(x, at)
        start = 0
        for length in lengths:
            part = slice(start, start + length)
            alone = layer(x[:, part], positions.plain(length, limit=LIMIT))
            same(row, f"{row} document of {length}", alone, together[:, :, part], dtype)
            start += length
        other = x.clone()
        other[:, 7:70] = layer.tokens(1, 63, seed=99)
        changed = layer(other, at)
        assert torch.equal(changed[:, :, 70:], together[:, :, 70:]), "another document's tokens reached this one"
        assert torch.equal(changed[:, :, :7], together[:, :, :7])
        assert not torch.equal(changed[:, :, 7:70], together[:, :, 7:70])


@every_dtype
@every_row
def test_padding_on_either_side_equals_alone(row: Row, dtype: torch.dtype) -> None:
    layer = Layer(row, dtype)
    lengths = [1, 7, 63, 128]
    texts = [layer.tokens(1, length, seed=length) for length in lengths]
    with torch.no_grad():
        for side in ("left", "right"):
            at = positions.padded(lengths, side=side, width=130, limit=LIMIT)
            x = layer.tokens(4, 130, seed=5)
            for b, text in enumerate(texts):
                x[b, at.segment[b] != PAD] = text[0]
            out = layer(x, at)
            for b, (length, text) in enumerate(zip(lengths, texts, strict=True)):
                alone = layer(text, positions.plain(length, limit=LIMIT))
                same(row, f"{row} {side}", alone[0], out[b][:, at.segment[b] != PAD], dtype)
                assert not out[b][:, at.segment[b] == PAD].any(), "padding attends to nothing and gives 0"


@every_row
def test_decoding_after_padding_on_either_side(row: Row) -> None:
    """Unequal prompts, then tokens one by one: each row equals itself alone."""
    layer, lengths, more = Layer(row), [3, 9, 1], 5
    texts = [layer.tokens(1, length + more, seed=length) for length in lengths]
    with torch.no_grad():
        for side in ("left", "right"):
            at = positions.padded(lengths, side=side, limit=LIMIT)
            x = layer.tokens(3, 9, seed=5)
            for b, (length, text) in enumerate(zip(lengths, texts, strict=True)):
                x[b, at.segment[b] != PAD] = text[0, :length]
            cache = layer.cache(3, 9 + more, LIMIT)
            layer(x, at, cache)
            assert cache.next.tolist() == lengths
            for step in range(more):
                index = cache.next[:, None]
                token = torch.cat([text[:, n + step : n + step + 1] for n, text in zip(lengths, texts, strict=True)])
                out = layer(token, positions.explicit(index, limit=LIMIT), cache)
            for b, (length, text) in enumerate(zip(lengths, texts, strict=True)):
                alone = layer(text, positions.plain(length + more, limit=LIMIT))
                same(row, f"{row} {side}", alone[0, :, -1:], out[b], torch.float32)


@every_dtype
@every_row
def test_shuffled_shard_equals_slice(row: Row, dtype: torch.dtype) -> None:
    """Context parallel: any share of the queries against the keys in any order."""
    layer = Layer(row, dtype)
    with torch.no_grad():
        for L in LENGTHS[1:]:
            x, at = layer.tokens(2, L), positions.packed([[L // 2, L - L // 2], [L]], limit=LIMIT)
            want = layer(x, at)
            shuffle = torch.randperm(L)
            mine = shuffle[: L // 2]
            keys = layer.encoding.at(at.take(shuffle))
            _, k, v = layer.project(keys.embed(x[:, shuffle]))
            queries = layer.encoding.at(at.take(mine))
            q, _, _ = layer.project(queries.embed(x[:, mine]))
            q = queries.rotate(q, "query")
            k = keys.rotate(k, "key")
            got = attend(q, k, v, Score(queries.with_keys(at.take(shuffle)), layer.rule))
            same(row, f"{row} shard of {L}", want[:, :, mine], got, dtype)


@every_row
def test_heads_of_a_rank_equal_slice(row: Row) -> None:
    """Tensor parallel: half the heads, told which they are."""
    layer = Layer(row)
    x, at = layer.tokens(2, 63), positions.plain(63, batch=2, start=7, limit=LIMIT)
    signal = layer.encoding.at(at)
    q, k, v = layer.project(signal.embed(x))
    q, k = signal.rotate(q, "query"), signal.rotate(k, "key")
    with torch.no_grad():
        for backend in ("eager", "sdpa", "tiled", "flex"):
            whole = attend(q, k, v, Score(signal, layer.rule), backend=backend)
            for rank in (0, 1):
                mine, theirs = slice(2 * rank, 2 * rank + 2), slice(rank, rank + 1)
                score = Score(signal, layer.rule, first_head=2 * rank)
                part = attend(q[:, mine], k[:, theirs], v[:, theirs], score, backend=backend)
                same(row, f"{row} {backend} rank {rank}", whole[:, mine], part, torch.float32)


@every_row
def test_a_row_that_sees_nothing_gives_zero(row: Row) -> None:
    layer = Layer(row)
    x = layer.tokens(1, 6)
    plain = positions.plain(6, limit=LIMIT)
    keys = Positions(plain.index, plain.order, torch.tensor([[0, 0, 0, 1, 1, 1]]), LIMIT)
    queries = Positions(plain.index, plain.order, torch.tensor([[0, 2, PAD, 1, 1, 3]]), LIMIT)
    signal = layer.encoding.at(queries, keys)
    q, k, v = layer.project(signal.embed(x))
    q, k = signal.rotate(q, "query"), signal.rotate(k, "key")
    for backend in ("eager", "sdpa", "tiled", "flex"):
        with torch.no_grad():
            out = attend(q, k, v, Score(signal, layer.rule), backend=backend)
        assert torch.isfinite(out).all()
        assert not out[:, :, [1, 2, 5]].any(), backend
        assert out[:, :, [0, 3, 4]].abs().amin() > 0
    for backend in ("eager", "sdpa", "tiled"):
        inputs = [x.detach().requires_grad_() for x in (q, k, v)]
        attend(*inputs, Score(layer.encoding.at(queries, keys), layer.rule), backend=backend).sum().backward()
        assert all(torch.isfinite(x.grad).all() for x in inputs), backend
        assert not inputs[0].grad[:, :, [1, 2, 5]].any()
