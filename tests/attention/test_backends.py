"""Options of the score on every backend, what the chooser says, and the memory it takes."""

from __future__ import annotations

import math
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import flex_attention

from ropewalk import encodings, positions
from ropewalk.attention import Rule, Score, attend, choose, eager, tiled
from ropewalk.attention.choose import WAYS
from ropewalk.encodings import ALiBi, NoPE, RoPE, Signal
from ropewalk.positions import PAD, Positions
from tests.closeness import assert_close


def scalar_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    signal: Signal,
    rule: Rule,
    *,
    scale: float,
    soft_cap: float | None,
    sink: Tensor | None,
) -> Tensor:
    """One number at a time in float64 Python: the order of the score as the design states it."""
    B, H, L, _ = q.shape
    G, S, V = k.shape[1], k.shape[2], v.shape[-1]
    at, to = signal.q, signal.k
    out = torch.zeros(B, H, L, V, dtype=torch.float64)
    for b in range(B):
        for h in range(H):
            g = h * G // H
            for i in range(L):
                logits = {}
                for j in range(S):
                    apart = int(at.order[b, i] - to.order[b, j])
                    if at.segment[b, i] != to.segment[b, j] or to.segment[b, j] == PAD:
                        continue
                    if rule.causal and apart < 0:
                        continue
                    if rule.window and abs(apart) >= rule.window and int(to.order[b, j]) >= rule.keep_first:
                        continue
                    score = math.fsum((q[b, h, i].double() * k[b, g, j].double()).tolist()) * scale
                    if soft_cap is not None:
                        score = soft_cap * math.tanh(score / soft_cap)
                    if "bias" in signal.encoding.sites:
                        score += signal.bias(torch.tensor(h), at.index[b, i], to.index[b, j]).item()
                    logits[j] = score
                total = math.fsum(math.exp(s) for s in logits.values())
                total += 0.0 if sink is None else math.exp(float(sink[h]))
                for j, score in logits.items():
                    out[b, h, i] += math.exp(score) / total * v[b, g, j].double()
    return out


@pytest.fixture(autouse=True)
def _flex_without_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


CASES = {
    "plain": {},
    "multi-query": {"key_heads": 1},
    "all-heads": {"key_heads": 4},
    "wider-values": {"value_width": 24},
    "narrower-values": {"value_width": 5},
    "scale-of-t5": {"scale": 1.0},
    "soft-cap": {"soft_cap": 3.0},
    "sink": {"sink": True},
    "soft-cap-and-sink": {"soft_cap": 2.0, "sink": True, "key_heads": 1, "value_width": 7},
}
RULES = [Rule(), Rule(causal=False), Rule(window=4), Rule(window=3, keep_first=2), Rule(causal=False, window=2)]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("kind", ["none", "alibi"])
@pytest.mark.parametrize("case", CASES)
def test_every_option_against_scalar_python(case: str, kind: str, rule: Rule) -> None:
    options = dict(CASES[case])
    G, V = options.pop("key_heads", 2), options.pop("value_width", 8)
    torch.manual_seed(3)
    q, k, v = torch.randn(2, 4, 9, 8) * 2, torch.randn(2, G, 9, 8), torch.randn(2, G, 9, V)
    if options.get("sink"):
        options["sink"] = torch.randn(4)
    signal = encodings.build(kind, heads=4, head_width=8).at(positions.packed([[5, 3], [9]], width=9, limit=16))
    told = {"scale": 8**-0.5, "soft_cap": None, "sink": None, **options}
    want = scalar_attention(q, k, v, signal, rule, **told)
    for backend in ("eager", "tiled", "flex", "sdpa", "documents"):
        got = attend(q, k, v, Score(signal, rule, **options), backend=backend)
        assert_close(f"{case} {kind} {backend}", want, got, 3e-6)


