"""Rings: what a window's cache overwrote is known, through wraps, crops, shifts, long chunks and beams."""

from __future__ import annotations

import pytest
import torch

from ropewalk import positions
from ropewalk.attention import Cache, LayerCache, Rule
from tests.attention.layer import Layer
from tests.closeness import assert_close
from tests.encodings.rows import HEAD_WIDTH, KEY_HEADS, LIMIT, Row

WINDOW = 5


def ring(layer: Layer, batch: int, slack: int) -> LayerCache:
    cache = LayerCache(batch, 40, KEY_HEADS, HEAD_WIDTH, limit=LIMIT, rule=layer.rule, slack=slack)
    assert cache.ring
    return cache


def one_by_one(layer: Layer, x: torch.Tensor, cache: LayerCache, start: int, stop: int) -> torch.Tensor:
    outs = [layer(x[:, t : t + 1], positions.plain(1, start=t, limit=LIMIT), cache) for t in range(start, stop)]
    return torch.cat(outs, dim=2)


@pytest.mark.parametrize("written", [9, 11, 13, 17])
@pytest.mark.parametrize("taken", [1, 3])
def test_a_ring_that_came_round_goes_on_after_a_crop(written: int, taken: int) -> None:
    """Wherever the oldest key sits in the ring, cropping puts the rest in order of age, and the next keys overwrite the
    oldest."""
    layer = Layer(Row("rope"), rule=Rule(window=WINDOW))
    x = layer.tokens(1, 40)
    cache = ring(layer, 1, slack=3)
    one_by_one(layer, x, cache, 0, written)
    cache.crop(written - taken)
    got = one_by_one(layer, x, cache, written - taken, 35)
    want = layer(x[:, :35], positions.plain(35, limit=LIMIT))[:, :, written - taken :]
    assert_close("after the crop", want, got, 4e-6)


@pytest.mark.parametrize("chunk", [False, True])
def test_what_was_lost_moves_with_a_shift(chunk: bool) -> None:
    """Keys 0 to 11 of 20 are gone; after a shift by 100 they would be 100 to 111, and a crop that needs them is still
    refused, one that does not is not. The same where one chunk longer than the ring was read."""
    layer = Layer(Row("rope"), rule=Rule(window=WINDOW))
    x = layer.tokens(1, 40)
    for order, refused in ((119, False), (116, False), (115, True), (110, True)):
        cache = ring(layer, 1, slack=3)
        if chunk:
            layer(x[:, :20], positions.plain(20, limit=LIMIT), cache)
        else:
            one_by_one(layer, x, cache, 0, 20)
        cache.shift(layer.encoding, 100)
        if refused:
            with pytest.raises(ValueError, match="more slack"):
                cache.crop(order)
            assert cache.next.tolist() == [120]
        else:
            cache.crop(order)
            assert cache.next.tolist() == [order]


def test_beams_of_a_ring_know_what_each_has_lost() -> None:
    """Row 1 has read 3 tokens and lost none, row 0 has lost many: a beam of row 1 may take back what row 0 may not."""
    layer = Layer(Row("rope"), rule=Rule(window=WINDOW))
    cache = ring(layer, 2, slack=3)
    at = positions.padded([20, 3], limit=LIMIT)
    layer(layer.tokens(2, 20), at, cache)
    with pytest.raises(ValueError, match="more slack"):
        cache.crop(10)
    short = cache.select([1, 1, 1])
    short.crop(1)
    assert short.next.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="more slack"):
        cache.select([0]).crop(10)


def test_a_fork_still_knows_that_layers_share_their_positions() -> None:
    first = LayerCache(1, 8, KEY_HEADS, HEAD_WIDTH, limit=LIMIT)
    cache = Cache([first, LayerCache(1, 8, KEY_HEADS, HEAD_WIDTH, limit=LIMIT, beside=first)], "")
    k = torch.randn(1, KEY_HEADS, 4, HEAD_WIDTH)
    at = positions.plain(4, limit=LIMIT)
    for layer in cache.layers:
        layer.append(k, k, at)
    fork = cache.fork()
    assert fork[0].slots is fork[1].slots
    with pytest.raises(ValueError, match="2 layers share these positions"):
        fork[0].crop(2)
    fork.crop(2)
    assert [layer.filled for layer in fork.layers] == [2, 2]


