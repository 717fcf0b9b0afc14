"""The lengths that one key is used for: trained, extended, merely stated, and the end of a table.

`max_position_embeddings` alone is what somebody stated: 1,024,000 on Mistral Nemo, trained at 128k; 40,960 on Qwen3,
trained at 32,768 with room for an answer.
"""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.resolve.keys import Keys
from ropewalk.scaling import Dynamic, Linear, Llama3, LongRoPE, Scaling, YaRN


def lengths(
    keys: Keys,
    known: Architecture,
    scaling: Scaling | None,
    sources: dict[str, str],
    longest: int | None,
    notes: list[str],
) -> dict[str, Any]:
    """`trained`, `stated`, `extended` and `sources` of a plan whose layers rotate."""
    at = keys.source(known.longest_key)
    stated = keys.data.get("original_max_position_embeddings")
    if stated not in (None, longest) and getattr(scaling, "trained", None) is None:
        notes.append(f"original_max_position_embeddings {stated} is ignored here: no scaling reads it")
    if scaling is None or not isinstance(scaling, YaRN | Llama3 | LongRoPE | Dynamic | Linear):
        return _said(stated=longest, at=at)
    if isinstance(scaling, Dynamic):
        return _said(trained=scaling.trained, trained_at=at)
    if isinstance(scaling, Linear):
        return _linear(keys, known, scaling, longest, at, notes)
    trained, trained_at = scaling.trained, sources.get("trained", at)
    extended, extended_at = longest, at
    if isinstance(scaling, YaRN):
        extended = round(scaling.factor * trained)
        extended_at = f"{sources.get('factor', '')} x trained" if extended != longest else at
        if longest is not None and longest not in (trained, extended):
            notes.append(
                f"{known.longest_key} {longest:,} is neither the trained length {trained:,} nor {scaling.factor:g} "
                f"times it, {extended:,}; engines use it as the maximum length"
            )
    elif isinstance(scaling, LongRoPE) and (longest is None or longest <= trained) and scaling.factor is not None:
        extended, extended_at = round(scaling.factor * trained), f"{sources.get('factor', '')} x trained"
    elif isinstance(scaling, Llama3) and longest is not None and longest <= trained:
        # Llama 3.1's factor is not the ratio of its lengths, so nothing else says how far it reaches.
        extended = None
    return _said(trained=trained, trained_at=trained_at, extended=extended, extended_at=extended_at)


def _linear(
    keys: Keys, known: Architecture, scaling: Linear, longest: int | None, at: str, notes: list[str]
) -> dict[str, Any]:
    if longest is None or scaling.factor == 1:
        return _said(stated=longest, at=at)
    if known.states_extended:
        return _said(extended=longest, extended_at=at)
    stated = keys.stated("max_sequence_length")
    if stated == round(longest * scaling.factor):
        said_at = keys.source("max_sequence_length")
        return _said(trained=longest, trained_at=at, extended=stated, extended_at=said_at)
    before, after = round(longest / scaling.factor), round(longest * scaling.factor)
    notes.append(
        f"max_position_embeddings {longest:,} with linear x{scaling.factor:g} may be the length before scaling (then "
        f"{after:,} after it) or after (then {before:,} before); published configs do both, so neither is assumed"
    )
    return _said(stated=longest, at=at)


def _said(
    *,
    trained: int | None = None,
    stated: int | None = None,
    extended: int | None = None,
    trained_at: str = "",
    at: str = "",
    extended_at: str = "",
) -> dict[str, Any]:
    found = {"trained": (trained, trained_at), "stated": (stated, at), "extended": (extended, extended_at)}
    kept = {name: pair for name, pair in found.items() if pair[0] is not None}
    return {
        **{name: value for name, (value, _) in kept.items()},
        "sources": tuple((name, source) for name, (_, source) in kept.items()),
    }
