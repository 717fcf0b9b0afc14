"""The config of a Transformer: its stack, its sizes, and where its layers get their sense of position.

    layers: 8                                                        all alike
    layers: {count: 26, pattern: [local, local, global], kinds: {local: {window: 512}, global: {encoding: none}}}
    layers: {encoder: 6, decoder: {count: 6, ...}}                   for stack encoder-decoder

A pattern is laid over the layers again and again, and cut where they end. A kind of layer that leaves out `encoding` or
`window` has the model's; null means none. What is derived (head_width, ...) is filled in when the config is
read, so a config holds every number it stands for and prints as something that reads back as itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import cycle, islice, pairwise
from typing import Annotated, Any, Literal, NamedTuple, Self

import torch
from pydantic import (
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ropewalk.encodings import AnyEncoding, Encoding, build
from ropewalk.encodings.none import NoPE
from ropewalk.encodings.rope import RoPE
from ropewalk.nn.activation import Activation
from ropewalk.nn.block import Placement
from ropewalk.nn.mlp import matched_hidden
from ropewalk.overrides import either, refusal
from ropewalk.plan import Plan
from ropewalk.settings import Settings, Written

Size = Annotated[int, Field(gt=0, le=1_000_000)]
Count = Annotated[int, Field(gt=0, le=10_000)]
Window = Annotated[int, Field(gt=0)]
Kept = Annotated[int, Field(ge=0, le=1_000_000)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Side = Literal["encoder", "decoder"]


class Layer(NamedTuple):
    """One layer, resolved."""

    kind: str | None
    """Its name in the pattern; None where all layers are alike."""
    encoding: Encoding.Config
    window: int | None
    keep_first: int = 0


class LayerKind(Settings):
    """What one kind of layer has of its own; what it leaves out is the model's."""

    encoding: AnyEncoding | None = None
    """null: no position encoding at all (NoPE)."""
    window: Window | None = None
    """Tokens a query sees, itself included; null: all."""
    keep_first: Kept = 0
    """First tokens of each document that stay visible past the window (attention sinks, arXiv:2309.17453)."""


class LayerPattern(Settings):
    """Layers of several kinds, in a pattern that repeats."""

    count: Count
    """How many layers."""
    pattern: tuple[str, ...] = ()
    """Names of kinds, first layer first; repeated up to `count`."""
    kinds: dict[str, LayerKind] = Field(default_factory=dict)
    """What each name in the pattern means."""

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        unknown = [name for name in dict.fromkeys(self.pattern) if name not in self.kinds]
        unused = [name for name in self.kinds if name not in self.pattern]
        faults: list[tuple[str, Any, str]] = []
        if unknown:
            example = f"kinds: {{{unknown[0]}: {{window: 512}}}}"
            says = f"names {', '.join(unknown)}, which kinds does not describe; write for example {example}"
            faults.append(("pattern", self.pattern, says))
        if unused:
            says = f"describes {', '.join(unused)}, which no layer is; write pattern: [{', '.join(self.kinds)}]"
            faults.append(("kinds", list(self.kinds), says))
        if faults:
            raise refusal(*faults)
        return self


def _form(value: Any) -> str:
    """Which way of writing `layers` this is. The names stand in error locations, so they must not be keys."""
    if isinstance(value, Stacks) or (isinstance(value, Mapping) and {"encoder", "decoder"} & set(value)):
        return "by stack"
    return "by pattern" if isinstance(value, (LayerPattern, Mapping)) else "number"


Layers = Annotated[Annotated[Count, Tag("number")] | Annotated[LayerPattern, Tag("by pattern")], Discriminator(_form)]


class Stacks(Settings):
    """The layers of an encoder-decoder."""

    encoder: Layers
    decoder: Layers


class NormConfig(Settings):
    """The norms of the blocks: layer norm or RMS norm, and where they stand."""

    kind: Literal["layer", "rms"] = "rms"
    placement: Placement = "pre"
    eps: float = Field(default=1e-5, gt=0, lt=1)
    bias: bool = True
    """Of the layer norm; the rms norm has none."""
    shifted: bool = False
    """The rms norm's weight is stored as its distance from 1 (Gemma)."""
    shared: bool = False
    """One norm for both halves of a parallel block."""

    @model_validator(mode="after")
    def _belongs(self) -> Self:
        faults: list[tuple[str, Any, str]] = []
        if self.shifted and self.kind != "rms":
            faults.append(("shifted", True, "belongs to kind: rms"))
        if self.shared and self.placement != "parallel":
            faults.append(("shared", True, "belongs to placement: parallel"))
        if faults:
            raise refusal(*faults)
        return self


