"""What `choose` says attention will take, against the memory that torch's allocator gave it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile

from ropewalk import encodings, positions
from ropewalk.attention import Rule, Score, attend, choose, documents, tiled
from ropewalk.attention.choose import WAYS
from ropewalk.attention.reach import parts
from ropewalk.attention.score import widening
from ropewalk.nn.dropout import Dropout, DropoutKey
from ropewalk.positions import PAD, Positions
from tests.closeness import assert_close

FACTOR = 1.5
SMALL = 2**20
"""Bytes that are of no account: buffers of kernels, one for each thread, and what grows with the text alone."""
LONG = 1536
PLAIN, CAUSAL = positions.plain(LONG), Rule()
SHUFFLE = torch.randperm(LONG, generator=torch.Generator().manual_seed(0))
HALF, WHOLE = positions.plain(LONG, start=LONG, limit=2 * LONG), positions.plain(2 * LONG, limit=2 * LONG)
TWO = positions.plain(1024, batch=2, limit=2048), positions.padded([2048, 1000], limit=2048)


def taken(run: Callable[[], Tensor]) -> int:
    """Bytes at the peak of a call, besides what was there before and what it returns: all allocations, in turn."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        out = run()
    todo, events = list(recorded.profiler.kineto_results.experimental_event_tree()), []
    while todo:
        event = todo.pop()
        todo.extend(event.children)
        if event.tag == _EventType.Allocation:
            events.append((event.start_time_ns, event.extra_fields.alloc_size))
    now = peak = 0
    for _, size in sorted(events, key=lambda each: each[0]):
        now += size
        peak = max(peak, now)
    return peak - out.untyped_storage().nbytes()


@dataclass(frozen=True)
class Case:
    backend: str
    kind: str | dict[str, Any] = "none"
    at: Positions = PLAIN
    to: Positions | None = None
    rule: Rule = CAUSAL
    heads: tuple[int, int] = (4, 4)
    widths: tuple[int, int] = (32, 32)
    dtype: torch.dtype = torch.float32
    learns: bool = False
    asked: str | None = None
    more: dict[str, Any] = field(default_factory=dict)

    def made(self) -> tuple[Tensor, Tensor, Tensor, Score]:
        torch.manual_seed(0)
        (H, G), (K, V), to = self.heads, self.widths, self.at if self.to is None else self.to
        B, (L, S) = max(len(self.at.order), len(to.order)), (self.at.shape[1], to.shape[1])
        encoding = encodings.build(self.kind, heads=H, head_width=K, width=H * K)
        q, k, v = (torch.randn(B, *shape).to(self.dtype) for shape in ((H, L, K), (G, S, K), (G, S, V)))
        q.requires_grad_(self.learns)
        more = dict(self.more)
        if more.pop("dropped", False):
            more["dropout"] = Dropout(0.1).train().of_weights(DropoutKey.for_step(0, 0, torch.arange(B)), q)
        return q, k, v, Score(encoding.at(self.at, self.to), self.rule, **more)


