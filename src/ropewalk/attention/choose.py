"""Picks how to compute attention, and can say which way, why, and what memory it will need.

Every way computes the same score. What differs is what a fused kernel can express and how much is materialised; a way
that would silently build H x L x S numbers is never picked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ropewalk.attention import documents, eager, flex, sdpa, tiled
from ropewalk.attention.rule import Rule
from ropewalk.attention.score import Keep, Score, precise
from ropewalk.encodings import Signal

Backend = Literal["eager", "sdpa", "flex", "tiled"]
DENSE_MASK = 64 * 2**20
"""Bytes of a boolean mask, shared by all heads, that are built without asking."""
DENSE_SCORES = 2**30
"""Bytes of scores that torch's own dropout may take on a CPU, where its fused kernel has none."""


@dataclass(frozen=True)
class Choice:
    """How attention is computed, why that way, and what memory it needs."""

    backend: Backend
    reason: str
    memory: int
    """Bytes at the peak besides q, k, v and the output, estimated for the forward pass."""
    plain: bool = False
    """The rule needs no mask."""

    def __str__(self) -> str:
        return f"{self.backend}: {self.reason}; about {self.memory / 2**20:,.1f} MiB besides q, k, v and the output"


SEES_ALL = Choice("sdpa", "no mask needed", 0, plain=True)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    signal: Signal,
    rule: Rule,
    *,
    scale: float | None = None,
    soft_cap: float | None = None,
    sink: Tensor | None = None,
    first_head: int = 0,
    keep: Keep | None = None,
    backend: Backend | None = None,
    strict: bool = False,
) -> Tensor:
    """Attention of rotated queries (B, H, L, K) to rotated keys (B, G, S, K) and values (B, G, S, V).

    scale: 1/sqrt(K) unless given (T5: 1). soft_cap: cap * tanh(score / cap). sink: (H,) logits of attending to nothing.
    first_head: number of this rank's first head in the whole model. keep: dropout of the weights. backend: the way to
    compute it; where that cannot give this score exactly another is taken, and with `strict` it raises instead.
    """
    score = _score(q, k, v, signal, rule, scale, soft_cap, sink, first_head, keep)
    choice = _choose(q, k, v, score, backend, strict)
    if choice.backend == "sdpa":
        return sdpa.attend(q, k, v, score, plain=choice.plain)
    if choice.backend == "flex":
        return flex.attend(q, k, v, score, compiled=q.device.type != "cpu")
    return (tiled if choice.backend == "tiled" else eager).attend(q, k, v, score)


def weights(
    q: Tensor,
    k: Tensor,
    signal: Signal,
    rule: Rule,
    *,
    scale: float | None = None,
    soft_cap: float | None = None,
    sink: Tensor | None = None,
    first_head: int = 0,
) -> Tensor:
    """(B, H, L, S): what `attend` weighs values by, all of them at once and in float32 or better; for looking at."""
    return eager.weights(q, k, _score(q, k, k, signal, rule, scale, soft_cap, sink, first_head, None))


def choose(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    signal: Signal,
    rule: Rule,
    *,
    scale: float | None = None,
    soft_cap: float | None = None,
    sink: Tensor | None = None,
    first_head: int = 0,
    keep: Keep | None = None,
    backend: Backend | None = None,
    strict: bool = False,
) -> Choice:
    """What `attend` would do with the same arguments; computes nothing (meta tensors will do)."""
    return _choose(q, k, v, _score(q, k, v, signal, rule, scale, soft_cap, sink, first_head, keep), backend, strict)


def _score(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    signal: Signal,
    rule: Rule,
    scale: float | None,
    soft_cap: float | None,
    sink: Tensor | None,
    first_head: int,
    keep: Keep | None,
) -> Score:
    H, L, K = q.shape[1:]
    if H % k.shape[1] or k.shape[1] != v.shape[1] or k.shape[2] != v.shape[2] or K != k.shape[-1]:
        shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        raise ValueError(f"{shapes} are not (B, H, L, K), (B, G, S, K), (B, G, S, V), H a multiple of G")
    if signal.q.shape[1] != L or signal.k.shape[1] != k.shape[2]:
        raise ValueError(
            f"{L} queries and {k.shape[2]} keys came with positions for {signal.q.shape[1]} and {signal.k.shape[1]}; "
            "use encoding.at(query positions, key positions)"
        )
    B = len(q)
    if len(k) != B or len(v) != B or signal.q.shape[0] not in (1, B) or signal.k.shape[0] not in (1, B):
        raise ValueError(
            f"a batch of {B} sequences of queries, {len(k)} of keys and {len(v)} of values came with positions for "
            f"{signal.q.shape[0]} and {signal.k.shape[0]}; give positions for each sequence, or one row for all of them"
        )
    if not rule.causal and not signal.encoding.claims.bidirectional:
        raise ValueError(
            f"{signal.encoding.config.kind} is defined for keys up to the query only: use Rule(causal=True), "
            "or an encoding that looks both ways"
        )
    if soft_cap is not None and soft_cap <= 0:
        raise ValueError(f"soft_cap={soft_cap} must be positive, or None for no cap")
    if sink is not None and sink.shape != (H,):
        raise ValueError(f"sink has shape {tuple(sink.shape)}, there are {H} heads here")
    scale = (K**-0.5 if scale is None else scale) * signal.encoding.logit_gain
    return Score(signal=signal, rule=rule, scale=scale, soft_cap=soft_cap, sink=sink, first_head=first_head, keep=keep)


