"""One pass of `ropewalk eval` over a long text: ours against transformers and against products and attention alone.

    python benchmarks/likelihood.py [--rounds 3] [--json]        needs python -m tests.real.fetch smollm2

SmolLM2-135M scores the last 512 of 16,384 tokens, in bfloat16 where the processor has instructions for it and float32
elsewhere. In each round every way runs once, in turn; a figure is the median over the rounds. `bare` is the products of
the same weights and causal SDPA with as many tokens, and nothing else. transformers runs its SDPA. No way is compiled.
Memory is the peak of a process that makes one pass of 32,768 tokens in float32.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bars

sys.path.insert(0, str(Path(__file__).parents[1]))

LENGTH, LONGEST, SCORED = 16_384, 32_768, 512
OF_BARE, OVER_TRANSFORMERS, GIBIBYTES = 0.92, 1.0, 6.0
ONE_PASS = """
import sys
from likelihood import passage
from ropewalk.evaluate.checkpoint import opened
from ropewalk.system import peak_memory
opened(sys.argv[1], dtype="float32", hashed=False)[0].nats(passage(int(sys.argv[2])))
print(peak_memory() / 2**30)
"""


def run(rounds: int) -> dict[str, Any]:
    os.environ.pop("ROPEWALK_COMPILE")  # `ropewalk eval` does not ask for it
    from tests.real.fetch import model as fetched

    gguf = fetched("smollm2")
    narrow = bars.processor()["bfloat16 instructions"] not in ("none", "not known")
    dtype = "bfloat16" if narrow else "float32"
    spent: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        every = ways(gguf, Path(folder), dtype)
        for way in every.values():
            way(SCORED + 1)
        for number in range(rounds):
            for name, way in every.items():
                print(f"round {number + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
                began = time.perf_counter()
                way(LENGTH)
                spent.setdefault(name, []).append(time.perf_counter() - began)
    print(f"memory of {LONGEST:,} tokens", file=sys.stderr, flush=True)
    child = [sys.executable, "-c", ONE_PASS, str(gguf), str(LONGEST)]
    home = Path(__file__).parent
    memory = float(subprocess.run(child, stdout=subprocess.PIPE, text=True, check=True, cwd=home).stdout)
    took = {name: statistics.median(times) for name, times in spent.items()}
    return {
        "bars": {
            f"bare over ropewalk, {dtype}: at least": bars.bar(took["bare"] / took["ropewalk"], OF_BARE, at_least=True),
            f"transformers over ropewalk, {dtype}: at least": bars.bar(
                took["transformers"] / took["ropewalk"], OVER_TRANSFORMERS, at_least=True
            ),
            f"GiB of a pass of {LONGEST:,} tokens: at most": bars.bar(memory, GIBIBYTES, at_least=False),
        },
        "measured": {f"seconds, {name}, {LENGTH:,} tokens, {dtype}": value for name, value in took.items()},
        "versions": bars.versions(["transformers"]),
    }


def passage(length: int) -> Any:
    import numpy as np

    from ropewalk.evaluate.passage import Passage

    return Passage.plain(np.random.default_rng(0).integers(100, 40_000, length), SCORED)


def ways(gguf: Path, folder: Path, dtype: str) -> dict[str, Callable[[int], Any]]:
    import torch
    from torch.nn import functional as F
    from transformers import LlamaForCausalLM

    from ropewalk.checkpoints.export.convert import export
    from ropewalk.evaluate.checkpoint import opened

    ours = opened(gguf, dtype=dtype, hashed=False)[0]
    export(gguf, folder / "hf", format="hf")
    kind = getattr(torch, dtype)
    theirs = LlamaForCausalLM.from_pretrained(folder / "hf", dtype=kind, attn_implementation="sdpa").eval()

    @torch.inference_mode()
    def transformers(length: int) -> None:
        tokens = torch.from_numpy(passage(length).tokens)[None]
        logits = theirs(tokens, use_cache=False, logits_to_keep=SCORED + 1).logits[0, :-1]
        F.cross_entropy(logits.float(), tokens[0, -SCORED:], reduction="none")

    return {
        "bare": lambda length: bare(ours.transformer, length),
        "ropewalk": lambda length: ours.nats(passage(length)),
        "transformers": transformers,
    }


def bare(model: Any, length: int) -> None:
    """What no implementation can leave out."""
    import torch
    from torch.nn import functional as F

    heads, groups = model.config.heads, model.config.key_heads
    with torch.inference_mode():
        x = torch.ones(length, model.config.width, dtype=model.tokens.weight.dtype)
        for block in model.decoder.blocks:
            qkv = F.linear(x, block.attention.qkv.weight)
            parts = qkv.view(length, heads + 2 * groups, -1).transpose(0, 1).unsqueeze(0)
            q, k, v = parts.split([heads, groups, groups], dim=1)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = F.linear(mixed[0].transpose(0, 1).reshape(length, -1), block.attention.out.weight)
            x = F.linear(F.linear(x, block.mlp.up.weight)[:, : block.mlp.down.weight.shape[1]], block.mlp.down.weight)
        F.linear(x[-SCORED:], model.tokens.weight)


if __name__ == "__main__":
    sys.exit(bars.main(__doc__, run, rounds=3))
