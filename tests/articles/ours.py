"""Short handles on the library, for the articles' tests: a vector turned, a score, a table, a deep stack."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ropewalk import encodings, positions
from ropewalk.attention import Rule, Score, attend
from ropewalk.encodings import RoPE, Signal, Sinusoidal
from ropewalk.nn import MLP, Dropout, Residual, norm
from tests.articles import formulas

BOTH_WAYS = Rule(causal=False)


def nowhere(queries: int, keys: int | None = None) -> Signal:
    """No positions at all."""
    return encodings.build("none").at(torch.arange(queries), torch.arange(keys or queries))


def mixed(q: Tensor, k: Tensor, v: Tensor, rule: Rule = BOTH_WAYS) -> Tensor:
    """One head of attention without positions: (L, K), (S, K), (S, V) -> (L, V)."""
    return attend(q[None, None], k[None, None], v[None, None], Score(nowhere(len(q), len(k)), rule))[0, 0]


def turned(x: Tensor, at: Tensor, **settings: object) -> Tensor:
    """(L, K) vectors rotated, neighbouring features being pairs as in the articles' formulas."""
    settings = {"layout": "pairs", "precision": "float64"} | settings
    return RoPE(head_width=x.shape[-1], **settings).at(at).rotate(x[None, None], "query")[0, 0]


def score(q: Tensor, k: Tensor, m: int, n: int, **settings: object) -> float:
    """Of one query at m and one key at n, before any scale."""
    rotated = (turned(x[None], torch.tensor([p]), **settings)[0] for x, p in ((q, m), (k, n)))
    return formulas.dot(*(x.tolist() for x in rotated))


def table(at: Tensor, width: int, **settings: float) -> Tensor:
    """The sinusoids at these positions, in float64."""
    return Sinusoidal(width=width, **settings).at(at).q_table[0].double()


def wavelengths(width: int, **settings: float) -> list[float]:
    """Read off the row of position 1: each pair is the sine and cosine of its own angle there."""
    sin, cos = table(torch.tensor([1]), width, **settings)[0].view(-1, 2).T
    return (2 * math.pi / torch.atan2(sin, cos)).tolist()


class Deep(nn.Module):
    """Feed-forward sublayers one after the other, each in a residual of this placement, or in none at all."""

    width, classes = 16, 8
    at = positions.plain(8)

    def __init__(
        self, placement: str | None, depth: int, *, last: bool = False, gain: float = 1.0, alpha: float = 1.0
    ) -> None:
        super().__init__()
        D = self.width
        self.mlps = nn.ModuleList(MLP(D, 4 * D, "relu", std=None, gain=gain) for _ in range(depth))
        placed = [placement] * depth if placement else []
        self.residuals = nn.ModuleList(Residual(p, lambda: norm("layer", D), Dropout(0.0), alpha) for p in placed)
        self.last = norm("layer", D) if last else nn.Identity()
        self.head = nn.Linear(D, self.classes)

    def hidden(self, x: Tensor) -> Tensor:
        for number, mlp in enumerate(self.mlps):
            x = self.residuals[number](x, mlp, self.at, None) if self.residuals else mlp(x)
        return self.last(x)

    def loss(self, x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.hidden(x)).flatten(0, 1), target)

    @classmethod
    def data(cls) -> tuple[Tensor, Tensor]:
        """Random vectors and what to call them."""
        return torch.randn(4, 8, cls.width), torch.randint(cls.classes, (32,))

    def gradients(self) -> list[float]:
        """Sizes of the gradients of the down projections, first layer first."""
        self.loss(*self.data()).backward()
        return [float(mlp.down.weight.grad.norm()) for mlp in self.mlps]