def test_gradients_of_sink_and_soft_cap_agree() -> None:
    found = {}
    for backend in ("eager", "tiled"):
        torch.manual_seed(0)
        q, k, v = (torch.randn(2, heads, 40, 16, requires_grad=True) for heads in (4, 2, 2))
        sink = nn.Parameter(torch.randn(4))
        signal = ALiBi(heads=4).at(positions.padded([40, 11], limit=64))
        out = attend(q, k, v, Score(signal, Rule(window=9), soft_cap=2.0, sink=sink), backend=backend)
        (out * torch.randn_like(out)).sum().backward()
        found[backend] = [out.detach(), q.grad, k.grad, v.grad, sink.grad]
    for want, got in zip(*found.values(), strict=True):
        assert_close("gradient", want, got, 3e-6 * max(1.0, want.abs().max().item()))


def test_logit_gain_multiplies_every_score() -> None:
    """DeepSeek's second gain sits on the softmax scale; the rotary gain on cos and sin cannot stand in for it."""
    yarn = {"kind": "yarn", "factor": 16, "trained": 512, "dialect": "deepseek", "mscale": 1.0, "mscale_all_dim": 1.0}
    rope = RoPE(head_width=8, scaling=yarn)
    assert rope.logit_gain == pytest.approx((0.1 * math.log(16) + 1) ** 2, rel=1e-12)
    q, k, v = torch.randn(3, 1, 2, 6, 8)
    signal = rope.at(torch.arange(1000, 1006), limit=8192)
    want = attend(q, k, v, Score(signal, Rule(), scale=8**-0.5), backend="eager")
    plain = encodings.build("none").at(torch.arange(6))
    got = attend(q, k, v, Score(plain, Rule(), scale=8**-0.5 * (0.1 * math.log(16) + 1) ** 2), backend="eager")
    assert_close("gain", want, got, 1e-6)


def shaped(L: int, H: int = 8, K: int = 64) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty(3, 1, H, L, K, device="meta").unbind(0)


def test_the_choice_says_why_and_how_much() -> None:
    small, large = torch.zeros(3, 1, 2, 64, 16), shaped(16_384)
    rope, alibi = RoPE(head_width=64), ALiBi(heads=8)
    plain = choose(*small.unbind(0), Score(RoPE(head_width=16).at(torch.arange(64)), Rule()))
    assert (plain.backend, plain.memory, plain.reason) == ("sdpa", 0, "no mask needed")
    masked = choose(*large, Score(rope.at(torch.arange(16_384)), Rule(window=100)))
    assert masked.backend == "tiled"
    assert "its mask would take 256 MiB" in str(masked)
    biased = choose(*large, Score(alibi.at(torch.arange(16_384)), Rule()))
    assert biased.backend == "tiled"
    assert "8,192 MiB" in biased.reason
    assert biased.memory < 2**28
    padded = choose(*small.unbind(0), Score(ALiBi(heads=2).at(positions.padded([9], width=64)), Rule()))
    assert (padded.backend, padded.reason) == ("sdpa", "fused, with a small mask")
    capped = choose(*large, Score(rope.at(torch.arange(16_384)), Rule(), soft_cap=30.0))
    assert (capped.backend, capped.reason) == ("tiled", "sdpa cannot: it has no soft cap")
    asked = choose(*large, Score(alibi.at(torch.arange(16_384)), Rule()), backend="sdpa")
    assert asked.backend == "tiled"
    assert asked.reason.startswith("sdpa cannot: its mask")