def test_layers_that_share_their_positions_take_tokens_in_turn() -> None:
    """Whatever breaks the order would leave one of them with the keys of other tokens at the same positions."""

    def two() -> tuple[LayerCache, LayerCache]:
        first = LayerCache(1, 16, KEY_HEADS, HEAD_WIDTH, limit=LIMIT)
        return first, LayerCache(1, 16, KEY_HEADS, HEAD_WIDTH, limit=LIMIT, beside=first)

    k, v = torch.randn(2, 1, KEY_HEADS, 4, HEAD_WIDTH)
    at, then = (positions.plain(4, start=start, limit=LIMIT) for start in (0, 4))
    first, second = two()
    with pytest.raises(ValueError, match="in turn"):
        second.append(k, v, at)
    first.append(k, v, at)
    for layer, where in ((first, at), (first, then), (second, then)):
        with pytest.raises(ValueError, match="in turn"):
            layer.append(k, v, where)
    second.append(k, v, at)
    first.append(k, v, then)
    assert torch.equal(second.append(k, v, then)[0], torch.cat([k, k], dim=2))
    alone = second.select([0])  # nothing is beside it any more
    alone.append(k, v, positions.plain(4, start=8, limit=LIMIT))
    first, second = two()
    with pytest.raises(RuntimeError):
        first.append(k[..., :-1], v, at)  # the positions were taken, the keys were not
    with pytest.raises(ValueError, match="in turn"):
        first.append(k, v, at)
    lone = LayerCache(1, 16, KEY_HEADS, HEAD_WIDTH, limit=LIMIT)
    with pytest.raises(RuntimeError):
        lone.append(k[..., :-1], v, at)
    with pytest.raises(ValueError, match="a pass over this cache was interrupted"):
        lone.append(k, v, at)


def test_a_ring_that_has_lost_nothing_takes_back_to_the_start() -> None:
    layer = Layer(Row("rope"), rule=Rule(window=WINDOW))
    x, cache = layer.tokens(1, 10), ring(layer, 1, slack=3)
    one_by_one(layer, x, cache, 0, 4)
    cache.crop(1)
    got = one_by_one(layer, x, cache, 1, 10)
    assert_close("after the crop", layer(x, positions.plain(10, limit=LIMIT))[:, :, 1:], got, 4e-6)


@pytest.mark.parametrize("chunk", [2, 3, 7])
def test_chunks_over_a_full_ring_see_what_they_overwrite(chunk: int) -> None:
    layer = Layer(Row("rope"), rule=Rule(window=WINDOW))
    x, cache = layer.tokens(1, 42), ring(layer, 1, slack=0)
    parts = [(x[:, t : t + chunk], positions.plain(chunk, start=t, limit=LIMIT)) for t in range(0, 42, chunk)]
    got = torch.cat([layer(tokens, at, cache) for tokens, at in parts], dim=2)
    assert_close("chunks", layer(x, positions.plain(42, limit=LIMIT)), got, 4e-6)


def test_a_window_longer_than_the_cache_takes_no_more_room() -> None:
    cache = LayerCache(1, 4, KEY_HEADS, HEAD_WIDTH, limit=LIMIT, rule=Rule(window=WINDOW))
    assert (cache.ring, cache.capacity) == (False, 4)


def test_the_first_order_whose_window_has_lost_nothing() -> None:
    """Keys 0 to 8 of 14 are gone, and 9 with the next token: that may have order 14, the window then beginning at 10,
    and not 13."""
    layer = Layer(Row("rope"), rule=Rule(window=WINDOW))
    x = layer.tokens(1, 15)
    for order, refused in ((13, True), (14, False)):
        cache = ring(layer, 1, slack=0)
        one_by_one(layer, x, cache, 0, 14)
        at = positions.explicit(torch.tensor([[order]]), LIMIT)
        if refused:
            with pytest.raises(ValueError, match="orders must rise"):
                layer(x[:, 14:], at, cache)
        else:
            layer(x[:, 14:], at, cache)


@pytest.mark.parametrize("slack", [0, 30])
@pytest.mark.parametrize("chunk", [1, 3])
def test_orders_that_do_not_rise_are_exact_or_refused(slack: int, chunk: int) -> None:
    """A window is of orders and a ring of tokens: equal orders need more keys than it has."""
    layer = Layer(Row("rope"), rule=Rule(window=WINDOW))
    x = layer.tokens(1, 24)
    at = torch.arange(24)[None] // 3
    cache = LayerCache(1, 40, KEY_HEADS, HEAD_WIDTH, limit=LIMIT, rule=layer.rule, slack=slack)
    assert cache.ring

    def read() -> torch.Tensor:
        parts = [slice(t, t + chunk) for t in range(0, 24, chunk)]
        return torch.cat([layer(x[:, t], positions.explicit(at[:, t], LIMIT), cache) for t in parts], dim=2)

    if slack == 0:
        with pytest.raises(ValueError, match="orders must rise"):
            read()
        return
    # One token at a time does not see those of its order that come later, as all at once do.
    whole = layer(x, positions.explicit(at, LIMIT))
    places = slice(None) if chunk == 3 else slice(2, None, 3)
    assert_close("equal orders", whole[:, :, places], read()[:, :, places], 4e-6)


