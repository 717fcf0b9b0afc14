"""The three lengths that one key is used for: trained, extended, and the end of a table."""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.architectures import Architecture
from ropewalk.checkpoints.resolve_keys import Keys
from ropewalk.scaling import Dynamic, Linear, Llama3, LongRoPE, Scaling, YaRN


def lengths(
    keys: Keys,
    known: Architecture,
    scaling: Scaling | None,
    sources: dict[str, str],
    longest: int | None,
    notes: list[str],
) -> dict[str, Any]:
    """`trained`, `extended` and `sources` of a plan whose layers rotate."""
    at = keys.source(known.longest_key)
    stated = keys.data.get("original_max_position_embeddings")
    if stated not in (None, longest) and getattr(scaling, "trained", None) is None:
        notes.append(f"original_max_position_embeddings {stated} means nothing here: no scaling reads it")
    if scaling is None or not isinstance(scaling, YaRN | Llama3 | LongRoPE | Dynamic | Linear):
        return _said(longest, None, {"trained": at})
    if isinstance(scaling, Dynamic):
        return _said(scaling.trained, None, {"trained": at})
    if isinstance(scaling, Linear):
        return _linear(keys, scaling, longest, at, notes)
    trained, trained_at = scaling.trained, sources.get("trained", at)
    extended, extended_at = longest, at
    if isinstance(scaling, YaRN):
        extended = round(scaling.factor * trained)
        extended_at = f"{sources.get('factor', '')} x trained" if extended != longest else at
        if longest is not None and longest not in (trained, extended):
            notes.append(
                f"{known.longest_key} {longest:,} is neither the trained length {trained:,} nor {scaling.factor:g} "
                f"times it, {extended:,}; engines take it for the end"
            )
    elif isinstance(scaling, LongRoPE) and (longest is None or longest <= trained) and scaling.factor is not None:
        extended, extended_at = round(scaling.factor * trained), f"{sources.get('factor', '')} x trained"
    elif isinstance(scaling, Llama3) and longest is not None and longest <= trained:
        # Llama 3.1's factor is not the ratio of its lengths, so nothing else says how far it reaches.
        extended = None
    return _said(trained, extended, {"trained": trained_at, "extended": extended_at})


def _linear(keys: Keys, scaling: Linear, longest: int | None, at: str, notes: list[str]) -> dict[str, Any]:
    if longest is None or scaling.factor == 1:
        return _said(longest, None, {"trained": at})
    if keys.owner in ("gemma3_text", "gemma3n_text"):
        # Google states the extended length; the trained one, 32k by its report, is in no config.
        return _said(None, longest, {"extended": at})
    stated = keys.stated("max_sequence_length")
    if stated == round(longest * scaling.factor):
        return _said(longest, stated, {"trained": at, "extended": keys.source("max_sequence_length")})
    before, after = round(longest / scaling.factor), round(longest * scaling.factor)
    notes.append(
        f"max_position_embeddings {longest:,} with linear x{scaling.factor:g} may be the length before scaling (then "
        f"{after:,} after it) or after (then {before:,} before); published configs do both, so neither is taken"
    )
    return _said(None, None, {})


def _said(trained: int | None, extended: int | None, sources: dict[str, str]) -> dict[str, Any]:
    values = {"trained": trained, "extended": extended}
    kept = tuple((name, source) for name, source in sources.items() if values.get(name) is not None)
    return {**values, "sources": kept}