def test_strict_raises_instead_of_another_backend() -> None:
    q, k, v = torch.zeros(3, 1, 2, 4, 16)
    signal = RoPE(head_width=16).at(torch.arange(4))
    with pytest.raises(ValueError, match="sdpa cannot do this: it has no soft cap"):
        attend(q, k, v, Score(signal, Rule(), soft_cap=5.0), backend="sdpa", strict=True)
    with pytest.raises(ValueError, match="flex cannot do this: it has no backward on CPU"):
        attend(q.requires_grad_(), k, v, Score(signal, Rule()), backend="flex", strict=True)
    with pytest.raises(ValueError, match=r"strict=True means one backend or an error.* write backend='sdpa'"):
        attend(q, k, v, Score(signal, Rule()), strict=True)
    with pytest.raises(ValueError, match="no backend 'flash'"):
        attend(q, k, v, Score(signal, Rule()), backend="flash")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"q": torch.zeros(1, 3, 4, 16)}, r"are not \(B, H, L, K\)"),
        ({"signal": RoPE(head_width=16).at(torch.arange(5))}, "4 queries and 4 keys came with positions for 5 and 5"),
        (
            {"signal": RoPE(head_width=16).at(range(5), range(4))},
            "4 queries and 4 keys came with positions for 5 and 4",
        ),
        (
            {"signal": RoPE(head_width=16).at(range(4), range(5))},
            "4 queries and 4 keys came with positions for 4 and 5",
        ),
        ({"soft_cap": 0.0}, "soft_cap=0.0 must be positive"),
        ({"sink": torch.zeros(3)}, "there are 2 heads here"),
        ({"v": torch.zeros(1, 1, 4, 16)}, r"are not \(B, H, L, K\)"),
        ({"v": torch.zeros(1, 2, 5, 16)}, r"are not \(B, H, L, K\)"),
        ({"k": torch.zeros(1, 2, 4, 8)}, r"are not \(B, H, L, K\)"),
    ],
)
def test_wrong_arguments_are_named(change: dict, said: str) -> None:
    q, k, v = torch.zeros(3, 1, 2, 4, 16)
    parts = {"q": q, "k": k, "v": v, "signal": RoPE(head_width=16).at(torch.arange(4)), "rule": Rule(), **change}
    q, k, v = (parts.pop(name) for name in "qkv")
    with pytest.raises(ValueError, match=said):
        attend(q, k, v, Score(**parts))


def test_a_one_way_encoding_is_refused_both_ways() -> None:
    q, k, v = torch.zeros(3, 1, 2, 4, 16)
    signal = encodings.build("xpos", head_width=16).at(torch.arange(4), limit=64)
    with pytest.raises(ValueError, match="keys up to the query only"):
        attend(q, k, v, Score(signal, Rule(causal=False)))


@pytest.mark.parametrize("window", [0, -3])
def test_a_rule_that_sees_nothing_is_refused(window: int) -> None:
    with pytest.raises(ValueError, match=f"window={window}"):
        Rule(window=window)


@pytest.mark.parametrize(("keep_first", "window"), [(-1, 4), (2, None)])
def test_keys_are_kept_past_a_window_alone(keep_first: int, window: int | None) -> None:
    with pytest.raises(ValueError, match=f"keep_first={keep_first} keeps keys past a window"):
        Rule(window=window, keep_first=keep_first)


@pytest.mark.parametrize("backend", [None, *WAYS])
@pytest.mark.parametrize(("queries", "keys"), [(0, 3), (3, 0)])
def test_of_no_queries_or_no_keys(queries: int, keys: int, backend: str | None) -> None:
    q, k, v = torch.randn(2, 4, queries, 16), torch.randn(2, 2, keys, 16), torch.randn(2, 2, keys, 8)
    signal = NoPE().at(positions.plain(queries), positions.plain(keys))
    assert attend(q, k, v, Score(signal, Rule()), backend=backend).equal(torch.zeros(2, 4, queries, 8))


def test_a_sink_without_weight_where_nothing_is_seen_has_no_gradient() -> None:
    q, k, v = torch.randn(3, 1, 2, 6, 16)
    sink = torch.tensor([-torch.inf, 0.5]).requires_grad_()
    at = positions.padded([4], width=6)
    attend(q, k, v, Score(NoPE().at(at), Rule(), sink=sink), backend="tiled", strict=True).sum().backward()
    assert sink.grad is not None
    assert sink.grad[0] == 0
    assert sink.grad[1] != 0