def test_going_back_is_refused_and_changes_nothing() -> None:
    layer = Layer(Row("rope"), rule=Rule(window=WINDOW))
    x, cache = layer.tokens(1, 40), None
    cache = ring(layer, 1, slack=0)
    one_by_one(layer, x, cache, 10, 22)
    held = cache.read()[2].order.clone()
    for back in (torch.tensor([[12]]), torch.tensor([[22, 13]])):
        with pytest.raises(ValueError, match="orders must rise"):
            layer(x[:, : back.shape[1]], positions.explicit(back, LIMIT), cache)
        assert torch.equal(cache.read()[2].order, held)
    got = one_by_one(layer, x, cache, 22, 30)
    want = layer(x[:, 10:30], positions.plain(20, start=10, limit=LIMIT))[:, :, 12:]
    assert_close("after the refusal", want, got, 4e-6)


def test_the_next_document_of_a_row_starts_at_0() -> None:
    """What was overwritten of the one before it does not count."""
    layer = Layer(Row("rope"), rule=Rule(window=WINDOW))
    x = layer.tokens(1, 32)
    at = positions.packed([[20, 12]], limit=LIMIT)
    cache = ring(layer, 1, slack=0)

    def part(t: int) -> positions.Positions:
        return positions.Positions(*(one[:, t : t + 1] for one in at[:3]), LIMIT)

    got = torch.cat([layer(x[:, t : t + 1], part(t), cache) for t in range(32)], dim=2)
    assert_close("two documents", layer(x, at), got, 4e-6)


@pytest.mark.parametrize("slack", [0, 3])
@pytest.mark.parametrize("chunk", [1, 2, 7])
def test_documents_in_any_order_are_exact_or_refused(chunk: int, slack: int) -> None:
    """Continued after others, numbered upwards or downwards, in turns: what a ring lost of each is known, or it says
    so."""
    layer = Layer(Row("rope"), rule=Rule(window=WINDOW))
    x, refused, exact = layer.tokens(1, 30), 0, 0
    for seed in range(40):
        draws = torch.Generator().manual_seed(seed)
        changes = torch.rand(30, generator=draws) < (0.1 if seed % 2 else 0.4)
        segment = torch.randint(0, 3, (30,), generator=draws)[changes.cumsum(0)]
        order = torch.stack([(segment[:t] == segment[t]).sum() for t in range(30)]) - seed % 3 * 10
        at = positions.Positions(order[None], order[None], segment[None], LIMIT)
        want, cache = layer(x, at), ring(layer, 1, slack)
        for t in range(0, 30, chunk):
            part = at.take(slice(t, t + chunk))
            try:
                got = layer(x[:, t : t + chunk], part, cache)
            except ValueError as error:
                if "more slack" not in str(error):
                    raise
                refused += 1
                break
            assert_close(f"seed {seed}, token {t}", want[:, :, t : t + chunk], got, 4e-6)
            exact += 1
    assert refused > 5
    assert exact > 40


def test_the_token_after_negative_orders() -> None:
    layer = Layer(Row("rope"), rule=Rule(window=WINDOW))
    x, at = layer.tokens(1, 20), positions.plain(20, start=-20, limit=LIMIT)
    cache = ring(layer, 1, slack=0)
    assert cache.next.tolist() == [0]
    got = [layer(x[:, :9], at.take(slice(0, 9)), cache)]
    for t in range(9, 20):
        assert cache.next.tolist() == [t - 20]
        got.append(layer(x[:, t : t + 1], positions.explicit(cache.next[:, None], limit=LIMIT), cache))
    assert_close("below 0", layer(x, at), torch.cat(got, dim=2), 4e-6)


@pytest.mark.parametrize(("delta", "start"), [(100, 0), (-3, 4), (2, 1)])
def test_first_keys_that_stay_visible_are_not_shifted_away(delta: int, start: int) -> None:
    layer = Layer(Row("rope"), rule=Rule(window=WINDOW, keep_first=2))
    cache = layer.cache(1, 40, LIMIT)
    layer(layer.tokens(1, 9), positions.plain(9, limit=LIMIT), cache)
    before = cache.read()[2].order.clone()
    with pytest.raises(ValueError, match=r"orders below 2, which stay visible past the window \(keep_first\)"):
        cache.shift(layer.encoding, delta, start=start)
    assert torch.equal(cache.read()[2].order, before)
    cache.shift(layer.encoding, 100, start=2)


def test_no_tokens_change_nothing() -> None:
    for rule in (Rule(window=WINDOW), Rule()):
        layer = Layer(Row("rope"), rule=rule)
        x = layer.tokens(1, 40)
        none = positions.plain(0, limit=LIMIT)
        cache = LayerCache(1, 40, KEY_HEADS, HEAD_WIDTH, limit=LIMIT, rule=rule)
        assert layer(x[:, :0], none, cache).shape[2] == 0
        one_by_one(layer, x, cache, 0, 20)
        assert layer(x[:, :0], none, cache).shape[2] == 0
        assert layer(x[:, :0], none).shape[2] == 0
        got = one_by_one(layer, x, cache, 20, 30)
        assert_close("after no tokens", layer(x[:, :30], positions.plain(30, limit=LIMIT))[:, :, 20:], got, 4e-6)