BF16, CAP = torch.bfloat16, {"soft_cap": 20.0}
CASES = {
    "no mask": Case("sdpa"),
    "no mask, shared heads, bfloat16": Case("sdpa", heads=(4, 2), dtype=BF16),
    "values wider than keys": Case("sdpa", widths=(32, 48)),
    "a chunk and its cache": Case("documents", at=HALF, to=WHOLE),
    "a chunk and its cache, bfloat16": Case("documents", at=HALF, to=WHOLE, dtype=BF16),
    "a chunk and its cache, by a mask": Case("sdpa", at=HALF, to=WHOLE, asked="sdpa"),
    "a chunk and its cache, by a mask, bfloat16": Case("sdpa", at=HALF, to=WHOLE, asked="sdpa", dtype=BF16),
    "another text, padded": Case("documents", at=TWO[0], to=TWO[1], rule=Rule(causal=False)),
    "another text, padded, by a mask": Case("sdpa", at=TWO[0], to=TWO[1], rule=Rule(causal=False), asked="sdpa"),
    "packed": Case("documents", at=positions.packed([[700, 836]], width=LONG)),
    "packed, shared heads": Case("documents", at=positions.packed([[700, 836]], width=LONG), heads=(4, 2)),
    "shuffled": Case("documents", at=PLAIN.take(SHUFFLE)),
    "window": Case("documents", rule=Rule(window=300)),
    "window, shared heads": Case("documents", rule=Rule(window=300), heads=(4, 2)),
    "window past its first keys": Case("documents", rule=Rule(window=300, keep_first=4), heads=(8, 8)),
    "soft cap": Case("tiled", more=CAP),
    "soft cap, bfloat16": Case("tiled", more=CAP, dtype=BF16, heads=(4, 2)),
    "soft cap, float64": Case("tiled", more=CAP, dtype=torch.float64),
    "soft cap, window": Case("tiled", more=CAP, rule=Rule(window=300)),
    "soft cap, window past its first keys": Case("tiled", more=CAP, rule=Rule(window=300, keep_first=4)),
    "soft cap, a chunk and its cache": Case("tiled", more=CAP, at=HALF, to=WHOLE),
    "soft cap, shuffled window": Case("tiled", more=CAP, rule=Rule(window=300), at=PLAIN.take(SHUFFLE)),
    "sink": Case("tiled", more={"sink": torch.zeros(4)}),
    "dropout": Case("tiled", more={"dropped": True}),
    "dropout, ALiBi": Case("tiled", "alibi", more={"dropped": True}),
    "float64, ALiBi": Case("tiled", "alibi", dtype=torch.float64),
    "soft cap, four sequences": Case("tiled", more=CAP, at=positions.plain(1024, batch=4)),
    "two biases": Case("tiled", {"kind": "chain", "parts": [{"kind": "alibi"}, {"kind": "alibi"}]}),
    "eager": Case("eager", asked="eager"),
    "eager, soft cap": Case("eager", asked="eager", more=CAP),
    "eager, shared heads, bfloat16": Case("eager", asked="eager", heads=(4, 2), dtype=BF16),
    "eager, dropout": Case("eager", asked="eager", at=positions.plain(700), more={"dropped": True}),
}
for kind in ("alibi", "t5", "kerple", "fire"):
    CASES[f"{kind}, short"] = Case("sdpa", kind, at=positions.plain(600))
    CASES[f"{kind}, short, bfloat16"] = Case("sdpa", kind, at=positions.plain(600), dtype=BF16)
    CASES[f"{kind}, short, learning"] = Case("sdpa", kind, at=positions.plain(600), learns=True)
    CASES[f"{kind}, long"] = Case("tiled", kind)
    CASES[f"{kind}, long, two heads"] = Case("tiled", kind, heads=(2, 2), at=positions.plain(2048))
    CASES[f"{kind}, long, bfloat16, learning"] = Case("tiled", kind, dtype=BF16, learns=True)
    CASES[f"{kind}, long, window"] = Case("tiled", kind, rule=Rule(window=300))
    CASES[f"{kind}, eager"] = Case("eager", kind, at=positions.plain(600), asked="eager")


