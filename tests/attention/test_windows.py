"""Windows on a CPU: block by block, exact for any positions, and linear in the length of the text."""

from __future__ import annotations

import pytest
import torch

from ropewalk import positions
from ropewalk.attention import Rule, Score, attend, choose, documents
from ropewalk.encodings import NoPE
from ropewalk.positions import Positions
from tests.closeness import assert_close

LENGTH = 700
GAPPED = [torch.cat([torch.arange(350), torch.arange(350) ** 2 // 90 + 2 * torch.arange(350)])[None]] * 2
GAPPED += [torch.arange(2).repeat_interleave(350)[None]]
PLACES = {
    "far": positions.plain(LENGTH, start=100_000, batch=2),
    "one row for all": positions.plain(LENGTH),
    "packed": positions.packed([[300, 400], [LENGTH]], width=LENGTH),
    "padded": positions.padded([LENGTH, 310]),
    "shuffled": positions.plain(LENGTH).take(torch.randperm(LENGTH, generator=torch.Generator().manual_seed(0))),
    "gaps in the second": Positions(*GAPPED, LENGTH * 6),
    "gaps in the first": Positions(*GAPPED, LENGTH * 6).take(torch.arange(LENGTH).roll(350)),
    "gaps": positions.explicit(torch.randint(2, 6, (1, LENGTH), generator=torch.Generator().manual_seed(0)).cumsum(1)),
}
RULES = [
    Rule(window=1),
    Rule(window=100),
    Rule(window=257),
    Rule(window=LENGTH - 1),
    Rule(window=1000),  # more than there are tokens, fewer than positions with gaps reach
    Rule(causal=False, window=90),
    Rule(causal=False, window=300),
]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("name", PLACES)
def test_a_windowed_pass_and_its_gradients_equal_the_reference(name: str, rule: Rule) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, heads, LENGTH, 16, dtype=torch.float64, requires_grad=True) for heads in (4, 2, 2))
    score, weight = Score(NoPE().at(PLACES[name]), rule), torch.randn(2, 4, LENGTH, 16, dtype=torch.float64)
    found = {}
    for backend in ("eager", "documents"):
        out = attend(q, k, v, score, backend=backend, strict=True)
        found[backend] = [out.detach(), *torch.autograd.grad((out * weight).sum(), (q, k, v))]
    for want, got in zip(*found.values(), strict=True):
        assert_close(f"{name} {rule}", want, got, 1e-13 * max(1.0, want.abs().max().item()))


@pytest.mark.parametrize("causal", [True, False])
def test_the_scores_computed_grow_with_the_text_and_not_with_its_square(causal: bool) -> None:
    rule = Rule(causal=causal, window=500)

    def scores(length: int, at: Positions) -> int:
        pieces = documents._documents(at.order, at.segment, 1, rule)
        assert pieces is not None
        blocks = documents._blocks(pieces, at.order, rule, torch.float32)
        return sum((some.stop - some.start) * (keys.stop - keys.start) for _, some, keys, _ in blocks)

    for at in (positions.plain, lambda n: positions.packed([[n // 2, n // 2]], width=n)):
        once, twice = (scores(length, at(length)) for length in (2**14, 2**15))
        assert twice <= 2.05 * once
        # Not much more than the rule lets be seen.
        assert twice <= 1.6 * 2**15 * (500 if causal else 999)


def test_a_window_is_chosen_for_its_blocks() -> None:
    q, k, v = torch.empty(3, 1, 8, 4096, 64)
    found = choose(q, k, v, Score(NoPE().at(positions.plain(4096)), Rule(window=512)))
    assert found.backend == "documents"
    assert found.memory < 2**24
    kept = choose(q, k, v, Score(NoPE().at(positions.plain(4096)), Rule(window=512, keep_first=4)))
    assert kept.backend == "documents"
    assert kept.memory < 2**25, "keys kept past the window are gathered beside those in it"


@pytest.mark.no_poison
def test_a_windowed_model_compiles_whole() -> None:
    torch._dynamo.reset()
    at, none = positions.packed([[300, 400]], width=LENGTH), NoPE()
    q, k, v = torch.randn(3, 1, 2, LENGTH, 16)

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attend(q, k, v, Score(none.at(at), Rule(window=50)))

    got = torch.compile(run, fullgraph=True, backend="aot_eager")(q, k, v)
    assert_close("compiled", attend(q, k, v, Score(none.at(at), Rule(window=50)), backend="eager"), got, 2e-6)
