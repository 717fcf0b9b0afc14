"""The keys of a SentencePiece BPE (Llama 2, Mistral, TinyLlama, Phi-3, Gemma) in GGUF, from a tokenizer.json.

GGUF has scores of tokens, tokenizer.json the merges that were made of them: each way to halve each token, the largest
score first. A score matters only by its order, so the rank of a token's first merge stands for it. That is exact where
the merges are those of some scores, which is checked: all halves of all tokens, and each token's in one run. Tokens of
nothing but spaces share a score in Llama's vocabulary, and are taken to where their merges stand together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ropewalk.checkpoints.errors import BadInput, plain
from ropewalk.checkpoints.tokens.gguf import BYTE, LONGEST_PIECE, NORMAL, SPACE, UNKNOWN, halves

REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
PREPEND = {"type": "Prepend", "prepend": SPACE}
REMEDY = "convert from a GGUF file of this model instead"


def pieces(data: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int], where: str) -> dict[str, Any]:
    """Scores, types and the rest, by their names behind tokenizer.ggml."""
    model = data["model"]
    unknown = model.get("unk_token")
    types = [_kind(token, kind, unknown) for token, kind in zip(tokens, types, strict=True)]
    found = {
        "model": "llama",
        "tokens": list(tokens),
        "token_type": types,
        "scores": _scores([_pair(merge) for merge in model["merges"]], tokens, types, where),
        "add_space_prefix": _prefix(data, where),
    }
    number = model["vocab"].get(unknown, 0)
    # 0 unless the file says otherwise.
    return found | {"unknown_token_id": number} if number else found


def _kind(token: str, kind: int, unknown: str | None) -> int:
    if token == unknown:
        return UNKNOWN
    return BYTE if kind == NORMAL and len(token) == 6 and token.startswith("<0x") and token.endswith(">") else kind


def _pair(merge: str | Sequence[str]) -> tuple[str, str]:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


def _scores(merges: Sequence[tuple[str, str]], tokens: Sequence[str], types: Sequence[int], where: str) -> list[float]:
    numbers = {token: number for number, token in enumerate(tokens)}
    normal = {token for token, kind in zip(tokens, types, strict=True) if kind == NORMAL}
    if (longest := max(map(len, normal), default=0)) > LONGEST_PIECE:
        problem = f"holds a token of {longest:,} characters, {LONGEST_PIECE} is the most"
        raise BadInput(where, "model.vocab", problem, REMEDY)
    known = [(left, right) for left, right in merges if left + right in normal]
    if set(known) != (every := {(left, right) for token in normal for left, right in halves(token, numbers)}):
        odd = sorted(every.symmetric_difference(known))[0]
        said = "is missing" if odd in every else "joins what is not in the vocabulary"
        raise BadInput(where, "model.merges", f"{plain(' '.join(odd), 60)!r} {said}: no scores give these", REMEDY)
    joined = [left + right for left, right in known]
    runs = [token if token.strip(SPACE) else SPACE for token in joined]
    starts, apart = _starts(runs)
    if apart == SPACE:
        starts, apart = _starts(joined)
    if apart is not None:
        problem = f"those of {plain(apart, 60)!r} are not together: no scores give these"
        raise BadInput(where, "model.merges", problem, REMEDY)
    ranks = {token: starts[run] if run in starts else starts[token] for token, run in zip(joined, runs, strict=True)}
    # Tokens that are never made by a merge are never asked for their score.
    return [-float(ranks.get(token, len(known))) for token in tokens]


def _starts(made: Sequence[str]) -> tuple[dict[str, int], str | None]:
    """The first rank of each, and one whose ranks do not follow each other."""
    starts: dict[str, int] = {}
    last = None
    for rank, token in enumerate(made):
        if token != last and token in starts:
            return starts, token
        starts.setdefault(token, rank)
        last = token
    return starts, None


def _prefix(data: Mapping[str, Any], where: str) -> bool:
    """Whether a space is put before a text."""
    normalizer, step = data.get("normalizer"), data.get("pre_tokenizer")
    steps = normalizer["normalizers"] if normalizer and normalizer["type"] == "Sequence" else [normalizer]
    if step is not None and step["type"] == "Metaspace" and normalizer is None:
        if step.get("replacement") == SPACE and not step.get("split", True):
            return step.get("prepend_scheme", "always") != "never"
    # Spaces are replaced before, so that nothing is split at them.
    elif step is None or (step["type"] == "Split" and step["pattern"] == {"String": " "}):
        if steps == [PREPEND, REPLACE]:
            return True
        if steps == [REPLACE]:
            return False
    raise BadInput(where, "normalizer", "treats spaces as no GGUF file can say", REMEDY)