def _choose(q: Tensor, k: Tensor, v: Tensor, score: Score, backend: Backend | None, strict: bool) -> Choice:
    if backend is None and not strict and score.fusible and score.signal.seen is not None and _plain(score):
        return SEES_ALL  # decoding: found at once, since every layer of every token asks
    if strict and backend is None:
        raise ValueError("strict=True means one backend or an error, and none is named; write backend='sdpa', ...")
    if backend not in (None, "eager", "sdpa", "flex", "tiled"):
        raise ValueError(f"no backend {backend!r}: eager, sdpa, flex, tiled, or None to choose")
    learns = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    learns = learns or (torch.is_grad_enabled() and any(p.requires_grad for p in score.signal.encoding.parameters()))
    cpu = q.device.type in ("cpu", "meta")
    plain = _plain(score)
    (B, H, L, _), S = q.shape, k.shape[2]
    rows = max(score.signal.q.shape[0], score.signal.k.shape[0])
    wide = precise(q.dtype).itemsize
    needs_mask = score.biased or not (plain or documents.fit(score, q))
    dense_mask = 0 if not needs_mask else rows * L * S * (H * wide if score.biased else 1)
    all_scores = 3 * B * H * L * S * wide
    tile = 6 * wide * min(max(tiled.TILE, H * S * min(L, tiled.FEWEST)), B * H * L * S)
    unfused = all_scores if cpu and score.rate else 0
    able = {
        "sdpa": _why_not_sdpa(score, dense_mask, unfused),
        "flex": _why_not_flex(score, cpu, learns),
        "tiled": None,
        "eager": None,
    }
    memory = {"sdpa": dense_mask + unfused, "flex": all_scores if cpu else 0, "tiled": tile, "eager": all_scores}
    if backend is not None:
        if able[backend] is None:
            return Choice(backend, "asked for", memory[backend], plain)
        if strict:
            raise ValueError(f"{backend} cannot do this: {able[backend]}. Drop strict, or use backend='tiled'")
    order: tuple[Backend, ...] = ("sdpa", "tiled") if cpu else ("sdpa", "flex", "tiled")
    for name in order:
        if able[name] is None and name != backend:
            refused = [
                f"{other} cannot: {able[other]}"
                for other in (backend, *order[: order.index(name)])
                if other and able[other]
            ]
            reason = "; ".join(dict.fromkeys(refused)) or (
                "fused, with a small mask" if needs_mask else "no mask needed" if plain else "each document by itself"
            )
            return Choice(name, reason, memory[name], plain)
    raise AssertionError("tiled attention can always run")


def _why_not_sdpa(score: Score, dense_mask: int, unfused: int) -> str | None:
    if score.soft_cap is not None:
        return "it has no soft cap"
    if score.sink is not None:
        return "it has no sink logit"
    if score.keep is not None and score.keep.rate is None:
        return "it cannot drop weights by where they are"
    if unfused > DENSE_SCORES:
        return f"its dropout on a CPU would take {unfused / 2**20:,.0f} MiB"
    most = 4 * tiled.TILE if score.biased else DENSE_MASK
    if dense_mask > most:
        return f"its mask would take {dense_mask / 2**20:,.0f} MiB"
    return None


def _why_not_flex(score: Score, cpu: bool, learns: bool) -> str | None:
    if score.keep is not None:
        return "it cannot drop weights by where they are"
    if cpu and learns:
        return "it has no backward on CPU"
    if score.biased and not score.signal.encoding.claims.pointwise and not cpu:
        return f"the bias of {score.signal.encoding.config.kind} cannot run inside a kernel"
    return None


def _plain(score: Score) -> bool:
    """True where the rule is known to be the ordinary causal triangle, or to hide nothing.

    Known, not guessed: it reads the numbers, so only where that costs no synchronisation, and never while tracing.
    """
    q, k, rule = score.signal.q, score.signal.k, score.rule
    if rule.window is None and q is k and q.is_plain:
        return True
    seen = score.signal.seen
    if seen is not None and q.shape[1] == 1:
        return seen.fits(q, k, rule) and seen.all_seen
    if torch.compiler.is_compiling() or q.order.device.type != "cpu" or rule.window is not None:
        return False
    one_document = bool((q.segment == k.segment[:, :1]).all() and (k.segment == k.segment[:, :1]).all())
    if not one_document or bool((k.segment[:, 0] < 0).any()):
        return False
    if not rule.causal:
        return True
    if q.order is k.order or (q.order.shape == k.order.shape and torch.equal(q.order, k.order)):
        return bool((k.order.diff(dim=-1) > 0).all())
    return False