class DropoutConfig(Settings):
    """Rates; zero leaves a place out."""

    embedding: Rate = 0.0
    attention: Rate = 0.0
    residual: Rate = 0.0


class TransformerConfig(Settings):
    """A Transformer in all its parts: TransformerConfig(width=512, heads=8, layers=6, encoding="rope").

    stack: decoder, encoder or encoder-decoder. encoding: the name of a kind, a mapping with `kind`, or a config of one.
    layers: a number, or a pattern of kinds with encodings and windows of their own. What is left out is derived
    (head_width, key_heads, hidden). `ropewalk.preset("llama", layers=2)` has those of known models.
    """

    stack: Literal["encoder", "decoder", "encoder-decoder"] = "decoder"
    vocabulary: Size = 8192
    """Tokens there are."""
    width: Size = 512
    """D, of the token vectors."""
    heads: Count = 8
    """H, query heads."""
    key_heads: Count = Field(default_factory=lambda given: given["heads"])
    """G, key and value heads; as many as query heads unless given."""
    head_width: Size = Field(default_factory=lambda given: given["width"] // given["heads"])
    """K, of each query and key; width / heads unless given."""
    value_width: Size = Field(default_factory=lambda given: given["head_width"])
    """Of each value; head_width unless given."""
    encoding: AnyEncoding = RoPE.Config()
    cross_encoding: AnyEncoding = NoPE.Config()
    """Of the decoder's attention to the encoder's text; none unless given."""
    window: Window | None = None
    """Tokens a query sees, itself included; null: all."""
    keep_first: Kept = 0
    """First tokens of each document that stay visible past the window (attention sinks, arXiv:2309.17453)."""
    layers: Annotated[
        Written[
            Annotated[Count, Tag("number")]
            | Annotated[LayerPattern, Tag("by pattern")]
            | Annotated[Stacks, Tag("by stack")]
        ],
        Discriminator(_form),
    ] = 8
    """A number, {count, pattern, kinds}, or {encoder, decoder} of those."""
    norm: Written[NormConfig] = NormConfig()
    activation: Activation = "swiglu"
    hidden: Size = Field(default_factory=lambda given: matched_hidden(given["width"], given["activation"]))
    """Of the feed-forward network; 4 widths, or 8/3 of it under a gate, unless given."""
    bias: bool = False
    """Of every linear map in the blocks, where the next three say nothing else."""
    qkv_bias: bool = Field(default_factory=lambda given: given["bias"])
    out_bias: bool = Field(default_factory=lambda given: given["bias"])
    mlp_bias: bool = Field(default_factory=lambda given: given["bias"])
    fused: bool = True
    """Query, key and value weights are one matrix, gate and values of the feed-forward another."""
    scale: float | None = Field(default=None, gt=0)
    """On q.k; 1/sqrt(head_width) unless given. T5 has 1."""
    soft_cap: float | None = Field(default=None, gt=0)
    """On attention scores: cap * tanh(score / cap)."""
    sink: bool = False
    """A learned logit of attending to nothing, for each head."""
    qk_norm: Literal["head", "width"] | None = None
    """Queries and keys are normalised before they are rotated: head by head, or all heads of a token together."""
    scale_embedding: bool = False
    """Token vectors are multiplied by sqrt(width)."""
    types: int = Field(default=0, ge=0, le=1_000)
    """Kinds of text a token can belong to, each with a vector that is added to the token's (BERT)."""
    embedding_norm: bool = False
    """A norm on the token vectors, after positions are added (BERT, BLOOM)."""
    tie: bool = True
    """The output map is the token table."""
    scale_output: bool = False
    """The last vectors are multiplied by 1/sqrt(width) before a tied output map (T5)."""
    output: bool = True
    """False: a model without an output map, whose answer is its last vectors (sentence encoders)."""
    output_transform: bool = False
    """A linear map, the activation (of a gated one, its gate's) and a norm before the output map (BERT, ModernBERT)."""
    output_bias: bool = False
    output_cap: float | None = Field(default=None, gt=0)
    """On the logits: cap * tanh(logit / cap)."""
    dropout: Written[DropoutConfig] = DropoutConfig()
    std: float | None = Field(default=0.02, gt=0)
    """Spread of the initial weights; null: Glorot's, by their sizes."""

    @field_validator("layers", mode="after")
    @classmethod
    def _inherit(cls, layers: Any, info: ValidationInfo) -> Any:
        """Layer kinds get what they left out from the model, for good: then null can mean none."""
        if not {"encoding", "window", "keep_first"} <= set(info.data):
            return layers
        if isinstance(layers, Stacks):
            encoder, decoder = (cls._inherit_in(part, info.data) for part in (layers.encoder, layers.decoder))
            return Stacks(encoder=encoder, decoder=decoder)
        return cls._inherit_in(layers, info.data)

    @staticmethod
    def _inherit_in(layers: int | LayerPattern, model: dict[str, Any]) -> int | LayerPattern:
        if isinstance(layers, int):
            return layers
        kinds = {
            name: LayerKind(
                encoding=(kind.encoding or NoPE.Config()) if "encoding" in kind.model_fields_set else model["encoding"],
                window=(window := kind.window if "window" in kind.model_fields_set else model["window"]),
                # Where all is visible there is nothing to keep; written for the kind itself, it is a mistake.
                keep_first=kind.keep_first
                if "keep_first" in kind.model_fields_set
                else (0 if window is None else model["keep_first"]),
            )
            for name, kind in layers.kinds.items()
        }
        return LayerPattern(count=layers.count, pattern=layers.pattern, kinds=kinds)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        faults: list[tuple[str, Any, str]] = []
        if "head_width" not in self.model_fields_set and self.width % self.heads:
            near = max(n for n in range(1, self.heads) if self.width % n == 0)
            says = (
                f"{self.heads} heads do not share width {self.width} evenly; write heads: {near}, or the width of one,"
            )
            faults.append(("heads", self.heads, f"{says} head_width: {-(-self.width // self.heads)}"))
        if self.heads % self.key_heads:
            fitting = either([str(n) for n in range(1, self.heads + 1) if self.heads % n == 0])
            faults.append(
                ("key_heads", self.key_heads, f"{self.key_heads} does not divide heads {self.heads}; write {fitting}")
            )
        if isinstance(self.layers, Stacks) and self.stack != "encoder-decoder":
            says = f"has encoder and decoder layers, the stack is {self.stack}"
            faults.append(("layers", self.layers, f"{says}; write stack: encoder-decoder, or a number for layers"))
        layers = [layer for side in self.sides for layer in self.layer_kinds(side)]
        if self.keep_first and not any(layer.window for layer in layers):
            says = "keeps first tokens visible past a window, and no layer has one"
            faults.append(("keep_first", self.keep_first, f"{says}; write window: 4096, or keep_first: 0"))
        for layer in _distinct(layers):
            if layer.kind is not None and layer.keep_first and layer.window is None:
                says = f"{layer.kind}: keep_first {layer.keep_first} keeps tokens past a window, and this kind has none"
                faults.append(("layers", self.layers, f"{says}; write window: 4096 beside it, or keep_first: 0"))
        if self.cross_encoding.kind != "none" and self.stack != "encoder-decoder":
            says = f"is of a decoder that reads an encoder's text, the stack is {self.stack}"
            faults.append(("cross_encoding", self.cross_encoding, f"{says}; write stack: encoder-decoder, or none"))
        faults = faults or self._unbuildable()
        if faults:
            raise refusal(*faults)
        return self

    def _unbuildable(self) -> list[tuple[str, Any, str]]:
        """Encodings that do not fit the model, found now and not when it is built or reads its first text."""
        found: dict[str, tuple[str, Any, str]] = {}
        for side in self.sides:
            for layer in _distinct(self.layer_kinds(side)):
                try:
                    claims = self._build(layer.encoding).claims
                    says = None if side == "decoder" or claims.bidirectional else _one_way(layer.encoding)
                except ValueError as error:
                    says = str(error)
                if says is not None:
                    key = "encoding" if layer.encoding == self.encoding else "layers"
                    name = f"{layer.kind}, {layer.encoding.kind}" if layer.kind else layer.encoding.kind
                    found.setdefault(f"{key} {says}", (key, layer.encoding, f"{name}: {says}"))
        return list(found.values()) or self._uncrossable() or self._unequal_widths()

    def _uncrossable(self) -> list[tuple[str, Any, str]]:
        """What cross-attention cannot have: token vectors changed twice, or a length that two texts would share."""
        try:
            cross = self._build(self.cross_encoding)
        except ValueError as error:
            return [("cross_encoding", self.cross_encoding, str(error))]
        says = None
        if "embed" in cross.sites:
            says = "changes token vectors, which encoding: does; use one that changes queries and keys, or scores"
        elif not cross.claims.bidirectional:
            says = _one_way(self.cross_encoding).replace("an encoder also", "cross-attention also")
        elif cross.claims.needs_limit:
            says = "depends on the length here, and two texts have two; leave out what makes it so, or use alibi or t5"
        return [] if says is None else [("cross_encoding", self.cross_encoding, f"{cross.config.kind} {says}")]

    def _unequal_widths(self) -> list[tuple[str, Any, str]]:
        """Encodings that take a share of the width where others want all of it."""
        starts = []
        for side in self.sides:
            # Every encoding of a stack changes the token vectors once, one after the other.
            different = _distinct(
                layer._replace(kind=None, window=None, keep_first=0) for layer in self.layer_kinds(side)
            )
            built = [self._build(layer.encoding) for layer in different]
            embeds = [encoding for encoding in built if "embed" in encoding.sites]
            starts.append(embeds[0].token_width if embeds else self.width)
            for before, after in pairwise(embeds):
                if before.width != after.token_width:
                    kinds = f"{before.config.kind} makes token vectors {before.width} wide, and {after.config.kind}"
                    says = f"{kinds} takes {after.token_width}; give both to every layer as one chain"
                    return [("layers", self.layers, says)]
        if len(set(starts)) > 1:
            says = f"the encoder takes token vectors {starts[0]} wide and the decoder {starts[1]}, from one table"
            return [("layers", self.layers, f"{says}; give both stacks the same combine and share")]
        if self.tie and self.output and starts[0] != self.width:
            says = f"token vectors of {starts[0]} features cannot be the output map of width {self.width}"
            return [("tie", True, f"{says}; write tie: false")]
        return []

    def _build(self, encoding: Encoding.Config) -> Encoding:
        # On the meta device, so that a table of any size takes no memory.
        with torch.device("meta"):
            return build(encoding, width=self.width, heads=self.heads, head_width=self.head_width)

    def layer_kinds(self, stack: Side | None = None) -> tuple[Layer, ...]:
        """Each layer of a stack, resolved; which stack must be said where there are two."""
        sides = self.sides
        if stack is None and len(sides) == 1:
            stack = sides[0]
        if stack not in sides:
            raise ValueError(
                f"stack={stack!r} names no stack of {self.stack}; write {either([repr(s) for s in sides])}"
            )
        layers = getattr(self.layers, stack) if isinstance(self.layers, Stacks) else self.layers
        if isinstance(layers, int):
            return (Layer(None, self.encoding, self.window, self.keep_first),) * layers
        if not layers.pattern:
            return (Layer(None, self.encoding, self.window, self.keep_first),) * layers.count
        every = {
            name: Layer(name, kind.encoding or self.encoding, kind.window, kind.keep_first)
            for name, kind in layers.kinds.items()
        }
        return tuple(every[name] for name in islice(cycle(layers.pattern), layers.count))

    @property
    def sides(self) -> tuple[Side, ...]:
        """The stacks there are, in the order tokens meet them."""
        both: tuple[Side, ...] = ("encoder", "decoder")
        return both if self.stack == "encoder-decoder" else (self.stack,)

    def plan(self, stack: Side | None = None) -> Plan:
        """What the positions of each layer resolve to."""
        layers = self.layer_kinds(stack)
        distinct = _distinct(layers)
        built = [self._build(layer.encoding) for layer in distinct]
        resolved = [
            replace(encoding.layer_plan(layer.window), keep_first=layer.keep_first)
            for layer, encoding in zip(distinct, built, strict=True)
        ]
        ends = [encoding.claims.longest for encoding in built if encoding.claims.longest is not None]
        crosses = self.cross_encoding.kind != "none" and stack == "decoder"
        return Plan(
            layers=tuple(resolved[distinct.index(layer)] for layer in layers),
            cross=self._build(self.cross_encoding).layer_plan() if crosses else None,
            table=min(ends, default=None),
        )


def _one_way(encoding: Encoding.Config) -> str:
    says = "is defined for keys up to the query only, and an encoder also looks at those after it"
    if hasattr(encoding, "bidirectional"):
        return f"{says}; write bidirectional: true in the encoder's encoding"
    return f"{says}; use an encoding that looks both ways (rope, alibi, sinusoidal, ...)"


def _distinct(layers: Iterable[Layer]) -> list[Layer]:
    """Each different layer once. By equality: settings of encodings outside the package may not be hashable."""
    found: list[Layer] = []
    for layer in layers:
        if layer not in found:
            found.append(layer)
    return found
