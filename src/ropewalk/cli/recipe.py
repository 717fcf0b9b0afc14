"""The root of a config file."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ropewalk.models.config import TransformerConfig
from ropewalk.settings import Settings


class Recipe(Settings):
    """One run, in sections."""

    model: TransformerConfig = Field(default_factory=TransformerConfig)


def schema() -> dict[str, Any]:
    """JSON Schema of a config file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Recipe.model_json_schema()}
