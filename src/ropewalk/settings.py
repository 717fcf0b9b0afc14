"""What every configurable thing in ropewalk is: a frozen pydantic model that refuses keys it does not know.

Called from Python, its class reads what a config file may say (`norm="rms"` for `norm={"kind": "rms"}`) and answers a
mistake as a config file's is answered: one line a mistake, with what to write. `model_validate` is pydantic's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ropewalk.overrides import expand, problems

T = TypeVar("T")

if TYPE_CHECKING:  # who would take a metaclass's __call__ for the signature of every config
    Answering = BaseModel
    Written: TypeAlias = T | Any
    """Of a field that is a T, and may be written as what stands for one: the name of a kind, a mapping."""
else:

    class _Answers(type(BaseModel)):
        def __call__(cls, /, **settings: Any) -> Any:
            written = expand(settings, cls)
            try:
                return super().__call__(**written)
            except ValidationError as error:
                raise problems(error, cls, cls.__qualname__.removesuffix(".Config"), written) from None

    class Answering(BaseModel, metaclass=_Answers):
        pass

    class Written:
        def __class_getitem__(cls, field: Any) -> Any:
            return field


class Settings(Answering):
    """Base of all configs. A variant has `kind: Literal["..."] = "..."`; fields are described by their docstrings."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    def __repr_name__(self) -> str:
        return type(self).__qualname__

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """The kind and what is not a default: the rest would fill a screen and says nothing of this config."""
        chosen = self.model_dump(exclude_defaults=True).keys() | {"kind"}
        return ((name, value) for name, value in super().__repr_args__() if name in chosen)

    __str__ = BaseModel.__repr__
