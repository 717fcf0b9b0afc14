"""The rows of a census as Parquet, a part at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

TEXT = ("name", "state", "key", "etag", "rules", "model_type", "stack", "field", "why")
WHOLE = ("layers", "trained", "stated", "extended", "table")
TEXTS = ("kinds", "scalings", "layouts", "loading", "at_odds", "departs", "not_compared", "not_understood")
WHOLES = ("rotary_widths", "head_widths", "windows")
NUMBERS = ("bases", "factors")
PART = 10_000


def write_parquet(rows: Iterable[Mapping[str, Any]], file: Path) -> None:
    """Needs pyarrow. The file is whole or not there."""
    import pyarrow
    from pyarrow import parquet

    kinds = {
        **dict.fromkeys(TEXT, pyarrow.string()),
        **dict.fromkeys(WHOLE, pyarrow.int64()),
        "rotates": pyarrow.bool_(),
        **dict.fromkeys(TEXTS, pyarrow.list_(pyarrow.string())),
        **dict.fromkeys(WHOLES, pyarrow.list_(pyarrow.int64())),
        **dict.fromkeys(NUMBERS, pyarrow.list_(pyarrow.float64())),
    }
    schema = pyarrow.schema(list(kinds.items()))
    partial = file.with_suffix(".part")
    every = iter(rows)
    with parquet.ParquetWriter(partial, schema) as writer:
        while some := list(islice(every, PART)):
            writer.write_table(pyarrow.Table.from_pylist(some, schema=schema))
    os.replace(partial, file)