@pytest.mark.parametrize("L", [1, 6])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_visible_keys_by_count(rule: Rule, L: int) -> None:
    """Queries at the end of longer keys: how many each sees, counted by hand from the rule's words."""
    S = 10
    mask = rule.mask(positions.plain(L, start=S - L), positions.plain(S))
    for row in range(L):
        p = S - L + row
        inside = [
            j
            for j in range(S)
            if (j <= p or not rule.causal) and (rule.window is None or abs(p - j) < rule.window or j < rule.keep_first)
        ]
        assert mask[0, 0, row].nonzero().flatten().tolist() == inside


def test_equal_order_sees_both_ways() -> None:
    at = Positions(torch.arange(4)[None], torch.tensor([[0, 1, 1, 2]]), torch.zeros(1, 4, dtype=torch.int64), 4)
    assert Rule().mask(at, at)[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


@pytest.mark.parametrize("rule", [*RULES, Rule(window=40, keep_first=2), Rule(causal=False, window=200)], ids=str)
@pytest.mark.parametrize(
    "at", [positions.plain(500), positions.packed([[200, 290], [500]], width=500), positions.padded([500, 130])]
)
def test_the_blocks_of_flex_leave_out_no_key_that_a_query_sees(rule: Rule, at: Positions) -> None:
    """Compiled, flex reads these blocks alone; and a block that no query of it sees is worth leaving out."""
    from ropewalk.attention import flex

    found = flex.block_mask(rule, at, at).to_dense()[:, 0].bool()
    seen = torch.nn.functional.pad(rule.mask(at, at)[:, 0], (0, 12, 0, 12))
    needed = seen.unflatten(1, (4, 128)).unflatten(3, (4, 128)).any(4).any(2)
    assert not (needed & ~found).any()
    if not at.segment.any() and rule.window and rule.window <= 128:
        assert found.sum() <= needed.sum() + 4


@pytest.mark.no_poison
@pytest.mark.parametrize("kind", ["alibi", "t5"])
def test_compiled_flex_equals_eager(kind: str) -> None:
    """The path of a GPU, compiled here for the CPU: score function, rule and blocks inside one kernel."""
    from ropewalk.attention import flex

    torch._dynamo.reset()
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 4, 300, 64), torch.randn(1, 2, 300, 64), torch.randn(1, 2, 300, 64)
    with torch.no_grad():
        signal = encodings.build(kind, heads=4).at(positions.packed([[130, 150]], width=300, limit=512))
        score = Score(signal, Rule(window=70))
        want = attend(q, k, v, score, backend="eager")
        assert_close(kind, want, flex.attend(q, k, v, score, compiled=True), 2e-6)


