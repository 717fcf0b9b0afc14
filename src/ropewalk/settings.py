"""What every configurable thing in ropewalk is: a frozen pydantic model that refuses keys it does not know."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Base of all configs. A variant has `kind: Literal["..."] = "..."`; fields are described by their docstrings."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
