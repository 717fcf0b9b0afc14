"""The cache against an oracle that keeps nothing but unrotated keys and their positions, and recomputes everything."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from ropewalk import encodings, positions
from ropewalk.attention import Cache, LayerCache, Rule, Score, attend, slots
from ropewalk.encodings import Encoding
from ropewalk.nn import Attention
from ropewalk.plan import Plan
from ropewalk.positions import PAD, Positions
from tests.attention.layer import Layer
from tests.closeness import assert_close
from tests.encodings.rows import HEAD_WIDTH, HEADS, KEY_HEADS, LIMIT, ROWS, Row

MOVABLE = [row for row in ROWS if row.embed is None]


class Memory:
    """The oracle: for each row a list of (position, unrotated key, value), attended to from scratch."""

    def __init__(self, layer: Layer, batch: int) -> None:
        self.layer = layer
        self.rows: list[list[tuple[int, Tensor, Tensor]]] = [[] for _ in range(batch)]

    def append(self, x: Tensor, at: Positions) -> Tensor:
        signal = self.layer.encoding.at(at)
        q, k, v = self.layer.project(x)
        for b, row in enumerate(self.rows):
            for place in range(x.shape[1]):
                if at.segment[b, place] != PAD:
                    row.append((int(at.index[b, place]), k[b, :, place], v[b, :, place]))
        return torch.cat(
            [
                self._attend(signal.rotate(q, "query")[b : b + 1], at.rows(slice(b, b + 1)), b)
                for b in range(len(self.rows))
            ]
        )

    def _attend(self, q: Tensor, at: Positions, row: int) -> Tensor:
        index, keys, values = zip(*self.rows[row], strict=True)
        signal = self.layer.encoding.at(at, positions.explicit(torch.tensor(index), limit=at.limit))
        k, v = torch.stack(keys, dim=1)[None], torch.stack(values, dim=1)[None]
        return attend(q, signal.rotate(k, "key"), v, Score(signal, self.layer.rule), backend="eager")

    def keep(self, wanted) -> None:
        self.rows = [[entry for entry in row if wanted(entry[0])] for row in self.rows]

    def shift(self, delta: int, start: int) -> None:
        self.rows = [[(p + delta if p >= start else p, k, v) for p, k, v in row] for row in self.rows]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("row", MOVABLE, ids=str)
def test_random_schedule_equals_a_cacheless_oracle(row: Row, seed: int) -> None:
    """Chunks, single tokens, crop, evict, shift and fork in random order, rows of unequal length."""
    chance = random.Random(seed)
    settled = row.settings if row.note != "dynamic" else {"scaling": {**row.settings["scaling"], "length": LIMIT}}
    layer = Layer(Row(row.kind, settled, note=row.note))
    cache, memory = layer.cache(2, 256, LIMIT), Memory(layer, 2)
    forks: list[tuple[LayerCache, Memory]] = []
    done = set()
    for step in range(24):
        action = chance.choice(["chunk", "token", "token", "crop", "evict", "shift", "fork", "back"])
        longest = int(cache.next.max())
        if action in ("chunk", "token") or longest < 8:
            new = chance.randint(2, 9) if action == "chunk" else 1
            index = cache.next[:, None] + torch.arange(new)
            at = positions.explicit(index, limit=LIMIT)
            if action == "chunk":  # one row may get fewer tokens, padded on a random side
                segment = torch.zeros_like(index)
                short = chance.randint(0, new - 1)
                if chance.random() < 0.5:
                    segment[1, new - short :] = PAD
                else:
                    segment[1, :short] = PAD
                    index = index - torch.tensor([[0], [short]])
                at = Positions(index.clamp(min=0), index.clamp(min=0), segment, LIMIT)
            x = layer.tokens(2, new, seed=100 * seed + step)
            with torch.no_grad():
                got, want = layer(x, at, cache), memory.append(x, at)
            held = at.segment != PAD
            scale = max(1.0, want.abs().max().item())
            assert_close(f"{row} {step}", want.transpose(1, 2)[held], got.transpose(1, 2)[held], 4e-6 * scale)
            assert not got.transpose(1, 2)[~held].any()
        elif action == "crop":
            order = longest - chance.randint(1, 4)
            cache.crop(order)
            memory.keep(lambda p, order=order: p < order)
        elif action == "evict":
            start = chance.randint(1, 4)
            stop = start + chance.randint(1, 3)
            _, _, at = cache.read()
            cache.evict((at.order >= start) & (at.order < stop))
            memory.keep(lambda p, start=start, stop=stop: not start <= p < stop)
        elif action == "shift":
            start, delta = chance.choice([(0, chance.randint(1, 500)), (5, chance.randint(1, 30))])
            cache.shift(layer.encoding, delta, start=start)
            memory.shift(delta, start)
        elif action == "fork":
            twin = Memory(layer, 2)
            twin.rows = [list(entries) for entries in memory.rows]
            forks.append((cache.fork(), twin))
        elif forks:  # back to a fork: what happened since must not have touched it
            cache, memory = forks.pop()
        done.add(action)
    assert len(done) >= 6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shift_is_exact_in_angle(dtype: torch.dtype) -> None:
    """A key moved by a million positions is the key rotated there: one rounding, and no drift."""
    layer = Layer(Row("rope"), dtype)
    limit = 2**22
    x = layer.tokens(1, 16)
    _, k, v = layer.project(x)
    there = layer.encoding.at(torch.arange(1_000_003, 1_000_019), limit=limit)
    cache = LayerCache(1, 16, KEY_HEADS, HEAD_WIDTH, limit=limit, dtype=dtype)
    here = positions.plain(16, start=3, limit=limit)
    cache.append(layer.encoding.at(here).rotate(k, "key"), v, here)
    cache.shift(layer.encoding, 1_000_000)
    moved, _, at = cache.read()
    assert at.index.tolist() == [list(range(1_000_003, 1_000_019))]
    assert at.order.tolist() == at.index.tolist()
    bound = {torch.float32: 1e-6, torch.bfloat16: 2 * 2**-8}[dtype] * k.float().abs().max().item()
    assert_close("moved", there.rotate(k, "key"), moved, bound)


def test_moving_keys_of_embedded_positions_is_refused() -> None:
    layer = Layer(Row("learned", {"longest": LIMIT}))
    cache = layer.cache(1, 4, LIMIT)
    layer(layer.tokens(1, 3), positions.plain(3, limit=LIMIT), cache)
    with pytest.raises(ValueError, match="inside the token vectors"):
        cache.shift(layer.encoding, 5)


def test_beams_select_rows() -> None:
    layer = Layer(Row("rope"))
    x = layer.tokens(2, 7)
    cache = layer.cache(2, 12, LIMIT)
    layer(x[:, :5], positions.plain(5, batch=2, limit=LIMIT), cache)
    beams = cache.select([1, 1, 0])
    token = x[[1, 1, 0], 5:6]
    got = layer(token, positions.explicit(beams.next[:, None], limit=LIMIT), beams)
    want = layer(x[[1, 1, 0], :6], positions.plain(6, batch=3, limit=LIMIT))[:, :, 5:]
    assert_close("beams", want, got, 2e-6)
    assert cache.next.tolist() == [5, 5], "the original is as it was"


def test_cross_keys_are_stored_once() -> None:
    torch.manual_seed(0)
    k, v = torch.randn(2, 2, KEY_HEADS, 6, HEAD_WIDTH)
    at = positions.padded([6, 4], limit=8)
    cross = LayerCache.holding(k, v, at)
    keys, values, where = cross.read()
    assert torch.equal(keys[0], k[0])
    assert torch.equal(values[1, :, :4], v[1, :, :4])
    assert where.segment.tolist() == [[0] * 6, [0] * 4 + [PAD] * 2]
    with pytest.raises(ValueError, match="stored once"):
        cross.append(k, v, at)


def test_a_full_cache_refuses_with_figures() -> None:
    layer = Layer(Row("rope"))
    cache = layer.cache(1, 4, LIMIT)
    layer(layer.tokens(1, 3), positions.plain(3, limit=LIMIT), cache)
    with pytest.raises(ValueError, match="2 keys do not fit: 3 of 4 slots are used"):
        layer(layer.tokens(1, 2), positions.plain(2, start=3, limit=LIMIT), cache)


def test_another_limit_is_refused() -> None:
    layer = Layer(Row("rope"))
    cache = layer.cache(1, 4, LIMIT)
    with pytest.raises(ValueError, match="one generation, one limit"):
        layer(layer.tokens(1, 1), positions.plain(1, limit=64), cache)


@pytest.mark.parametrize(("slack", "taken"), [(0, 1), (3, 4)])
def test_a_ring_takes_back_no_more_than_it_can(slack: int, taken: int) -> None:
    """Taking back moves the window back; past the slack its oldest keys are gone, and that is an error, not a guess."""
    layer = Layer(Row("rope"), rule=Rule(window=5))
    x = layer.tokens(1, 30)
    cache = LayerCache(1, 30, KEY_HEADS, HEAD_WIDTH, limit=LIMIT, rule=layer.rule, slack=slack)
    for t in range(20):
        layer(x[:, t : t + 1], positions.plain(1, start=t, limit=LIMIT), cache)
    beyond = cache.fork()
    cache.crop(20 - taken)
    got = layer(x[:, 25:26], positions.plain(1, start=20 - taken, limit=LIMIT), cache)
    text = torch.cat([x[:, : 20 - taken], x[:, 25:26]], dim=1)
    want = layer(text, positions.plain(21 - taken, limit=LIMIT))[:, :, -1:]
    assert_close("after taking back", want, got, 2e-6)
    with pytest.raises(ValueError, match="more slack"):
        beyond.crop(20 - taken - 1)


def test_streaming_keeps_the_first_keys() -> None:
    """Attention sinks: evict the middle, move the rest up, and every score equals that of the text so placed."""
    layer = Layer(Row("rope"), rule=Rule(window=8, keep_first=2))
    x = layer.tokens(1, 40)
    cache, memory = layer.cache(1, 40, LIMIT), Memory(layer, 1)
    assert not cache.ring, "the first keys must stay, so nothing is overwritten"
    for t in range(30):
        at = positions.explicit(cache.next[:, None], limit=LIMIT)
        assert_close(f"token {t}", memory.append(x[:, t : t + 1], at), layer(x[:, t : t + 1], at, cache), 4e-6)
        if cache.filled > 10:
            _, _, held = cache.read()
            cache.evict((held.order >= 2) & (held.order < 4))
            memory.keep(lambda p: not 2 <= p < 4)
            cache.shift(layer.encoding, -2, start=4)
            memory.shift(-2, 4)
    assert int(cache.next) < 12


def test_the_plan_is_checked() -> None:
    def plan(base: float) -> Plan:
        rope: Encoding = Row("rope", {"base": base}).build()
        return Plan(layers=(rope.layer_plan(), rope.layer_plan()))

    cache = Cache([Layer(Row("rope")).cache(2, 8, LIMIT) for _ in range(2)], plan(1e4).fingerprint)
    cache.check(plan(1e4))
    with pytest.raises(ValueError, match="rotated under plan"):
        cache.check(plan(5e5))
    forked = cache.fork().select([1])
    assert len(forked) == 2
    assert forked[0].k.shape[0] == 1
    assert forked.next.tolist() == [0]


def test_keys_are_normalised_then_rotated() -> None:
    """qk-norm first: a norm with a weight for each feature does not commute with the rotation."""
    torch.manual_seed(0)
    norm = torch.nn.RMSNorm(HEAD_WIDTH)
    torch.nn.init.uniform_(norm.weight, 0.5, 2.0)
    attention = Attention(HEADS * HEAD_WIDTH, HEADS, qk_norm=lambda heads: norm)
    x = torch.randn(1, 5, HEADS * HEAD_WIDTH)
    signal = Row("rope").build().at(torch.arange(1000, 1005))
    q, k, _ = attention.project(x, x)
    got_q, got_k, _ = attention.rotated(x, x, signal)
    assert torch.equal(got_q, signal.rotate(norm(q), "query"))
    assert torch.equal(got_k, signal.rotate(norm(k), "key"))
    assert not torch.allclose(got_k, norm(signal.rotate(k, "key")), atol=1e-3)


@pytest.mark.parametrize("windows", [(None, None), (None, 4, None), (5, 3)])
def test_a_models_layers_are_edited_together(windows: tuple[int | None, ...]) -> None:
    """Layers of one rule share their positions: a whole cache is edited as each layer alone would be."""
    layers = [Layer(Row("rope"), rule=Rule(window=window)) for window in windows]
    x, made = layers[0].tokens(2, 20), []
    for _ in range(2):
        caches: list[LayerCache] = []
        for layer in layers:
            beside = next((c for c in caches if c.slots.rule == layer.rule), None) if not made else None
            caches.append(
                LayerCache(2, 20, KEY_HEADS, HEAD_WIDTH, limit=LIMIT, rule=layer.rule, slack=9, beside=beside)
            )
        made.append(caches)
    shared, alone = Cache(made[0], ""), made[1]

    def read(length: int, seed: int) -> None:
        at = positions.explicit(shared.next[:, None] + torch.arange(length), limit=LIMIT)
        for layer, one, other in zip(layers, shared.layers, alone, strict=True):
            tokens = layer.tokens(2, length, seed=seed)
            assert torch.equal(layer(tokens, at, one), layer(tokens, at, other))

    read(12, 0)
    encodings = [layer.encoding for layer in layers]
    shared.crop(10)
    shared.evict(lambda at: (at.order >= 3) & (at.order < 5))
    shared.shift(encodings, 7, start=5)
    for layer, cache in zip(layers, alone, strict=True):
        cache.crop(10)
        at = cache.read()[2]
        cache.evict((at.order >= 3) & (at.order < 5))
        cache.shift(layer.encoding, 7, start=5)
    read(1, 1)
    shared = shared.fork()
    read(2, 2)
    if windows.count(windows[0]) > 1:
        for edit in (lambda c: c.crop(1), lambda c: c.evict(x[:, :1, 0] > 9), lambda c: c.shift(encodings[0], 1)):
            with pytest.raises(ValueError, match="layers share these positions"):
                edit(shared[0])


def test_an_edit_that_one_layer_refuses_changes_none() -> None:
    """A ring cannot take back ten keys; the layer that keeps all of them must not have done so either."""
    rules = (Rule(), Rule(window=4))
    layers = [LayerCache(1, 30, KEY_HEADS, HEAD_WIDTH, limit=LIMIT, rule=rule) for rule in rules]
    cache = Cache(layers, "")
    k, v = torch.randn(2, 1, KEY_HEADS, 20, HEAD_WIDTH)
    for layer in layers:
        layer.append(k, v, positions.plain(20, limit=LIMIT))
    before = [(layer.next.clone(), layer.k.clone(), layer.slots.segment.clone()) for layer in layers]
    with pytest.raises(ValueError, match="keeps a ring"):
        cache.crop(10)
    for layer, (following, keys, segment) in zip(layers, before, strict=True):
        assert torch.equal(layer.next, following)
        assert torch.equal(layer.k, keys)
        assert torch.equal(layer.slots.segment, segment)


class Spin(Encoding):
    """A rotation as CONTRIBUTING.md describes one, without a word on how cached keys move."""

    class Config(Encoding.Config):
        kind: str = "spin"

    def forward(self, at: Positions) -> Tensor:
        return at.index[:, None, :, None] * 0.1

    def rotate(self, x: Tensor, table: Tensor, role: str) -> Tensor:
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * table.cos() - b * table.sin(), b * table.cos() + a * table.sin()], dim=-1)


def test_keys_are_not_moved_by_an_encoding_that_does_not_say_how() -> None:
    cache = LayerCache(1, 8, KEY_HEADS, HEAD_WIDTH, limit=LIMIT)
    k, v = torch.randn(2, 1, KEY_HEADS, 5, HEAD_WIDTH)
    cache.append(k, v, positions.plain(5, limit=LIMIT))
    with pytest.raises(ValueError, match=r"override Spin\.move"):
        cache.shift(Spin(), 10)
    assert cache.next.tolist() == [5]


def test_a_shift_stays_within_the_limit() -> None:
    rope = encodings.build("rope", head_width=HEAD_WIDTH)
    cache = LayerCache(1, 8, KEY_HEADS, HEAD_WIDTH, limit=64)
    k = torch.randn(1, KEY_HEADS, 4, HEAD_WIDTH)
    cache.append(k, k, positions.plain(4, start=10, limit=64))
    for delta, far in ((-11, "-1"), (1000, "1,013"), (51, "64")):
        with pytest.raises(ValueError, match=rf"moves a key to position {far}, outside \[0, 64\)"):
            cache.shift(rope, delta)
    with pytest.raises(ValueError, match="position -2"):
        cache.shift(rope, -14, start=12)
    assert cache.read()[2].index.tolist() == [[10, 11, 12, 13]], "a refused shift changes nothing"
    cache.shift(rope, 50)
    assert (cache.next.item(), cache.read()[2].index.tolist()) == (64, [[60, 61, 62, 63]])
    cache.shift(rope, -60)
    assert cache.read()[2].index.tolist() == [[0, 1, 2, 3]]


def test_a_shift_of_some_rows_past_the_limit_names_the_farthest() -> None:
    cache = LayerCache(2, 8, KEY_HEADS, HEAD_WIDTH, limit=64)
    k = torch.randn(2, KEY_HEADS, 4, HEAD_WIDTH)
    cache.append(k, k, positions.plain(4, limit=64))
    with pytest.raises(ValueError, match="moves a key to position 103, outside"):
        cache.shift(encodings.build("rope", head_width=HEAD_WIDTH), torch.tensor([0, 100]))


def test_a_shift_counts_the_order_of_keys_that_are_numbered_otherwise() -> None:
    """Positions 10 to 13 of the first tokens of a text: moved back by 5, these would come before its start."""
    cache = LayerCache(1, 8, KEY_HEADS, HEAD_WIDTH, limit=64)
    k, at = torch.randn(1, KEY_HEADS, 4, HEAD_WIDTH), positions.plain(4, start=10, limit=64)
    cache.append(k, k, at._replace(order=at.order - 10))
    with pytest.raises(ValueError, match="moves a key to position -5"):
        cache.shift(encodings.build("rope", head_width=HEAD_WIDTH), -5)


def test_rows_are_shifted_each_by_its_own_step() -> None:
    cache = LayerCache(2, 8, KEY_HEADS, HEAD_WIDTH, limit=64)
    k = torch.randn(2, KEY_HEADS, 4, HEAD_WIDTH)
    cache.append(k, k, positions.explicit(torch.tensor([[0], [50]]) + torch.arange(4), limit=64))
    cache.shift(encodings.build("rope", head_width=HEAD_WIDTH), torch.tensor([7, -50]))
    assert cache.read()[2].index.tolist() == [[7, 8, 9, 10], [0, 1, 2, 3]]


def test_rows_of_other_lengths_after_an_eviction_are_written_where_each_ends() -> None:
    """Rows of 6 and 3 keys, then a token each, then padded tokens: nothing is written over."""
    cache = LayerCache(2, 12, KEY_HEADS, HEAD_WIDTH, limit=64)
    k = torch.randn(2, KEY_HEADS, 12, HEAD_WIDTH)
    cache.append(k[:, :, :6], k[:, :, :6], positions.plain(6, limit=64))
    room = cache.k.shape
    cache.crop(torch.tensor([6, 3]))
    assert cache.k.shape == room
    cache.append(k[:, :, 6:7], k[:, :, 6:7], positions.explicit(cache.next[:, None], limit=64))
    more = positions.padded([1, 3], limit=64)
    place = more.index + cache.next[:, None]
    keys, _, at = cache.append(k[:, :, 7:10], k[:, :, 7:10], more._replace(index=place, order=place))
    for row, given in enumerate(([*range(8)], [0, 1, 2, 6, 7, 8, 9])):
        seen = at.segment[row] != PAD
        assert at.index[row][seen].tolist() == list(range(len(given)))
        assert keys[row][:, seen].equal(k[row][:, given])


def test_where_padding_cannot_be_counted_a_cache_that_may_be_full_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a compiler traces, numbers cannot be read: 4 places of 2 tokens are 4 slots, and a fifth is too many."""
    cache = LayerCache(1, 4, KEY_HEADS, HEAD_WIDTH, limit=64)
    k = torch.randn(1, KEY_HEADS, 4, HEAD_WIDTH)
    cache.append(k, k, positions.padded([2], width=4, limit=64))
    next_one = positions.explicit([2], limit=64)
    with monkeypatch.context() as tracing:
        tracing.setattr(slots, "watched", lambda _: True)
        with pytest.raises(ValueError, match="1 keys do not fit: 4 of 4"):
            cache.append(k[:, :, :1], k[:, :, :1], next_one)
    cache.append(k[:, :, :1], k[:, :, :1], next_one)
    assert cache.next.tolist() == [3]