@pytest.mark.no_poison
@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")  # the first profile of a process, in torch 2.11
@pytest.mark.parametrize("name", CASES)
def test_the_figure_is_what_is_taken(name: str) -> None:
    case = CASES[name]
    q, k, v, score = case.made()
    with torch.set_grad_enabled(case.learns):
        chosen = choose(q, k, v, score, backend=case.asked)
        assert chosen.backend == case.backend
        said = chosen.memory
        got = taken(lambda: attend(q, k, v, score, backend=case.asked))
    print(f"{name}: said {said / 2**20:.1f}, taken {got / 2**20:.1f} MiB, {said / max(got, 1):.2f}")
    # Where the machine has AMX, torch's kernel lays out the keys and values of each head anew for it.
    packed = sum(each.numel() * case.heads[0] // case.heads[1] * 2 for each in (k, v)) if case.dtype == BF16 else 0
    assert got <= FACTOR * said + SMALL + packed
    assert said <= FACTOR * got + SMALL


def test_a_tile_is_no_larger_for_more_sequences() -> None:
    one, eight = (Case("tiled", more=CAP, at=positions.plain(1024, batch=batch)).made() for batch in (1, 8))
    of_queries = 4 * 8 * 4 * 1024  # one float32 each, whatever the tiles
    assert choose(*eight, backend="tiled").memory <= choose(*one, backend="tiled").memory + of_queries


@pytest.mark.no_poison
@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")
@pytest.mark.parametrize("kind", ["alibi", "t5", "kerple", "fire"])
def test_a_tile_takes_what_is_said_forward_and_backward(kind: str) -> None:
    q, k, v, score = Case("tiled", kind, at=positions.plain(2048), learns=True).made()
    wanted = [q, *score.signal.encoding.parameters()]
    got = [taken(lambda: tiled.attend(q, k, v, score))]
    out = tiled.attend(q, k, v, score)
    got.append(taken(lambda: torch.autograd.grad(out, wanted, torch.ones_like(out))[0]))
    for said, found in zip(tiled.tile_bytes(q, k, score), got, strict=True):
        assert said / FACTOR - SMALL <= found <= FACTOR * said + SMALL


def test_bytes_of_a_tile_that_holds_all_scores() -> None:
    """3 sequences, 8 heads, 5 queries and keys: for each pair 8 float32, a mask's byte twice, and ALiBi's bias."""
    q, k, _ = torch.randn(3, 3, 8, 5, 16)
    score = Score(encodings.ALiBi(heads=8).at(positions.plain(5)), Rule())
    assert tiled.tile_bytes(q, k, score)[0] == 3 * 5 * 5 * (8 * 4 + 2 + score.signal.encoding.bias_bytes(8))


def test_bytes_of_what_is_widened() -> None:
    q, v = torch.randn(1, 24, 3, 16), torch.randn(1, 24, 3, 8)
    assert widening(q, q, q) == 0
    assert widening(q, q, v) == 24 * 3 * 16 * 4
    assert widening(v, v, q) == 2 * 24 * 3 * 16 * 4


def pairs_of(rule: Rule, at: Positions, to: Positions) -> int:
    return sum(part.pairs for part in parts(rule, at, to, tiled.TILE // 8, tiled.FEWEST))


@pytest.mark.parametrize("rule", [Rule(window=500), Rule(window=500, keep_first=4), Rule(causal=False, window=500)])
def test_windows_with_kept_keys_or_a_cache_grow_with_the_text_and_not_with_its_square(rule: Rule) -> None:
    """Scores computed in tiles, which are all that is computed: masks are made of the same pairs."""

    def of_a_chunk(length: int) -> int:
        return pairs_of(rule, positions.plain(length // 2, start=length // 2), positions.plain(length))

    for count in (lambda length: pairs_of(rule, *[positions.plain(length)] * 2), of_a_chunk):
        once, twice = count(2**14), count(2**15)
        assert twice <= 2.05 * once
    assert once <= 2.5 * 2**13 * (500 if rule.causal else 1000)


@pytest.mark.parametrize("backend", [documents, tiled])
def test_keys_out_of_reach_are_left_out_and_no_others(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random documents, order and padding, queries of their own: the output and gradients of the reference."""
    monkeypatch.setattr("ropewalk.attention.tiled.TILE", 2**12)
    monkeypatch.setattr("ropewalk.attention.documents.MASK", 2**12)
    generator = torch.Generator().manual_seed(0)

    def some(length: int) -> Positions:
        order = torch.randint(0, 900, (2, 2, length // 2), generator=generator).sort(dim=-1).values.flatten(1)
        segment = torch.arange(2).repeat_interleave(length // 2).repeat(2, 1)
        segment[0, -40:] = PAD
        return Positions(order, order, segment, 1000)

    for rule in (Rule(), Rule(window=90), Rule(window=90, keep_first=200), Rule(causal=False, window=50)):
        q, k, v = (torch.randn(2, 2, n, 8, dtype=torch.float64, requires_grad=True) for n in (300, 700, 700))
        score = Score(encodings.build("none").at(some(300), some(700)), rule)
        found = [run.attend(q, k, v, score) for run in (backend, WAYS["eager"])]
        grads = [torch.autograd.grad(out.square().sum(), (q, k, v)) for out in found]
        assert found[1].abs().max() > 0.1
        for got, want in zip((found[0], *grads[0]), (found[1], *grads[1]), strict=True):
            assert_close(str(rule), want.detach(), got.detach(), 1e-12 * max(1.0, want.abs().max().item()))


@pytest.mark.parametrize("rule", [Rule(), Rule(window=40), Rule(causal=False)], ids=str)
@pytest.mark.parametrize("batch", [1, 3, 40])
def test_no_tile_has_more_scores_than_stated(batch: int, rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled, "TILE", 2**16)
    q, k = (torch.empty(batch, heads, 300, 8, device="meta") for heads in (4, 2))
    score = Score(encodings.build("none").at(positions.plain(300)), rule)
    found = [(rows.stop - rows.start, part) for rows, part in tiled._parts(q, k, score)]
    assert all(4 * rows * part.pairs <= 2**16 for rows, part in found)
    queries = sum(rows * (part.queries.stop - part.queries.start) for rows, part in found)
    assert queries == 300 * batch, "each once"
    assert len(found) < 40 * batch, "and not in crumbs"
