"""The Transformer: token vectors, one stack or two, an output map. One class for all of them; the config tells which.

    encoder          model(tokens)                          BERT
    decoder          model(tokens)                          GPT-2, Llama, BLOOM
    encoder-decoder  model(target, source=source)           the 2017 model, T5

Positions are explicit everywhere. Given none, the tokens are one plain document a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ropewalk import positions
from ropewalk.attention import Cache, LayerCache
from ropewalk.models.config import TransformerConfig
from ropewalk.models.stack import Stack, token_norm
from ropewalk.nn import Core, Dropout, DropoutKey
from ropewalk.nn.activation import FUNCTIONS
from ropewalk.nn.embedding import Embedding
from ropewalk.nn.linear import Linear, linear
from ropewalk.plan import Plan
from ropewalk.positions import Places, Positions
from ropewalk.torch_private import watched


class Memory(NamedTuple):
    """What an encoder made of its text, and where its tokens are."""

    x: Tensor  # (B, S, D)
    at: Positions


class Transform(nn.Module):
    """What some encoders do before their output map: norm(act(x W + b))."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.linear, self.norm = Linear(config.width, config.width), token_norm(config)
        self.act = FUNCTIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.act(self.linear(x)))


class Transformer(nn.Module):
    """An encoder, a decoder or both, as its config says: Transformer(TransformerConfig(width=512, encoding="alibi")).

    model(tokens) gives the logits of (B, L) tokens; `ropewalk.complete` continues texts; `model.plan` says what
    the positions resolve to.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Stack(config, "encoder") if "encoder" in config.sides else None
        self.decoder = Stack(config, "decoder") if "decoder" in config.sides else None
        stacks = [stack for stack in (self.encoder, self.decoder) if stack is not None]
        # Where positions take a share of the width, the tokens have the rest.
        width = min(encoding.token_width for stack in stacks for encoding in stack.kinds)
        self.tokens = Embedding(config.vocabulary, width)
        self.types = Embedding(config.types, width) if config.types else None
        self.transform = Transform(config) if config.output_transform else None
        self.output_bias = nn.Parameter(torch.zeros(config.vocabulary)) if config.output_bias else None
        self.head = None if config.tie or not config.output else Linear(config.width, config.vocabulary, bias=False)
        self.plans = {name: config.plan(name) for name in config.sides}
        self.reset_parameters()

    def reset_parameters(self) -> None:
        # Scaled up on the way in, a table that is also the output map must start small enough for both.
        std = self.config.width**-0.5 if self.config.std is None or self.config.scale_embedding else self.config.std
        # Children first: an attention knows how its linear maps start, they themselves do not.
        for module in reversed(list(self.modules())):
            if module is not self and (reset := getattr(module, "reset_parameters", None)) is not None:
                reset()
        nn.init.normal_(self.tokens.weight, std=std)
        if self.types is not None:
            nn.init.normal_(self.types.weight, std=std)
        if self.output_bias is not None:
            nn.init.zeros_(self.output_bias)
        if self.head is not None:
            nn.init.normal_(self.head.weight, std=std)

    @property
    def plan(self) -> Plan:
        """What the positions resolve to, of the stack that speaks: the decoder, or an encoder alone."""
        return self.plans[self.config.sides[-1]]

    def embed(self, tokens: Tensor, types: Tensor | None = None) -> Tensor:
        x = self.tokens(tokens)
        x = x * self.config.width**0.5 if self.config.scale_embedding else x
        if self.types is None:
            if types is not None:
                raise ValueError("this model knows no types of text (types: 0); leave them out")
            return x
        return x + (self.types.weight[0] if types is None else self.types(types))

    def encode(
        self,
        tokens: Tensor,
        at: Places | None = None,
        *,
        attention_mask: Tensor | None = None,
        types: Tensor | None = None,
        dropout_key: DropoutKey | None = None,
    ) -> Memory:
        if self.encoder is None:
            raise ValueError("this model has no encoder (stack: decoder); call model(tokens)")
        where = _where(tokens, at, attention_mask)
        return Memory(self.encoder(self.embed(tokens, types), where, dropout_key=dropout_key), where)

    def hidden(
        self,
        tokens: Tensor,
        at: Places | None = None,
        *,
        attention_mask: Tensor | None = None,
        types: Tensor | None = None,
        source: Tensor | None = None,
        source_at: Places | None = None,
        memory: Memory | None = None,
        cache: Cache | None = None,
        dropout_key: DropoutKey | None = None,
    ) -> Tensor:
        """(B, L) tokens -> (B, L, D), what the output map reads. types: which text a token is of (BERT)."""
        where = _where(tokens, at, attention_mask, cache)
        self._refuse_unread(source=source, source_at=source_at, memory=memory, cache=cache)
        if self.decoder is None:
            return self.encode(tokens, where, types=types, dropout_key=dropout_key).x
        if source is not None:
            memory = self.encode(source, source_at, dropout_key=dropout_key)
        if self.encoder is not None and memory is None and not (cache and cache.cross):
            raise ValueError("an encoder-decoder reads a text: pass source tokens, or memory=model.encode(source)")
        if cache is not None:
            cache.check(self.plan.for_length(where.limit), where)
        x, memory_at = (None, None) if memory is None else memory
        if memory_at is None and cache is not None and cache.cross:
            memory_at = cache.cross[0].read()[2]
        embedded = self.embed(tokens, types)
        if cache is not None:
            cache.under_way = True
        hidden = self.decoder(embedded, where, memory=x, memory_at=memory_at, cache=cache, dropout_key=dropout_key)
        if cache is not None:
            cache.under_way = False
        return hidden

    def _refuse_unread(
        self, *, source: Tensor | None, source_at: Places | None, memory: Memory | None, cache: Cache | None
    ) -> None:
        """An argument that would change nothing is a mistake of the caller's."""
        given = {"source": source, "source_at": source_at, "memory": memory, "cache": cache}
        stack = self.config.stack
        unread = {"encoder": tuple(given), "decoder": ("source", "source_at", "memory"), "encoder-decoder": ()}[stack]
        for name in unread:
            if given[name] is not None:
                raise ValueError(f"{name}= means nothing to this model (stack: {stack}); leave it out")
        if source is not None and memory is not None:
            raise ValueError("source and memory=model.encode(source) are the same text twice; pass one of them")
        if source_at is not None and source is None:
            raise ValueError(
                "source_at= are the positions of source tokens, and there are none; pass source, or leave it out"
            )
        if cache is not None and cache.cross and (source is not None or memory is not None):
            name = "source" if source is not None else "memory"
            raise ValueError(
                f"this cache holds the keys of its own memory, so {name}= would not be read; leave it out, or make a "
                "cache for it: model.cache(..., memory=model.encode(source))"
            )

    def forward(
        self,
        tokens: Tensor,
        at: Places | None = None,
        *,
        attention_mask: Tensor | None = None,
        types: Tensor | None = None,
        source: Tensor | None = None,
        source_at: Places | None = None,
        memory: Memory | None = None,
        cache: Cache | None = None,
        dropout_key: DropoutKey | None = None,
    ) -> Tensor:
        """(B, L) tokens -> (B, L, vocabulary), the logits of what stands there (encoder) or comes next (decoder).

        at: where the tokens are. Without it attention_mask says, (B, L) with 1 for a token and 0 for padding; without
        that, each sequence is one text. dropout_key: what dropout masks depend on in reproducible training; without it,
        torch's generator decides. A model without an output map (`output: false`) answers with its last vectors,
        (B, L, D).
        """
        x = self.hidden(
            tokens,
            at,
            attention_mask=attention_mask,
            types=types,
            source=source,
            source_at=source_at,
            memory=memory,
            cache=cache,
            dropout_key=dropout_key,
        )
        return self.output(x) if self.config.output else x

    def output(self, x: Tensor) -> Tensor:
        if self.config.scale_output:
            x = x * self.config.width**-0.5
        if self.transform is not None:
            x = self.transform(x)
        logits = linear(x, self.tokens.weight if self.head is None else self.head.weight, self.output_bias)
        cap = self.config.output_cap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def cache(self, batch: int, capacity: int, *, limit: int, memory: Memory | None = None, slack: int = 0) -> Cache:
        """Room for `capacity` tokens a row, below position `limit`, and the keys of a memory, computed once."""
        if self.decoder is None:
            raise ValueError("an encoder sees its whole text at once; only a decoder has a cache")
        config, weight, kind = self.config, self.tokens.weight, self.tokens.weight.device.type
        axes = next((encoding.axes for encoding in self.decoder.kinds if encoding.axes is not None), None)
        layers: list[LayerCache] = []
        for number, rule in enumerate(self.decoder.rules):
            first = self.decoder.rules.index(rule)
            layer = LayerCache(
                batch,
                capacity,
                config.key_heads,
                config.head_width,
                config.value_width,
                limit=limit,
                rule=rule,
                slack=slack,
                axes=axes,
                dtype=torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype,
                device=weight.device,
                beside=layers[first] if first < number else None,
            )
            layers.append(layer)
        cross = []
        if memory is not None and self.decoder.cross_encoding is not None:
            looks = self.decoder.cross_encoding.at(memory.at)
            cross = [attention.remember(memory.x, looks) for attention in self.decoder.crosses]
        return Cache(layers, self.plan.for_length(limit).fingerprint, cross)

    def shift(self, cache: Cache, delta: int | Tensor, *, start: int = 0) -> None:
        """Moves the keys of a cache at order `start` and after by `delta` positions, an int or (B,) one a row: each
        layer's by its own encoding."""
        if self.decoder is None:
            raise ValueError("an encoder has no cache, so there are no keys to move")
        cache.shift([self.decoder.kinds[kind] for kind in self.decoder.kind_of], delta, start=start)

    @torch.no_grad()
    def attention_weights(
        self,
        tokens: Tensor,
        at: Places | None = None,
        *,
        part: Literal["encoder", "decoder", "cross"] | None = None,
        attention_mask: Tensor | None = None,
        types: Tensor | None = None,
        source: Tensor | None = None,
        source_at: Places | None = None,
        memory: Memory | None = None,
    ) -> list[Tensor]:
        """Of each layer (B, H, L, S): how much each token attends to each, 0 where it does not see it.

        part: whose attention in an encoder-decoder; the decoder's to its own text unless given. All L x S weights of
        all layers are computed and kept, in float32 or better; for looking at texts, not for training.
        """
        if any(isinstance(module, Dropout) and module.active for module in self.modules()):
            raise ValueError("the model is in training mode and drops features; call model.eval() first")
        part = self.config.sides[-1] if part is None else part
        stack = self.encoder if part == "encoder" else self.decoder
        if stack is None or part not in (*self.config.sides, *(["cross"] if self.encoder and self.decoder else [])):
            raise ValueError(f"part={part!r} is no attention of this model (stack: {self.config.stack})")
        attentions = stack.crosses if part == "cross" else stack.attentions
        found: list[Tensor] = []
        hooks = [attention.core.register_forward_pre_hook(_weigh(found)) for attention in attentions]
        try:
            self.hidden(
                tokens,
                at,
                attention_mask=attention_mask,
                types=types,
                source=source,
                source_at=source_at,
                memory=memory,
            )
        finally:
            for hook in hooks:
                hook.remove()
        return found

    def __repr__(self) -> str:
        c = self.config
        count = sum(p.numel() for p in self.parameters())
        said = [
            f"Transformer, {c.stack}, {count:,} parameters",
            f"width {c.width}, {c.heads} heads of {c.head_width}, {c.key_heads} of keys",
            f"{c.norm.kind} norm, {c.norm.placement}; {c.activation} of {c.hidden}; {c.vocabulary:,} tokens",
        ]
        for name, plan in self.plans.items():
            first, *more = str(plan).splitlines()
            said += [f"{name}: {first}", *(f"  {line}" for line in more)]
        return "\n".join(said)


