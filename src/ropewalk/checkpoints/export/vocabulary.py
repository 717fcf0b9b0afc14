"""The vocabulary of a checkpoint in GGUF's keys: copied from a GGUF file, or converted from a tokenizer.json.

From tokenizer.json two kinds are written: byte-level BPE (GPT-2's kind: Llama 3, Qwen, SmolLM, OLMo), whose way to cut
text into words before merging is a name of llama.cpp's, found by the cuts themselves; and SentencePiece BPE (Llama 2,
Mistral, Gemma), whose scores are in no tokenizer.json but follow from its merges where these are a SentencePiece's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ropewalk.checkpoints.errors import BadInput, plain
from ropewalk.checkpoints.export.about import FILE_KEYS, About, from_gguf
from ropewalk.checkpoints.export.about_hf import from_directory, not_copied
from ropewalk.checkpoints.export.sentencepiece import pieces
from ropewalk.checkpoints.files.gguf import GGUF
from ropewalk.checkpoints.tokens import tokenizer
from ropewalk.checkpoints.tokens.gguf import CONTROL, GPT2, NORMAL, UNUSED, USER_DEFINED, WORDS

if TYPE_CHECKING:
    from ropewalk.checkpoints.load.stream import Checkpoint

REMEDY = "byte-level and SentencePiece BPE are written, and what a GGUF file already holds; convert that file instead"
SAMPLES = (
    "The house is wonderful.",
    "  Two spaces,\n\na tab\tand 1234567 digits; don't 'quote' it's I'LL",
    "def f(x):\n    return x ** 2  # caf\u00e9, na\u00efve",
    "\u4f60\u597d\uff0c\u0440\u0443\u0441\u0441\u043a\u0438\u0439 \U0001f642",
    "a".join(" " * spaces for spaces in range(2, 33)),
)
"""Both tokenizers must give the same tokens for these."""


def kept_keys(file: GGUF) -> dict[str, Any]:
    """What goes from one GGUF file into another as it is."""
    kept = ("general.", "tokenizer.")
    return {key: value for key, value in file.metadata.items() if key.startswith(kept) and key not in FILE_KEYS}


def about_of(checkpoint: Checkpoint) -> About:
    if checkpoint.gguf:
        return from_gguf(GGUF(checkpoint.path))
    return from_directory(checkpoint.path, tokenizer.of(checkpoint.path))


def vocabulary(source: Checkpoint) -> dict[str, Any]:
    """The tokenizer's keys, from a directory."""
    where = str(source.path / "tokenizer.json")
    made = tokenizer.of(source.path)
    data = json.loads(made.inner.to_str())
    model = data["model"]
    if model["type"] != "BPE":
        raise BadInput(where, "model.type", f"{plain(model['type'], 40)} is not written as GGUF", REMEDY)
    if any(model.get(key) for key in ("continuing_subword_prefix", "end_of_word_suffix", "dropout")):
        raise BadInput(where, "model", "merges differently from BPE", REMEDY)
    tokens, types = _tokens(model["vocab"], data.get("added_tokens") or [], source, where)
    if not model["merges"]:
        raise BadInput(where, "model.merges", "is empty, and llama.cpp does not load a BPE without merges", REMEDY)
    kind = pieces if model.get("byte_fallback") else _byte_level
    before, after = made.before, made.after
    numbers = {"bos": made.bos, "eos": made.eos}
    # What else ends a generation: of a turn, and of a message.
    numbers |= dict(zip(("eot", "eom"), (stop for stop in made.stops if stop != made.eos), strict=False))
    found = {
        **kind(data, tokens, types, where),
        **{f"{name}_token_id": number for name, number in numbers.items() if number is not None},
        "add_bos_token": bool(before),
        "add_eos_token": bool(after),
    }
    return {f"tokenizer.ggml.{key}": value for key, value in found.items()}


def _byte_level(data: Mapping[str, Any], tokens: list[str], types: list[int], where: str) -> dict[str, Any]:
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in data["model"]["merges"]]
    words = _words(data, data["model"], where)
    return {"model": "gpt2", "pre": words, "tokens": tokens, "token_type": types, "merges": merges}


