"""One training step of a 34M decoder, 4 x 512 tokens: ours against the same model in bare PyTorch, and against others.

    python benchmarks/block.py [--rounds 15] [--json]

A step is the forward pass, the loss and the backward pass. Everything runs in one process, interleaved: in each round
each model runs once, in turn. A figure is the share of bare speed in the same mode: the median over the rounds
of bare's time over the model's; `low` and `high` are the quartiles.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from typing import Any

import bare
import bars

SHARE = 0.97
BATCH, LENGTH = 4, 512
Step = Callable[[], Any]


def run(rounds: int) -> dict[str, Any]:
    import torch

    versions = bars.versions(RIVALS)
    rivals = {name: build for name, build in RIVALS.items() if versions[name] != "absent"}
    measured: dict[str, float] = {}
    found: dict[str, dict[str, Any]] = {}
    for compiled in (False, True):
        for dtype in (torch.float32, torch.bfloat16):
            mode = f"{'compiled' if compiled else 'eager'} {str(dtype).removeprefix('torch.')}"
            print(mode, file=sys.stderr, flush=True)
            shares = compare({"bare": bare.Bare, "ropewalk": ours, **rivals}, dtype, compiled, rounds)
            measured |= {f"{name}, {mode}{part}": value for name, by in shares.items() for part, value in by.items()}
            found[f"ropewalk, {mode}: share of bare, at least"] = bars.bar(shares["ropewalk"][""], SHARE, at_least=True)
            for name in rivals:
                times = shares["ropewalk"][""] / shares[name][""]
                found[f"ropewalk over {name}, {mode}: times faster, at least"] = bars.bar(times, 1.0, at_least=True)
    return {"bars": found, "measured": measured, "versions": versions}


def compare(
    models: dict[str, Callable[[], Any]], dtype: Any, compiled: bool, rounds: int
) -> dict[str, dict[str, float]]:
    import torch

    torch.manual_seed(0)
    tokens = torch.randint(0, bare.VOCABULARY, (BATCH, LENGTH))
    torch._dynamo.reset()
    steps = {name: step(build(), tokens, dtype, compiled) for name, build in models.items()}
    spent = bars.interleaved(steps, rounds)
    shares = {}
    for name, times in spent.items():
        ratios = [yard / its for yard, its in zip(spent["bare"], times, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        shares[name] = {"": middle, ", low": low, ", high": high}
    return shares


def step(model: Any, tokens: Any, dtype: Any, compiled: bool) -> Step:
    import torch
    from torch.nn import functional as F

    parameters = list(model.parameters())
    if not 33e6 < sum(p.numel() for p in parameters) < 36e6:
        raise SystemExit(f"{type(model).__name__} has {sum(p.numel() for p in parameters):,} parameters, not 34M")
    forward = torch.compile(model) if compiled else model

    def once() -> None:
        for parameter in parameters:
            parameter.grad = None
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            out = forward(tokens)
            logits = out if isinstance(out, torch.Tensor) else out.logits
            loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        loss.backward()

    return once


def ours() -> Any:
    from ropewalk.models import Transformer, TransformerConfig

    config = TransformerConfig(
        vocabulary=bare.VOCABULARY,
        width=bare.WIDTH,
        heads=bare.HEADS,
        layers=bare.LAYERS,
        hidden=bare.HIDDEN,
        tie=False,
    )
    return Transformer(config)


def transformers() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=bare.VOCABULARY,
        hidden_size=bare.WIDTH,
        intermediate_size=bare.HIDDEN,
        num_hidden_layers=bare.LAYERS,
        num_attention_heads=bare.HEADS,
        use_cache=False,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config)


def x_transformers() -> Any:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(
        dim=bare.WIDTH,
        depth=bare.LAYERS,
        heads=bare.HEADS,
        attn_dim_head=bare.HEAD_WIDTH,
        rotary_pos_emb=True,
        use_rmsnorm=True,
        ff_swish=True,
        ff_glu=True,
        ff_mult=bare.HIDDEN / bare.WIDTH,
        ff_no_bias=True,
        attn_flash=True,
    )
    return TransformerWrapper(num_tokens=bare.VOCABULARY, max_seq_len=LENGTH, attn_layers=layers, use_abs_pos_emb=False)


RIVALS: dict[str, Callable[[], Any]] = {"transformers": transformers, "x-transformers": x_transformers}

if __name__ == "__main__":
    sys.exit(bars.main(__doc__, run, rounds=15))
