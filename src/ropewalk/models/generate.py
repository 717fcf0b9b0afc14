"""Generation: each token is chosen from what the model says comes next, then read by the model in its turn.

    sampling  p = softmax(logits / temperature), cut by top-k, then top-p (arXiv:1904.09751), then min-p (2407.01082)
    beams     the texts of largest  log p(text) / ((5 + length) / 6)^alpha                    arXiv:1609.08144, 7

A decoder continues its prompts; an encoder-decoder reads them and writes another text, which begins with `start`. Every
row has positions and random numbers of its own: what it says depends neither on its batch nor on the side of padding.
Rows share only `limit`, fixed before the first token: longest prompt + max_tokens, unless it is given, for an encoding
that depends on it (a dynamic scaling, the unit scalar) to be the same in any batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ropewalk import positions
from ropewalk.models.transformer import Memory, Transformer
from ropewalk.nn import Dropout
from ropewalk.positions import Positions

Side = Literal["left", "right"]


def generate(
    model: Transformer,
    prompts: Any,
    *,
    max_tokens: int = 256,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int | Sequence[int] | None = None,
    stop: int | Sequence[int] = (),
    start: int | None = None,
    side: Side = "left",
    limit: int | None = None,
    cached: bool = True,
    compiled: bool = False,
) -> Iterator[Any]:
    """Tokens as they come: of one prompt (token ids) an int a step, of several a list, None where a row has ended.

    temperature=0 is greedy. A stop token is the last of its row. Row b draws from seed + b, or from the b-th of several
    seeds; without any, from torch's own generator. stop, start, side, limit, cached, compiled: as in `Texts`.
    """
    _require(0 <= temperature < float("inf"), f"temperature={temperature} is neither 0 (greedy) nor positive")
    _require(top_k is None or top_k >= 1, f"top_k={top_k} leaves no token; give 1 or more, or None for all")
    _require(top_p is None or 0 < top_p <= 1, f"top_p={top_p} is not a share in (0, 1]; None for all")
    _require(min_p is None or 0 <= min_p <= 1, f"min_p={min_p} is not a share in [0, 1]; None for all")
    texts = Texts(
        model, prompts, max_tokens, stop=stop, start=start, side=side, limit=limit, cached=cached, compiled=compiled
    )
    count = len(texts.unread)
    first = int(torch.randint(2**31, ())) if seed is None else seed
    seeds = range(first, first + count) if isinstance(first, int) else first
    _require(len(seeds) == count, f"{len(seeds)} seeds for {count} prompts; give one for each, or a single number")
    generators = [torch.Generator(texts.device).manual_seed(number) for number in seeds]

    def steps() -> Iterator[list[int | None]]:
        live = list(range(count))
        for _ in range(max_tokens):
            p = chances(texts.logits(), temperature, top_k, top_p, min_p)
            if temperature == 0:
                chosen = p.argmax(dim=-1)
            else:
                chosen = torch.cat([torch.multinomial(p[n], 1, generator=generators[b]) for n, b in enumerate(live)])
            said = dict(zip(live, chosen.tolist(), strict=True))
            yield [said.get(b) for b in range(count)]
            kept = [n for n, b in enumerate(live) if said[b] not in texts.stops]
            live = [live[n] for n in kept]
            if not live:
                return
            texts.grow(kept, [said[b] for b in live])

    return (step[0] for step in steps()) if texts.one else steps()


def complete(
    model: Transformer,
    prompts: Any,
    *,
    max_tokens: int = 256,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int | Sequence[int] | None = None,
    beams: int | None = None,
    length_penalty: float | None = None,
    stop: int | Sequence[int] = (),
    start: int | None = None,
    side: Side = "left",
    limit: int | None = None,
    cached: bool = True,
    compiled: bool = False,
) -> list[Any]:
    """What `generate` says in all, or with `beams` the best that `beam_search` finds: the new tokens of each row.

    Of one prompt (token ids) a list of ints, of several a list of such lists. Options that sample (temperature, top_k,
    top_p, min_p, seed) and those that search (beams, length_penalty) exclude each other.
    """
    sampling = {"top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed}
    sampling["temperature"] = None if temperature == 1 else temperature
    given = [f"{name}={value}" for name, value in sampling.items() if value is not None]
    reading: dict[str, Any] = {"max_tokens": max_tokens, "stop": stop, "start": start, "side": side, "limit": limit}
    reading |= {"cached": cached, "compiled": compiled}
    if beams is not None:
        _require(
            not given, f"beams={beams} look for the most likely text and draw nothing; leave out {', '.join(given)}"
        )
        penalty = 0.6 if length_penalty is None else length_penalty
        found = beam_search(model, prompts, beams=beams, length_penalty=penalty, **reading)
        return found[0].tokens if isinstance(found[0], Beam) else [best.tokens for best, *_ in found]
    _require(length_penalty is None, f"length_penalty={length_penalty} is of beam search; give beams too, say beams=4")
    steps = list(
        generate(model, prompts, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed, **reading)
    )
    if isinstance(steps[0], int):
        return steps
    return [[token for token in row if token is not None] for row in zip(*steps, strict=True)]


class Beam(NamedTuple):
    """A text that beam search found: its log probability over the length penalty, and its tokens."""

    score: float
    tokens: list[int]


def beam_search(
    model: Transformer,
    prompts: Any,
    *,
    beams: int = 4,
    length_penalty: float = 0.6,
    max_tokens: int = 256,
    stop: int | Sequence[int] = (),
    start: int | None = None,
    side: Side = "left",
    limit: int | None = None,
    cached: bool = True,
    compiled: bool = False,
) -> list[Any]:
    """The best continuations of one prompt, best first, or a list of these for several.

    stop, start, side, limit, cached, compiled: as in `Texts`.

    `beams` texts grow side by side. One ends with a stop token, which counts in its length, or at max_tokens. The
    search ends when no text that still grows could beat the worst of `beams` that have ended.
    """
    _require(beams >= 1, f"beams={beams} keeps no text; give 1 or more")
    texts = Texts(
        model, prompts, max_tokens, stop=stop, start=start, side=side, limit=limit, cached=cached, compiled=compiled
    )
    penalty = [((5 + length) / 6) ** length_penalty for length in range(max_tokens + 1)]
    live: list[list[Beam]] = [[Beam(0.0, [])] for _ in texts.unread]  # of each prompt, scored by log p
    ended: list[list[Beam]] = [[] for _ in live]  # scored by log p over the penalty
    for length in range(1, max_tokens + 1):
        scores = texts.logits().log_softmax(dim=-1)
        scores = scores + scores.new_tensor([text.score for group in live for text in group])[:, None]
        parents, first = [], 0
        for prompt, group in enumerate(live):
            of_group = scores[first : first + len(group)].flatten()
            # Each text may end in each stop token; that many more leave enough others to continue.
            top = of_group.topk(min(len(of_group), beams * (1 + len(texts.stops))))
            grown: list[tuple[int, Beam]] = []
            for rank, (score, place) in enumerate(zip(top.values.tolist(), top.indices.tolist(), strict=True)):
                parent, token = divmod(place, scores.shape[-1])
                tokens = [*group[parent].tokens, token]
                if token not in texts.stops:
                    grown.append((first + parent, Beam(score, tokens)))
                elif rank < beams:
                    ended[prompt].append(Beam(score / penalty[length], tokens))
            ended[prompt] = sorted(ended[prompt], reverse=True)[:beams]
            # Growing only lowers log p, so the kindest penalty to come bounds what the most likely can reach.
            worst = ended[prompt][-1].score if len(ended[prompt]) == beams else -float("inf")
            if grown and grown[0][1].score / max(penalty[length:]) <= worst:
                grown = []
            first += len(group)
            parents += [parent for parent, _ in grown[:beams]]
            live[prompt] = [text for _, text in grown[:beams]]
        if not parents:
            break
        texts.grow(parents, [text.tokens[-1] for group in live for text in group])
    cut = [[Beam(score / penalty[-1], tokens) for score, tokens in group] for group in live]
    found = [sorted(done + rest, reverse=True)[:beams] for done, rest in zip(ended, cut, strict=True)]
    return found[0] if texts.one else found


def chances(
    logits: Tensor, temperature: float, top_k: int | None = None, top_p: float | None = None, min_p: float | None = None
) -> Tensor:
    """(..., V) logits -> the probability of each token.

    top_k: the k most likely stay. top_p: of these, the fewest whose share reaches p. min_p: of these, those at least
    min_p times as likely as the most likely.
    """
    # The largest becomes 0 first: divided by a small temperature it would overflow.
    logits = logits.float() - logits.float().amax(dim=-1, keepdim=True)
    if temperature == 0:
        return F.one_hot(logits.argmax(dim=-1), logits.shape[-1]).float()
    every = (logits / temperature).softmax(dim=-1)
    if top_k is None and top_p is None and min_p is None:
        return every
    p, order = every.sort(dim=-1, descending=True) if top_k is None else every.topk(min(top_k, every.shape[-1]))
    if top_p is not None and top_p < 1:
        before = F.pad(p.cumsum(dim=-1)[..., :-1], (1, 0))
        p = torch.where(before < top_p * p.sum(dim=-1, keepdim=True), p, 0.0)
    if min_p is not None:
        p = torch.where(p >= min_p * p[..., :1], p, 0.0)
    return torch.zeros_like(every).scatter(-1, order, p / p.sum(dim=-1, keepdim=True))


class Texts:
    """The texts of a batch as they grow, and the logits of what comes next in each.

    stop: tokens that end a text. start: the first that an encoder-decoder writes. side: where short prompts are padded.
    cached=False keeps no keys and reads every text again at every step: slow, the same, and what tests compare with.
    compiled=True compiles the step of one token, which takes minutes: for those who will generate for hours.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Transformer,
        prompts: Any,
        max_tokens: int,
        *,
        stop: int | Sequence[int] = (),
        start: int | None = None,
        side: Side = "left",
        limit: int | None = None,
        cached: bool = True,
        compiled: bool = False,
    ) -> None:
        given = [part.tolist() if hasattr(part, "tolist") else part for part in prompts]  # tensors, arrays
        self.one = not given or not isinstance(given[0], (list, tuple))
        rows = [given] if self.one else [list(row) for row in given]
        self.stops = frozenset([stop] if isinstance(stop, int) else stop)
        _check(model, rows, max_tokens, self.stops, start)
        self.model, self.side, self.device = model, side, model.tokens.weight.device
        longest, memory = max(map(len, rows)), None
        if start is not None:
            memory = model.encode(*self._padded(rows, limit))
            rows, longest = [[start]] * len(rows), 1
        room, table = longest + max_tokens, model.plan.table
        self.limit = positions.check_limit(room if limit is None else limit, room)
        asks = (
            f"{longest:,} tokens and {max_tokens:,} new ones (limit {self.limit:,}) pass the table of {table} positions"
        )
        _require(
            table is None or self.limit <= table,
            f"{asks} (model.encoding.longest); shorten the prompt or lower max_tokens",
        )
        self.cache = model.cache(len(rows), room, limit=self.limit, memory=memory) if cached else None
        self.memory = None if cached else memory  # a cache holds its keys
        self.step = torch.compile(model.hidden) if compiled and cached else model.hidden
        self.unread = rows  # without a cache nothing is ever read for good

    @torch.inference_mode()
    def logits(self) -> Tensor:
        """(B, V) in float32."""
        tokens, at = self._padded(self.unread, self.limit)
        if self.cache is not None:
            done = self.cache.next[:, None]
            at = Positions(at.index + done, at.order + done, at.segment, at.limit)
        step = self.step if tokens.shape[1] == 1 else self.model.hidden
        x = step(tokens, at, memory=self.memory, cache=self.cache)
        ends = torch.tensor([len(row) if self.side == "right" else x.shape[1] for row in self.unread]) - 1
        logits = self.model.output(x[torch.arange(len(x)), ends]).float()
        _require(not bool(logits.isnan().any()), "the model's logits are NaN: its weights are, or its dtype overflows")
        return logits

    def grow(self, parents: list[int], tokens: list[int]) -> None:
        """Each text becomes its parent and one token. Parents may repeat (beams) or be left out (rows that ended)."""
        if parents != list(range(len(self.unread))):
            rows = torch.tensor(parents, device=self.device)
            self.cache = None if self.cache is None else self.cache.select(rows)
            self.memory = None if self.memory is None else Memory(self.memory.x[rows], self.memory.at.rows(rows))
        before = [self.unread[parent] if self.cache is None else [] for parent in parents]
        self.unread = [[*text, token] for text, token in zip(before, tokens, strict=True)]

    def _padded(self, rows: list[list[int]], limit: int | None) -> tuple[Tensor, Positions]:
        lengths = [len(row) for row in rows]
        at = positions.padded(lengths, side=self.side, limit=limit, device=self.device)
        pads = [[0] * (max(lengths) - length) for length in lengths]
        filled = [row + pad if self.side == "right" else pad + row for row, pad in zip(rows, pads, strict=True)]
        return torch.tensor(filled, device=self.device), at