def test_the_cache_of_one_layer() -> None:
    layer = LayerCache(2, 8, KEY_HEADS, HEAD_WIDTH, limit=64)
    cache = Cache([layer], "")
    k = torch.randn(2, KEY_HEADS, 4, HEAD_WIDTH)
    layer.append(k, k, positions.plain(4, limit=64))
    assert (cache.limit, cache.fork().next.tolist(), len(cache)) == (64, [4, 4], 1)


def test_padding_takes_no_room() -> None:
    """Sequences of 8 and 1 tokens, then 2 and 4 more, padded: 10 and 5 of 10 slots."""
    cache = LayerCache(2, 10, KEY_HEADS, HEAD_WIDTH, limit=64)
    k, v = torch.randn(2, 2, KEY_HEADS, 12, HEAD_WIDTH)
    first = positions.padded([8, 1], limit=64)
    cache.append(k[:, :, :8], v[:, :, :8], first)
    more = positions.padded([2, 4], limit=64)
    place = more.index + torch.tensor([[8], [1]])
    keys, _, at = cache.append(k[:, :, 8:], v[:, :, 8:], more._replace(index=place, order=place))
    for row, count in enumerate((10, 5)):
        seen = at.segment[row] != PAD
        assert at.index[row][seen].tolist() == list(range(count))
        given = torch.cat([k[row, :, : (8, 1)[row]], k[row, :, 8 : 8 + (2, 4)[row]]], dim=1)
        assert keys[row][:, seen].equal(given)
    assert cache.next.tolist() == [10, 5]
    one = positions.explicit(cache.next[:, None], limit=64)
    with pytest.raises(ValueError, match="1 keys do not fit"):
        cache.append(k[:, :, :1], v[:, :, :1], one)
    cache.append(k[:, :, :1], v[:, :, :1], one._replace(segment=torch.tensor([[PAD], [0]])))
    assert cache.next.tolist() == [10, 6]


def test_keys_of_another_dtype_are_refused_where_no_autocast_makes_them_equal() -> None:
    rope = encodings.build("rope", head_width=HEAD_WIDTH)
    with torch.autocast("cpu", torch.bfloat16):
        cache = LayerCache(1, 4, KEY_HEADS, HEAD_WIDTH, limit=64, dtype=torch.bfloat16)
    k, at = torch.randn(1, KEY_HEADS, 1, HEAD_WIDTH), positions.plain(1, limit=64)
    with pytest.raises(ValueError, match=r"keys of torch.float32 cannot join a cache of torch.bfloat16; .* autocast"):
        cache.append(k, k, at)
    assert cache.filled == 0
    with torch.autocast("cpu", torch.bfloat16):
        keys, values, seen = cache.append(k, k, at)
        attend(k, keys, values, Score(rope.at(at, seen), Rule()))
