"""A stack of blocks, the encoder's or the decoder's, and the positions that go through it.

Each kind of layer has one encoding, shared by all its layers; its tables are computed once a pass, before the first
block. An encoding that changes the token vectors does so once, here, and never again in a layer.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from ropewalk.attention import Cache, Rule
from ropewalk.encodings import Encoding, build
from ropewalk.models.config import Side, TransformerConfig
from ropewalk.nn import MLP, AcrossHeads, Attention, Block, Core, Dropout, DropoutKey, Residual, deepnorm, norm
from ropewalk.positions import Positions


class Stack(nn.Module):
    def __init__(self, config: TransformerConfig, side: Side) -> None:
        super().__init__()
        self.side, layers = side, config.layer_kinds(side)
        cross = side == "decoder" and config.stack == "encoder-decoder"
        configs = {layer.encoding.model_dump_json(): layer.encoding for layer in layers}
        kinds = list(configs)
        sizes = {"width": config.width, "heads": config.heads, "head_width": config.head_width}
        self.encodings = nn.ModuleList(build(configs[kind], **sizes) for kind in kinds)
        self.kind_of = [kinds.index(layer.encoding.model_dump_json()) for layer in layers]
        causal = side == "decoder"
        self.rules = [Rule(causal=causal, window=layer.window, keep_first=layer.keep_first) for layer in layers]
        self.cross_encoding = build(config.cross_encoding, **sizes) if cross else None
        # The first of the numbers that tell the dropout masks of the layers apart.
        self.first = 0 if side == "encoder" else 1 << 20
        self.dropout = Dropout(config.dropout.embedding)
        self.embedding_norm = token_norm(config) if config.embedding_norm else None
        self.blocks = nn.ModuleList(block(config, side, cross=cross) for _ in layers)
        # Where nothing normalises the residual stream itself, its end must be.
        needs_norm = config.norm.placement in ("pre", "sandwich", "output", "parallel")
        self.final_norm = token_norm(config) if needs_norm else None

    @property
    def kinds(self) -> list[Encoding]:
        """The encodings of the kinds of layers."""
        return [encoding for encoding in self.encodings if isinstance(encoding, Encoding)]

    @property
    def attentions(self) -> list[Attention]:
        return [block.attention for block in self.blocks if isinstance(block, Block)]

    @property
    def crosses(self) -> list[Attention]:
        return [block.cross for block in self.blocks if isinstance(block, Block) and block.cross is not None]

    def forward(
        self,
        x: Tensor,
        at: Positions,
        *,
        memory: Tensor | None = None,
        memory_at: Positions | None = None,
        cache: Cache | None = None,
        dropout_key: DropoutKey | None = None,
    ) -> Tensor:
        signals = [encoding.at(at) for encoding in self.kinds]
        for signal in signals:
            x = signal.embed(x)
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        numbers = range(self.first, self.first + len(self.blocks) + 1)
        dropout_keys = [None if dropout_key is None else dropout_key.for_layer(number) for number in numbers]
        x = self.dropout(x, dropout_keys[-1], at)
        looks = None if self.cross_encoding is None else self.cross_encoding.at(at, memory_at)
        for number, layer in enumerate(self.blocks):
            x = layer(
                x,
                signals[self.kind_of[number]],
                self.rules[number],
                memory=memory,
                memory_signal=looks,
                cache=None if cache is None else cache[number],
                cross_cache=cache.cross[number] if cache is not None and cache.cross else None,
                dropout_key=dropout_keys[number],
            )
        return x if self.final_norm is None else self.final_norm(x)


def block(config: TransformerConfig, side: Side, *, cross: bool) -> Block:
    """One layer as the config describes it."""
    counts = {f"{name}_layers": len(config.layer_kinds(name)) for name in config.sides}
    alpha, beta = deepnorm(side, **counts) if config.norm.placement == "deep" else (1.0, 1.0)
    weights = {"std": config.std, "gain": beta}

    def attention(number: int, *, cross: bool = False) -> Attention:
        def qk_norm(heads: int) -> nn.Module:
            if config.qk_norm == "head":
                return token_norm(config, config.head_width)
            return AcrossHeads(token_norm(config, heads * config.head_width))

        return Attention(
            config.width,
            config.heads,
            key_heads=config.key_heads,
            head_width=config.head_width,
            value_width=config.value_width,
            cross=cross,
            fused=config.fused,
            bias=config.qkv_bias,
            out_bias=config.out_bias,
            qk_norm=qk_norm if config.qk_norm else None,
            core=Core(
                config.heads,
                scale=config.scale,
                soft_cap=config.soft_cap,
                sink=config.sink,
                dropout=config.dropout.attention,
                place=number,
            ),
            **weights,
        )

    return Block(
        attention(3),
        MLP(config.width, config.hidden, config.activation, bias=config.mlp_bias, fused=config.fused, **weights),
        lambda number: Residual(
            config.norm.placement, partial(token_norm, config), Dropout(config.dropout.residual, number), alpha
        ),
        cross=attention(4, cross=True) if cross else None,
        shared_norm=config.norm.shared,
    )


def token_norm(config: TransformerConfig, width: int | None = None) -> nn.Module:
    chosen = config.norm
    return norm(chosen.kind, width or config.width, eps=chosen.eps, bias=chosen.bias, shifted=chosen.shifted)
