"""The angles that `campaigns.exactness` compares, and the loss of a real model under each.

    exact        integer phases, cos and sin in float64, rounded once to float32: ropewalk's
    float32      position x frequency rounded to float32, then cos and sin: transformers, vLLM and most others
    tables       as float32, and cos and sin rounded to bfloat16: what a model in bfloat16 does on purpose
    frequencies  as float32, of frequencies rounded to bfloat16: what `model.to(bfloat16)` does to the buffer
    angles       positions, frequencies and their product rounded to bfloat16: from 257 on, positions fall together

The frequencies themselves are the float32 numbers of training in every arm, and the rotation is computed in float32 in
every arm: only what the table says differs.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import ropewalk as rw
from ropewalk.encodings import RoPE

ARMS = ("exact", "float32", "tables", "frequencies", "angles")
FAR_ARMS = ("exact", "float32")
TRAINED = {"smollm2": 8192, "tinyllama": 2048}
SCORED = 1024
"""Tokens whose logits are held at once."""
LONG_ENOUGH = 90_000
"""Characters of a text that has 16,384 tokens, whatever the tokenizer."""


class Cell(NamedTuple):
    """One model, length, scaling and dtype: its arms from position 0, and FAR_ARMS from positions farther on too."""

    model: str
    length: int
    dtype: str
    documents: int
    factor: int = 1
    """Of YaRN; 1: the checkpoint as it is."""
    arms: tuple[str, ...] = ARMS
    far: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        scaling = "as it is" if self.factor == 1 else f"YaRN x{self.factor}"
        return f"{self.model}, {self.length:,} tokens, {scaling}, {self.dtype}"

    @property
    def passes(self) -> list[tuple[str, int]]:
        near = [(arm, 0) for arm in self.arms]
        return near + [(arm, start) for start in self.far for arm in FAR_ARMS]


class Arm(RoPE):
    """RoPE with the table of one arm."""

    def __init__(self, config: RoPE.Config, arm: str, *, head_width: int) -> None:
        super().__init__(config, head_width=head_width)
        self.arm = arm

    def forward(self, at: rw.Positions) -> tuple[Tensor, Tensor]:
        if self.arm == "exact":
            return super().forward(at)
        plan = self.layer_plan()
        cos, sin = TABLES[self.arm](at.index, torch.tensor(plan.frequencies, dtype=torch.float32), plan.rotary_gain)
        return cos[:, None], sin[:, None]


def float32(index: Tensor, frequencies: Tensor, gain: float) -> tuple[Tensor, Tensor]:
    angles = index[..., None].float() * frequencies
    return angles.cos() * gain, angles.sin() * gain


def tables(index: Tensor, frequencies: Tensor, gain: float) -> tuple[Tensor, Tensor]:
    cos, sin = float32(index, frequencies, gain)
    return cos.bfloat16().float(), sin.bfloat16().float()


def cast_frequencies(index: Tensor, frequencies: Tensor, gain: float) -> tuple[Tensor, Tensor]:
    return float32(index, frequencies.bfloat16().float(), gain)


def cast_angles(index: Tensor, frequencies: Tensor, gain: float) -> tuple[Tensor, Tensor]:
    angles = (index[..., None].bfloat16() * frequencies.bfloat16()).float()
    return angles.cos() * gain, angles.sin() * gain


TABLES: dict[str, Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]] = {
    "float32": float32,
    "tables": tables,
    "frequencies": cast_frequencies,
    "angles": cast_angles,
}


class Accumulated(TorchFunctionMode):
    """Linear maps in bfloat16 as matrix units compute them: products summed in float32, the sum rounded once. On CPUs
    without bfloat16 instructions torch does the same, three times as slowly."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.linear or args[0].dtype != torch.bfloat16:
            return func(*args, **(kwargs or {}))
        x, weight, bias = args
        return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).bfloat16()


def documents(path: Path) -> Iterator[tuple[str, str]]:
    """Long texts of a .jsonl file, spread over it, each once: their hash, and the text."""
    lines = path.read_text(encoding="utf-8").splitlines()
    texts = [text for text in (json.loads(line)["text"] for line in lines) if len(text) >= LONG_ENOUGH]
    golden, seen = (math.sqrt(5) - 1) / 2, set()
    for number in range(1, len(texts)):
        place = int(number * golden % 1 * len(texts))
        if place not in seen:
            seen.add(place)
            yield hashlib.sha256(texts[place].encode()).hexdigest()[:16], texts[place]


def run(cell: Cell, model: rw.Transformer, tokens: Tensor) -> dict[str, Any]:
    """tokens (L,) of one document -> of each pass the loss in nats per token and how far single tokens' losses are, in
    the mean, from those of exact angles at position 0."""
    losses = {(arm, start): losses_of(model, tokens, cell, arm, start) for arm, start in cell.passes}
    exact = losses["exact", 0]
    return {
        f"{arm} from {start:,}": {"nats": float(loss.mean()), "token": float((loss - exact).abs().mean())}
        for (arm, start), loss in losses.items()
    }


@torch.no_grad()
def losses_of(model: rw.Transformer, tokens: Tensor, cell: Cell, arm: str, start: int) -> Tensor:
    """(L - 1,) float64: of each token after the first."""
    stack = model.decoder
    assert stack is not None
    (plain,) = stack.kinds
    assert isinstance(plain, RoPE)
    settings = plain.config
    if cell.factor != 1:
        scaling = rw.scaling.YaRN(factor=cell.factor, trained=TRAINED[cell.model])
        settings = settings.model_copy(update={"scaling": scaling})
    at = rw.positions.plain(len(tokens), start=start)
    stack.encodings[0] = Arm(settings, arm, head_width=plain.head_width)
    mode: AbstractContextManager[Any] = Accumulated() if cell.dtype == "bfloat16" else nullcontext()
    try:
        with mode:
            x = model.hidden(tokens[None], at)[0, :-1]
            found = [
                F.cross_entropy(model.output(part).float(), after, reduction="none")
                for part, after in zip(x.split(SCORED), tokens[1:].split(SCORED), strict=True)
            ]
    finally:
        stack.encodings[0] = plain
    return torch.cat(found).double()
