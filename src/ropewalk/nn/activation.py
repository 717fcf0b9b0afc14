"""Activations by name, and the gates of the GLU family.

relu   max(0, x)                 swish  x sigmoid(x)
gelu   x Phi(x) = x/2 (1 + erf(x / sqrt 2))          gelu-tanh  its approximation          arXiv:1606.08415
glu, reglu, swiglu, geglu:  (g(x W) * x V) W_down with g = sigmoid, relu, swish, gelu      arXiv:2002.05202
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Activation = Literal["relu", "swish", "gelu", "gelu-tanh", "glu", "reglu", "swiglu", "geglu", "geglu-tanh"]

PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "swish": F.silu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
}
GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "glu": torch.sigmoid,
    "reglu": PLAIN["relu"],
    "swiglu": PLAIN["swish"],
    "geglu": PLAIN["gelu"],
    "geglu-tanh": PLAIN["gelu-tanh"],
}
FUNCTIONS = PLAIN | GATES