def _check(model: Transformer, rows: list[list[Any]], max_tokens: int, stops: frozenset[Any], start: Any) -> None:
    trains = any(isinstance(module, Dropout) and module.active for module in model.modules())
    _require(model.decoder is not None, "an encoder does not say what comes next; call model(tokens)")
    _require(not trains, "the model is in training mode and drops features; call model.eval() first")
    _require(max_tokens >= 1, f"max_tokens={max_tokens} leaves nothing to say; give 1 or more")
    _require(model.encoder is None or start is not None, "an encoder-decoder needs start=..., its texts' first token")
    _require(model.encoder is not None or start is None, "a decoder continues its prompt: put `start` in front of it")
    last, named = model.config.vocabulary - 1, {f"prompt {number}": row for number, row in enumerate(rows)}
    for name, tokens in {**named, "stop": stops, "start": [0 if start is None else start]}.items():
        _require(name == "stop" or len(tokens) > 0, f"{name} has no tokens; give one at least, such as a start token")
        wrong = [token for token in tokens if not isinstance(token, int) or not 0 <= token <= last]
        _require(not wrong, f"{name} has {wrong[:1]}; tokens are integers from 0 to {last:,} (model.vocabulary)")


def _require(good: bool, otherwise: str) -> None:
    if not good:
        raise ValueError(otherwise)