def _tokens(
    vocab: Mapping[str, int], added: list[dict[str, Any]], source: Checkpoint, where: str
) -> tuple[list[str], list[int]]:
    """One for each row of the token table; rows without a token are named and marked as unused."""
    rows = source.model.config.vocabulary
    numbers = {number: (token, NORMAL) for token, number in vocab.items()}
    for one in added:
        numbers[one["id"]] = (one["content"], CONTROL if one["special"] else USER_DEFINED)
    if numbers and max(numbers) >= rows:
        problem = f"has token {max(numbers):,}, and the model's table has {rows:,} rows"
        raise BadInput(where, "vocab", problem, "is this the model's tokenizer?")
    every = [numbers.get(number, (f"[PAD{number}]", UNUSED)) for number in range(rows)]
    return [token for token, _ in every], [kind for _, kind in every]


def _words(data: Mapping[str, Any], model: Mapping[str, Any], where: str) -> str:
    """llama.cpp's name of the way this tokenizer cuts text."""
    normalizer = data.get("normalizer")
    if normalizer is not None and normalizer["type"] != "NFC":
        raise BadInput(where, "normalizer", f"{normalizer['type']} is not supported by llama.cpp", REMEDY)
    cuts = _cuts(data.get("pre_tokenizer"), where)
    for name, words in WORDS.items():
        if words.cuts == cuts and words.whole_first == bool(model.get("ignore_merges")):
            return name
    said = plain(" then ".join(cuts), 200)
    raise BadInput(
        where,
        "pre_tokenizer",
        f"cuts text by {said}, which is none of the pre-tokenizers of llama.cpp that are known here",
        REMEDY,
    )


def _cuts(step: Any, where: str) -> tuple[str, ...]:
    steps = step["pretokenizers"] if step is not None and step["type"] == "Sequence" else [step]
    found: list[str] = []
    last = steps[-1]
    if last is None or last["type"] != "ByteLevel" or last.get("add_prefix_space"):
        raise BadInput(where, "pre_tokenizer", "does not end in a byte-level step without a prefix space", REMEDY)
    for one in steps[:-1]:
        if one["type"] == "Digits" and one.get("individual_digits"):
            found.append(r"\p{N}")
        elif (
            one["type"] == "Split" and one["behavior"] == "Isolated" and not one["invert"] and "Regex" in one["pattern"]
        ):
            found.append(one["pattern"]["Regex"])
        else:
            raise BadInput(where, "pre_tokenizer", f"{plain(one['type'], 40)} is not supported in GGUF", REMEDY)
    return (*found, GPT2) if last.get("use_regex", True) else tuple(found)


def compare(source: Checkpoint, written: Checkpoint) -> str | None:
    """What was compared, or None where there is no tokenizer; raises a ValueError where they differ."""
    if not source.gguf and not (source.path / "tokenizer.json").is_file():
        return None
    one, two = tokenizer.of(source.path), tokenizer.of(written.path)
    for text in SAMPLES:
        if one.encode(text) != two.encode(text):
            raise ValueError(f"the written tokenizer tokenizes {text[:30]!r} differently from the source's")
    before, after = (f"{made.bos}, {made.eos} and {sorted(made.stops)}" for made in (one, two))
    if before != after:
        room = "GGUF has room for the end of a text and two more stops; change eos_token_id in generation_config.json"
        raise ValueError(f"texts begin, end and stop at tokens {before}, in what was written at {after}: {room}")
    return f"{len(two):,} tokens, {len(SAMPLES)} sample texts tokenize identically"


def compare_about(source: Checkpoint, written: Checkpoint) -> tuple[str | None, tuple[str, ...]]:
    """The other metadata, equal in both, and what of it was left out; raises a ValueError where they differ."""
    if not source.gguf and not written.gguf:
        return None, (*not_copied(source.path), *(["config.json auto_map"] if "auto_map" in source.keys else []))
    before, after = about_of(source), about_of(written)
    if "name" not in before.facts:
        after.facts.pop("name", None)  # the file's or the folder's, in place of none
    if (what := before.differs(after)) is not None:
        raise ValueError(f"the written {what} is not the source's")
    if source.gguf != written.gguf:
        return str(before) or None, before.unsaid
    one, two = GGUF(source.path).metadata, GGUF(written.path).metadata
    for key in kept_keys(GGUF(source.path)).keys() & two.keys():
        if one[key] != two[key]:
            raise ValueError(f"{plain(key)} read back is not the source's")
    return str(before) or None, tuple(key for key in one if key not in two and key not in FILE_KEYS)
