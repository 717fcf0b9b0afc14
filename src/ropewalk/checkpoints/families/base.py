"""What a family is: how its config names sizes, and what its files call our tensors.

A family is one file, named by the rows of the architectures it loads (`Architecture.family`), with

    shape(keys)         TransformerConfig without positions, which come from the resolved plan
    NAMES               our module -> theirs, {i} the number of a block; several of theirs are rows of one of ours
    FORMS               our module -> how its weight lies in the file, where that is not as rows
    SPARE               patterns of tensors in their files that hold nothing a model needs

and where it needs them

    names(config)       NAMES where they depend on the config
    by_files(shape, weights)    the shape with what only the files tell
    SAME                tensors that files hold twice: copy -> original
    SINUSOIDS           ends of names of stored tables of sines -> the stack they are of

A config key that would change the computation and that we do not compute is refused by `keys.must`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ropewalk.checkpoints.errors import BadInput

Form = Literal["rows", "transposed", "by head"]
"""rows: as torch.nn.Linear has it. transposed: (in, out). by head: rows are (heads, 3, K), query, key and value of one
head together."""

ACTIVATIONS = {
    "relu": "relu",
    "silu": "swish",
    "swish": "swish",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
}
GATED = {"relu": "reglu", "swish": "swiglu", "gelu": "geglu", "gelu-tanh": "geglu-tanh"}


class Source(NamedTuple):
    """Where one of our tensors lies in a checkpoint."""

    names: tuple[str, ...]
    form: Form = "rows"


def without_output(shape: dict[str, Any]) -> dict[str, Any]:
    """The same model, whose answer is its last vectors."""
    return {**shape, "output": False, "output_transform": False, "output_bias": False, "tie": True}


class ModelKeys:
    """A foreign config, read key by key: a wrong type, a missing key or an unsupported value names itself."""

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self.config, self.where = config, where

    def __contains__(self, key: str) -> bool:
        return self.config.get(key) is not None

    def _value(self, key: str, kinds: type | tuple[type, ...], default: Any, wanted: str) -> Any:
        value = self.config.get(key)
        if value is None:
            if default is ...:
                raise BadInput(self.where, key, "is missing", f"{wanted} is needed to build the model")
            return default
        if isinstance(value, bool) != (kinds is bool) or not isinstance(value, kinds):
            raise BadInput(self.where, key, f"{value!r} is not {wanted}", "correct the config")
        return value

    def count(self, key: str, default: Any = ...) -> Any:
        """A size: positive, and small enough that a wrong one cannot make the machine allocate for ever."""
        value = self._value(key, int, default, "a positive integer")
        if value is not None and not 0 < value <= 2**31:
            raise BadInput(self.where, key, f"{value!r} is not a positive integer below 2**31", "correct the config")
        return value

    def heads(self, key: str) -> int:
        """A count that transformers reads as num_attention_heads too; no shape of a tensor tells which is meant."""
        common = "num_attention_heads"
        if key in self and common in self and self.count(key) != self.count(common):
            raise self.contradicts(common, key)
        return self.count(common if key not in self and common in self else key)

    def number(self, key: str, default: Any = ...) -> Any:
        value = self._value(key, (int, float), default, "a number")
        if value is not None and not math.isfinite(value):
            raise BadInput(self.where, key, f"{value!r} is not finite", "correct the config")
        return value

    def cap(self, key: str, default: float | None) -> float | None:
        """A soft cap, where null means none and only an absent key the default."""
        return self.number(key, None) if key in self.config else default

    def flag(self, key: str, default: Any = ...) -> Any:
        return self._value(key, bool, default, "true or false")

    def word(self, key: str, default: Any = ...) -> Any:
        return self._value(key, str, default, "a name")

    def activation(self, *keys: str, default: Any = ..., gated: bool = False) -> str:
        key = next((key for key in keys if key in self), keys[0])
        name = self.word(key, default)
        if name not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise BadInput(self.where, key, f"no activation {name!r}", f"there are {known}")
        plain = ACTIVATIONS[name]
        return GATED[plain] if gated else plain

    def must(self, key: str, *allowed: Any) -> None:
        """Refuses a value that means a computation we do not have; a missing key means the first allowed."""
        value = self.config.get(key, allowed[0])
        if value not in allowed:
            said = " or ".join(repr(one) for one in allowed)
            raise BadInput(self.where, key, f"{value!r} is not supported", f"models with {said} load")

    def contradicts(self, key: str, other: str) -> BadInput:
        problem = f"is {self.config.get(key)!r}, and {other} is {self.config.get(other)!r}"
        return BadInput(self.where, key, problem, "keep the one that is meant: transformers 5 computes with the former")


def sources(names: Mapping[str, str | tuple[str, ...]], forms: Mapping[str, Form], ours: str) -> Source:
    """Where our tensor lies, from the family's table."""
    module, _, leaf = ours.rpartition(".")
    number = re.search(r"\.blocks\.(\d+)\.", f"{module}.")
    i = number.group(1) if number else ""
    pattern = re.sub(r"\.blocks\.\d+(?=\.|$)", ".blocks.{i}", module)
    for key, suffix in ((pattern, f".{leaf}"), (f"{pattern}.{leaf}".lstrip("."), "")):
        if key in names:
            theirs = names[key]
            every = (theirs,) if isinstance(theirs, str) else theirs
            return Source(tuple(name.replace("{i}", i) + suffix for name in every), forms.get(key, "rows"))
    raise KeyError(f"the family has no name for {ours}")


def to_ours(form: Form, parts: list[Tensor], heads: int) -> list[Tensor]:
    """Their tensors as rows of ours, each a view where it can be."""
    if form == "transposed":
        return [part.t() if part.ndim == 2 else part for part in parts]
    if form == "by head":
        return [part.unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(0, 2) for part in parts]
    return parts


def to_theirs(form: Form, whole: Tensor, sizes: list[int], heads: int) -> list[Tensor]:
    """The inverse of `to_ours`: our tensor as theirs, of these row counts."""
    if form == "transposed":
        whole = whole.t() if whole.ndim == 2 else whole
    if form == "by head":
        whole = whole.unflatten(0, (3, heads, -1)).transpose(0, 1).flatten(0, 2)
    return list(torch.split(whole, sizes)) if len(sizes) > 1 else [whole]
