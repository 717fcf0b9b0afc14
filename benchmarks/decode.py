"""Tokens a second when decoding with SmolLM2-135M: ours against transformers and against the matrix products alone.

    python benchmarks/decode.py [--rounds 3] [--json]        needs python -m tests.real.fetch smollm2

In each round every way continues the same prompts of 32 tokens, one by 256 and eight by 48, greedily, in turn; a figure
is the median over the rounds of tokens a second. `bare` is the matrix products of the same weights with as many tokens,
and nothing else. Ours runs as it is and with its step compiled, transformers as it is and with a static cache and its
forward pass compiled. Compiling is not counted: how long a first call took is stated apart. llama.cpp stands beside
them where xllamacpp is installed: one text at a time, weights in float32, or float16 in place of bfloat16.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bars

sys.path.insert(0, str(Path(__file__).parents[1]))

PROMPT, NEW = 32, {1: 256, 8: 48}
"""New tokens, by how many texts at once."""
BOUNDS = {
    ("ropewalk", "transformers"): 1.3,
    ("ropewalk compiled", "transformers"): 1.6,
    ("ropewalk compiled", "transformers compiled"): 1.0,
    ("ropewalk compiled", "bare"): 0.8,
}
Way = Callable[[], Any]


def run(rounds: int) -> dict[str, Any]:
    import torch

    from ropewalk.checkpoints.export.convert import export
    from tests.real.fetch import model as fetched

    torch.set_grad_enabled(False)
    measured: dict[str, float] = {}
    found: dict[str, dict[str, Any]] = {}
    gguf = fetched("smollm2")
    with tempfile.TemporaryDirectory() as folder:
        export(gguf, Path(folder) / "hf", format="hf")
        for dtype in ("float32", "bfloat16"):
            for batch, new in NEW.items():
                mode = f"{dtype}, batch {batch}"
                print(mode, file=sys.stderr, flush=True)
                speeds, first = compare(ways(gguf, Path(folder), dtype, batch), batch * new, rounds)
                if batch == 1 and (beside := llama_cpp(gguf, Path(folder), dtype)):
                    # By itself: its threads wait by spinning, and would slow whatever runs in between.
                    speeds |= compare({"llama.cpp": beside}, new, rounds)[0]
                measured |= {f"{name}, {mode}": speed for name, speed in speeds.items()}
                measured |= {f"seconds of the first call, {name}, {mode}": spent for name, spent in first.items()}
                for (ours, theirs), bound in BOUNDS.items():
                    key = f"{ours} over {theirs}, {mode}: at least"
                    found[key] = bars.bar(speeds[ours] / speeds[theirs], bound, at_least=True)
    return {"bars": found, "measured": measured, "versions": bars.versions(["transformers", "xllamacpp"])}


def compare(each: dict[str, Way], tokens: int, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Tokens a second, and the seconds of the first call, which compiles."""
    spent: dict[str, list[float]] = {name: [] for name in each}
    for _ in range(1 + rounds):
        for name, way in each.items():
            start = time.perf_counter()
            way()
            spent[name].append(time.perf_counter() - start)
    speeds = {name: tokens / statistics.median(times[1:]) for name, times in spent.items()}
    return speeds, {name: times[0] for name, times in spent.items()}


def ways(gguf: Path, folder: Path, dtype: str, batch: int) -> dict[str, Way]:
    import torch
    from transformers import LlamaForCausalLM

    import ropewalk

    prompts = prompts_of(batch)
    model = ropewalk.load(gguf, dtype=dtype)
    kind = getattr(torch, dtype)
    theirs = [LlamaForCausalLM.from_pretrained(folder / "hf", dtype=kind).eval() for _ in range(2)]
    theirs[1].forward = torch.compile(theirs[1].forward)  # type: ignore[method-assign]
    tokens = torch.tensor(prompts)
    new = NEW[batch]
    options = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False, "attention_mask": tokens > 0}

    def ours(compiled: bool) -> None:
        said = ropewalk.complete(model, prompts, max_tokens=new, temperature=0, compiled=compiled)
        assert len(said[0]) == new

    every: dict[str, Way] = {
        "bare": lambda: bare(model, tokens),
        "ropewalk": lambda: ours(False),
        "ropewalk compiled": lambda: ours(True),
        "transformers": lambda: theirs[0].generate(tokens, **options),
        "transformers compiled": lambda: theirs[1].generate(tokens, cache_implementation="static", **options),
    }
    return every


def prompts_of(batch: int) -> list[list[int]]:
    return [[(7 * i + 11 * b) % 40_000 + 100 for i in range(PROMPT)] for b in range(batch)]


def bare(model: Any, tokens: Any) -> None:
    """The matrix products of the prompt and of every new token; what is between them is left out."""
    import torch
    from torch.nn import functional as F

    batch, width = len(tokens), model.config.width
    blocks = [
        (b.attention.qkv.weight, b.attention.out.weight, b.mlp.up.weight, b.mlp.down.weight)
        for b in model.decoder.blocks
    ]
    for length in (PROMPT, *[1] * (NEW[batch] - 1)):
        x = torch.ones(batch, length, width, dtype=model.tokens.weight.dtype)
        for qkv, out, up, down in blocks:
            x = F.linear(F.linear(x, qkv)[..., : out.shape[1]], out)
            x = F.linear(F.linear(x, up)[..., : down.shape[1]], down)
        F.linear(x[:, -1], model.tokens.weight)


def llama_cpp(gguf: Path, folder: Path, dtype: str) -> Way | None:
    try:
        import xllamacpp
    except ImportError:
        return None
    from ropewalk.checkpoints.export.convert import export

    file = folder / f"{dtype}.gguf"
    if not file.exists():
        export(gguf, file, format="gguf", dtype="float32" if dtype == "float32" else "float16")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(file)
    parameters.n_ctx, parameters.n_parallel, parameters.warmup = 512, 1, False
    parameters.cpuparams.n_threads = 2
    server = xllamacpp.Server(parameters)
    asked = {
        "prompt": prompts_of(1)[0],
        "n_predict": NEW[1],
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": False,
    }

    def way() -> None:
        answer = server.handle_completions(asked)
        assert answer["usage"]["completion_tokens"] == NEW[1], answer

    return way


if __name__ == "__main__":
    sys.exit(bars.main(__doc__, run, rounds=3))