@pytest.mark.parametrize(("kind", "options"), [("none", {"soft_cap": 20.0}), ("alibi", {})])
def test_flex_is_not_compiled_anew_for_every_token(
    kind: str, options: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for the first length, once for all others, once where a block of keys is added. Past Dynamo's limit of
    eight, a device would run it uncompiled, with all scores in memory."""
    from ropewalk.attention import flex

    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("eager")
    monkeypatch.setattr(flex.torch, "compile", partial(torch.compile, backend=counter))
    encoding = encodings.build(kind, heads=4)
    for S in range(250, 262):  # from two blocks to three
        q, k, v = torch.randn(1, 4, 1, 16), torch.randn(1, 2, S, 16), torch.randn(1, 2, S, 16)
        score = Score(encoding.at(torch.tensor([[S - 1]]), torch.arange(S)[None]), Rule(), **options)
        with torch.no_grad():
            assert_close(
                kind, attend(q, k, v, score, backend="eager"), flex.attend(q, k, v, score, compiled=True), 2e-6
            )
    assert counter.frame_count <= 3


def test_t5_gradient_of_tiles_is_the_dense_one_at_512() -> None:
    """The table's gradient sums over 8 x 512 x 512 scores; against the dense reference in float64."""
    found = {}
    for backend, dtype in (("eager", torch.float64), ("tiled", torch.float32)):
        torch.manual_seed(0)
        encoding = encodings.build("t5", heads=8).to(dtype)
        q, k, v, g = (torch.randn(1, 8, 512, 64).to(dtype).requires_grad_() for _ in range(4))
        out = attend(q, k, v, Score(encoding.at(positions.plain(512)), Rule()), backend=backend)
        (out * g.detach()).sum().backward()
        found[backend] = [out.detach(), encoding.weight.grad, q.grad, k.grad, v.grad]
    for name, want, got in zip(("out", "table", "q", "k", "v"), *found.values(), strict=True):
        assert_close(name, want, got, 1e-6 * max(1.0, want.abs().max().item()))


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(("length", "most"), [(4096, 480), pytest.param(16_384, 1024, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["alibi", "t5"])
def test_memory_of_a_long_bias_is_bounded(kind: str, length: int, most: int) -> None:
    """Forward and backward, 8 heads of 64, in a process of its own whose memory is read, in MiB. All scores at once
    would be 512 MiB at 4,096 and 8 GiB at 16,384, several times over."""
    worker = Path(__file__).with_name("memory_worker.py")
    root = Path(__file__).parents[2]
    command = [sys.executable, str(worker), kind, str(length)]
    environment = {"PYTHONPATH": f"{root / 'src'}:{root}", "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stdout)
    assert float(done.stdout.split()[0]) < most, done.stdout


@pytest.mark.parametrize("backend", ["eager", "tiled"])
@pytest.mark.parametrize("kind", ["none", "alibi", "fire"])
def test_scores_stay_float32_under_autocast(kind: str, backend: str) -> None:
    """Scores of about 8 in bfloat16 are off by 0.03 each; in float32 weights sum to 1, and so do their gradients."""
    encoding = encodings.build(kind, width=64, heads=4, head_width=16)
    q, k, v = (torch.randn(2, 4, 64, 16) * s for s in (4, 2, 1))
    given = [x.to(torch.bfloat16).requires_grad_() for x in (q, k, v)]
    exact = [x.detach().double().requires_grad_() for x in given]
    want = attend(*exact, Score(encoding.double().at(torch.arange(64)), Rule()), backend="eager")
    with torch.autocast("cpu", torch.bfloat16):
        got = attend(*given, Score(encoding.float().at(torch.arange(64)), Rule()), backend=backend)
        # Values in, values out, in bfloat16: one rounding of the output and no more.
        assert_close(kind, want.to(torch.bfloat16), got, 2.0**-7 * want.abs().max().item())
        grads = torch.autograd.grad(got.sum(), given)
    wanted = torch.autograd.grad(want.sum(), exact)
    for name, w, g in zip("qkv", wanted, grads, strict=True):
        assert_close(f"d{name}", w, g, 2.0**-7 * w.abs().max().item())
    total = grads[2].float().sum(dim=(0, 2)) / 2  # of every query's weights, for each head and feature
    assert_close("dV", torch.full_like(total, 64.0), total, 0.1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("far", [1500, 200_000])
@pytest.mark.parametrize("autocast", [False, True])
def test_a_bias_is_not_rounded_where_every_key_is_far(dtype: torch.dtype, far: int, autocast: bool) -> None:
    """Near keys were evicted, or keys are another text's: 1,500 places away ALiBi is -750 in its steepest head, which
    bfloat16 rounds by 2, and far enough away float16 has no such number."""
    alibi = encodings.ALiBi(heads=8)
    q, k, v = (torch.randn(1, 8, n, 64) for n in (3, 64, 64))
    k_at = positions.plain(64, limit=2**20)
    signal = alibi.at(positions.plain(3, start=far + 64, limit=2**20), k_at)
    exact = Score(signal, Rule())
    low = [x.to(dtype) for x in (q, k, v)]
    want = attend(*(x.double() for x in low), exact, backend="eager")
    with torch.autocast("cpu", dtype, enabled=autocast):
        got = attend(*low, exact, backend="sdpa")
    assert_close("far keys", want, got.double(), 2.0**-6 if dtype is torch.bfloat16 else 2.0**-9)


@pytest.mark.parametrize("backend", [None, "eager", "tiled", "sdpa"])
@pytest.mark.parametrize("rows", [2, 3])
def test_positions_of_another_batch_are_refused(backend: str | None, rows: int) -> None:
    q, k, v = torch.randn(3, 4, 2, 8, 16)
    at = positions.packed([[4, 4]] * rows)
    with pytest.raises(ValueError, match=f"positions for {rows} and {rows}"):
        attend(q, k, v, Score(encodings.build("none").at(at), Rule()), backend=backend)


@pytest.mark.parametrize("backend", ["eager", "tiled"])
def test_a_query_that_is_not_a_number_stays_so(backend: str) -> None:
    q, k, v = torch.randn(3, 1, 2, 4, 16)
    q[0, 1, 2, 5] = torch.nan
    out = attend(q, k, v, Score(NoPE().at(positions.plain(4)), Rule()), backend=backend, strict=True)
    assert out.isnan().all(-1).nonzero().tolist() == [[0, 1, 2]]
    assert out.isnan().any(-1).sum() == 1


@pytest.mark.parametrize("at", [positions.plain(40), positions.packed([[25, 15]])], ids=["plain", "packed"])
def test_few_keys_in_bfloat16_that_learn(at: Positions) -> None:
    """Their backward pass is in float32 on a CPU: with a mask and without one."""
    torch.manual_seed(0)
    inputs = [torch.randn(1, 4, 40, 16).bfloat16().requires_grad_() for _ in range(3)]
    found = []
    for backend, dtype in (("sdpa", torch.bfloat16), ("eager", torch.float64)):
        out = attend(*(x.to(dtype) for x in inputs), Score(NoPE().at(at), Rule()), backend=backend, strict=True)
        assert out.dtype == dtype
        found.append([out.double(), *(x.double() for x in torch.autograd.grad(out.sum(), inputs))])
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=2**-6, atol=2**-6)


@pytest.mark.parametrize("backend", ["sdpa", "tiled", "flex"])
def test_the_heads_of_another_rank_have_their_own_bias(backend: str) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 8, 30, 16)
    signal = ALiBi(heads=8).at(positions.plain(30))
    whole = attend(q, k, v, Score(signal, Rule()), backend="eager")[:, 2:6]
    with torch.no_grad():
        some = [x[:, 2:6] for x in (q, k, v)]
        mine = attend(*some, Score(signal, Rule(), first_head=2), backend=backend, strict=True)
    assert_close(backend, whole, mine, 2e-6)


@pytest.mark.parametrize("backend", ["sdpa", "documents"])
def test_values_narrower_than_keys_of_more_heads_than_either(backend: str) -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 24, 96, 16, dtype=torch.float64)
    v = torch.randn(1, 24, 96, 8, dtype=torch.float64)
    score = Score(NoPE().at(positions.packed([[50, 46]])), Rule())
    want = attend(q, k, v, score, backend="eager")
    assert_close(backend, want, attend(q, k, v, score, backend=backend, strict=True), 1e-13)


@pytest.mark.parametrize("queries", [1, 20])
@pytest.mark.parametrize("rows", [1, 3])
def test_tiles_of_one_sequence_have_its_positions(rows: int, queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions of each sequence, or one row for all of them, where sequences are taken apart."""
    torch.manual_seed(0)
    monkeypatch.setattr(tiled, "TILE", 4 * 20)
    q, k, v = torch.randn(3, 4, queries, 16), *torch.randn(2, 3, 4, 20, 16)
    starts = torch.tensor([[0], [300], [70]])[:rows]
    at, to = (positions.explicit(starts + torch.arange(first, 20)) for first in (20 - queries, 0))
    score = Score(ALiBi(heads=4).at(at, to), Rule())
    want = attend(q, k, v, score, backend="eager")
    assert_close("one at a time", want, attend(q, k, v, score, backend="tiled"), 2e-6)


@pytest.mark.parametrize("length", [37, 64])
def test_the_parts_of_a_graph_are_the_whole(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a compiler is given in place of tiles: parts of the queries, here 2 and 16 of them."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, heads, length, 16, dtype=torch.float64).requires_grad_() for heads in (4, 2, 2))
    score = Score(ALiBi(heads=4).at(positions.plain(length)), Rule(window=9), soft_cap=2.0)
    scores = q.shape[:3].numel() * length
    for tile in (scores // 8, scores // 64):
        monkeypatch.setattr(tiled, "TILE", tile)
        found = []
        for way in (tiled._in_graph, eager.attend):
            out = way(q, k, v, score)
            found.append([out, *torch.autograd.grad(out.square().sum(), (q, k, v))])
        for got, want in zip(*found, strict=True):
            assert_close("parts", want, got, 1e-13 * max(1.0, want.abs().max().item()))


def test_tiled_has_no_second_derivative_and_says_so() -> None:
    q, k, v = torch.randn(3, 1, 2, 4, 16, dtype=torch.float64).requires_grad_()
    out = attend(q, k, v, Score(NoPE().at(positions.plain(4)), Rule()), backend="tiled", strict=True)
    (first,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        first.sum().backward()


@pytest.mark.parametrize("texts", [([0, 0, 0], [0, 0, 1, 1]), ([0, 0, 1], [0, 0, 0, 0]), ([1, 1, 1], [0, 0, 1, 1])])
def test_documents_of_the_queries_or_of_the_keys_alone_are_kept_apart(texts: tuple[list[int], list[int]]) -> None:
    """One document on one side is not one document: the mask is needed."""
    at, to = (Positions(torch.arange(len(t))[None], torch.arange(len(t))[None], torch.tensor([t]), 8) for t in texts)
    q, k, v = torch.randn(1, 2, 3, 16), *torch.randn(2, 1, 2, 4, 16)
    score = Score(NoPE().at(at, to), Rule(causal=False))
    assert not score.plain
    assert_close("documents", attend(q, k, v, score, backend="eager"), attend(q, k, v, score), 2e-6)


@pytest.mark.parametrize("options", [{"sink": 0.5}, {"soft_cap": 2.0}, {"window": 3}], ids=lambda one: next(iter(one)))
def test_what_transforms_the_operators_sees_the_formula(options: dict[str, Any]) -> None:
    """Gradients by torch.func, and tensors without numbers."""
    q, k, v = torch.randn(3, 3, 2, 6, 4)
    sink = torch.full((2,), options["sink"]) if "sink" in options else None
    at, rule = positions.plain(6), Rule(window=options.get("window"))

    def mixed(q: Tensor, k: Tensor, v: Tensor, at: Positions = at) -> Tensor:
        here = None if sink is None else sink.to(q.device)
        return attend(q, k, v, Score(NoPE().at(at), rule, soft_cap=options.get("soft_cap"), sink=here))

    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    want = torch.autograd.grad(mixed(*inputs).square().sum(), inputs)
    got = torch.func.grad(lambda *inputs: mixed(*inputs).square().sum(), argnums=(0, 1, 2))(q, k, v)
    for name, one, other in zip("qkv", want, got, strict=True):
        assert_close(name, one, other, 4e-6)
    assert mixed(*(x.to("meta") for x in (q, k, v)), at.to("meta")).shape == v.shape
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert mixed(*(mode.from_tensor(x) for x in (q, k, v))).shape == v.shape
