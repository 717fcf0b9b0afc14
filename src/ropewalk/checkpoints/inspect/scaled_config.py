"""A config.json with another scaling, in the spelling that most engines read as it is meant.

Which keys are taken is decided by reading them back with the rules of each engine; an engine that would compute
something else is named.
"""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.engines import transformers4, transformers5, vllm
from ropewalk.checkpoints.engines.base import Reading
from ropewalk.checkpoints.engines.facts import Facts
from ropewalk.checkpoints.inspect.changes import Config, Wanted
from ropewalk.checkpoints.resolve.hf import resolve
from ropewalk.checkpoints.resolve.part import find_part

IN_DIRECTORIES = {"transformers 5": transformers5, "transformers 4": transformers4, "vLLM": vllm}


def scaled_config(wanted: Wanted) -> tuple[dict[str, Any], dict[str, str | None]]:
    """The config with the keys that most engines read as meant; and by engine, why not, or None."""
    resolved = wanted.resolved
    config = Config(Facts(resolved), find_part(resolved.config, resolved.where), wanted)
    tried = [_without_nulls(config.changed(changes)) for changes in (config.old(), config.new())]
    unread = {} if config.unread is None else dict.fromkeys(("transformers 5", "transformers 4"), config.unread)
    read_by = [
        {name: unread.get(name) or short_of(wanted, one, engine) for name, engine in IN_DIRECTORIES.items()}
        for one in tried
    ]
    # The older keys first: where every engine reads them, any version of any of them will.
    best = max(range(len(tried)), key=lambda one: sum(why is None for why in read_by[one].values()))
    return tried[best], read_by[best]


def short_of(wanted: Wanted, config: dict[str, Any], engine: Any) -> str | None:
    """What an engine would make of a config in place of what is wanted; None: just that."""
    try:
        found = engine.read(resolve(config, where=wanted.resolved.where, strict=False))
    except ValueError as error:
        return str(error)
    return too_short(found, wanted) or wanted.short_of(found)


def too_short(found: Reading, wanted: Wanted) -> str | None:
    if found.length is not None and found.length < wanted.to:
        return f"it would end texts at {found.length:,} tokens"
    return None


def _without_nulls(config: dict[str, Any]) -> dict[str, Any]:
    """The two names of RoPE's parameters: null where the other stands, which is the same as absent."""
    return {
        key: value
        for key, value in config.items()
        if value is not None or key not in ("rope_scaling", "rope_parameters")
    }