def _weigh(found: list[Tensor]) -> Callable[[Core, tuple[Any, ...]], None]:
    def weigh(core: Core, arguments: tuple[Any, ...]) -> None:
        q, k, _, signal, rule, *_ = arguments
        found.append(core.weights(q, k, signal, rule))

    return weigh


def _where(
    tokens: Tensor, at: Places | None, attention_mask: Tensor | None = None, cache: Cache | None = None
) -> Positions:
    if not isinstance(tokens, Tensor) or tokens.ndim != 2:
        given = f"of shape {tuple(tokens.shape)}" if isinstance(tokens, Tensor) else f"{type(tokens).__name__}"
        hint = "tokens[None] for one text" if isinstance(tokens, Tensor) and tokens.ndim == 1 else "(B, L)"
        raise ValueError(f"tokens are a (B, L) tensor, a row for each text, got {given}; write {hint}")
    if at is not None and not isinstance(at, Positions):
        at = positions.explicit(at, None if cache is None else cache.limit).to(tokens.device)
        if at.axes is None:
            _refuse_repeats(at.index)
        if cache is not None and at.axes is not None:
            # On several axes bare integers are read in the order they are given in: after what is cached.
            after = torch.arange(at.shape[1], device=tokens.device)
            at = at.expanded(len(tokens))._replace(order=cache.next[:, None] + after)
    if attention_mask is None:
        return positions.plain(tokens.shape[1], batch=len(tokens), device=tokens.device) if at is None else at
    if at is not None:
        raise ValueError("positions say which places hold tokens; pass them or attention_mask, not both")
    if attention_mask.shape != tokens.shape:
        raise ValueError(
            f"attention_mask is {tuple(attention_mask.shape)}, tokens are {tuple(tokens.shape)}: one number a token, 0 "
            "for padding. With a cache, pass the positions of the new tokens: "
            "at=positions.explicit(cache.next[:, None], limit=N)"
        )
    return positions.masked(attention_mask)


def _refuse_repeats(index: Tensor) -> None:
    """Bare integers are one document, read in their order: of two tokens at one position each would see the other, and
    of two documents one would see the future."""
    if index.shape[1] < 2 or not index.is_cpu or watched(index):
        return
    ordered, place = index.sort(dim=1, stable=True)
    again = (ordered.diff(dim=1) == 0).nonzero()
    if len(again):
        row, at = again[0].tolist()
        first, second = place[row, at : at + 2].tolist()
        raise ValueError(
            f"tokens {first} and {second} of sequence {row} have the same position, {int(ordered[row, at]):,}. Several "
            "documents in a sequence are positions.packed([[10, 30]]), by their lengths; texts with padding are "
            "positions.padded([5, 3]) or masked(attention_mask); tokens that share a position on purpose are "
            "positions.Positions(index, order, segment, limit)"
        )
