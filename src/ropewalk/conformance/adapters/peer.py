"""What the adapters of other libraries share: targets with names that can be imported, and a few turns of phrase.

    from ropewalk.conformance.adapters.transformers import llama_yarn as target

Nothing of a library is imported before one of its targets is built.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.conformance.findings import NotApplicable
from ropewalk.conformance.target import Spec

VOCABULARY = 64


TOLD_NONE: dict[str, Any] = {"kind": "other", "relative": False, "vocabulary": VOCABULARY}
"""The spec of a whole model that counts tokens: no shift can be asked of it, so none is required."""


class Peer:
    """One target: a public interface of a library, in one setting."""

    def __init__(
        self, library: str, short: str, spec: Spec, build: Callable[..., Any], says: str, **offers: Any
    ) -> None:
        self.library, self.short, self.spec, self.build, self.says = library, short, spec, build, says
        self.name = f"ropewalk.conformance.adapters.{library}:{short}"
        for offer, function in offers.items():
            setattr(self, offer, function)

    def __repr__(self) -> str:
        return f"{self.library}: {self.short}, {self.says}"


def need(module: str, pip: str) -> Any:
    """The library, or how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} cannot be imported ({error}); pip install {pip}") from error


def by_name(module: str) -> Callable[[str], Peer]:
    """An adapter's __getattr__: its targets by their names, so that they can be imported."""

    def find(name: str) -> Peer:
        if name.startswith("_"):
            raise AttributeError(name)
        found = {target.short: target for target in sys.modules[module].targets()}
        if name not in found:
            raise AttributeError(f"module {module!r} has no {name!r}; its targets are {', '.join(found)}")
        return found[name]

    return find


def seeded(make: Callable[[], Any]) -> Any:
    """A model with the same random weights every time; large ones, so that logits depend on attention."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return make()


def loudly(model: nn.Module, spread: float = 0.35) -> nn.Module:
    """Weights of a size at which attention is far from uniform: at 0.02 any position would do."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1 and not parameter.is_meta:
                parameter.copy_(torch.randn_like(parameter) * spread)
    return model.eval()


def runs(positions: Tensor) -> list[tuple[int, int, int]]:
    """(L) positions as (first place, one past the last, first position) of stretches that count up by one."""
    cuts = [0, *((positions.diff() != 1).nonzero().flatten() + 1).tolist(), len(positions)]
    return [(a, b, int(positions[a])) for a, b in pairwise(cuts) if b > a]


def counted(positions: Tensor | None, due: int | None, length: int, who: str) -> int | None:
    """The position that is due after these, for a model that is told none and counts tokens: one that starts elsewhere
    than at 0 is read as if it started there. Gaps are refused. `due` is None before the first token."""
    if positions is None:
        return None if due is None else due + length
    start = int(positions[0, 0]) if due is None else due
    if not torch.equal(positions, torch.arange(start, start + length).expand_as(positions)):
        raise NotApplicable(f"{who} takes no positions: it counts tokens")
    return start + length


def key_form(by_key: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
    """(H, S) biases that depend on the key alone, as those of a relative bias: (H, L, S) in their own dtype.

    A softmax sees only differences within a row, so m j - m i stands for -m (i - j). Both are the library's, and their
    difference is exact. Later keys are masked in a causal model; their sign is that of the definition.
    """
    values = by_key.double()
    apart = values[:, k_positions][:, None] - values[:, q_positions][..., None]
    return torch.where(k_positions[None] <= q_positions[:, None], apart, -apart).to(by_key.dtype)


@contextmanager
def float32_weights() -> Iterator[None]:
    """Learned numbers are float32 whatever the default: what is looked at is what is computed from positions."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def only_padding(documents: Tensor) -> bool:
    """Whether no row holds more than one document beside its padding."""
    return all(len(set(row.tolist()) - {-1}) <= 1 for row in documents)
