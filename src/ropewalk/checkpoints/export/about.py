"""What a checkpoint says besides weights, positions and vocabulary, in one form for directories and GGUF files.

    templates   chat templates by name, `default` without one. They are text that is carried, and never run
    tokens      ids with a use of their own: unk, pad, sep, mask
    facts       licence, names, languages, ..., by GGUF's keys without `general.`
    sampling    defaults for generation, by transformers' names
    unsaid      what one format holds and the other has no place for

An export carries the first four and names the last. about_hf.py is the other half: directories.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ropewalk.checkpoints.errors import BadInput, plain
from ropewalk.checkpoints.files.gguf import GGUF
from ropewalk.checkpoints.load.gguf import SIZES
from ropewalk.checkpoints.tokens.gguf import CONTROL, UNKNOWN, USER_DEFINED

FILE_KEYS = tuple(
    f"general.{key}" for key in ("architecture", "type", "file_type", "quantization_version", "alignment")
)
"""They describe the file, not the model: one that is written has its own."""
TEXTS = (
    *("name", "author", "version", "organization", "finetune", "basename", "description", "quantized_by", "size_label"),
    *("license", "license.name", "license.link", "source.url", "source.doi", "source.uuid", "source.repo_url"),
)
LISTS = ("tags", "languages")
SOURCES = ("base_model", "dataset")
"""Lists of repositories, which GGUF numbers: general.base_model.0.repo_url."""
HUB = "https://huggingface.co/"
IMPLIED = ("repo_url", "name", "organization")
"""Of a repository: what its address says."""
TOKENS = {"unk": "unknown", "pad": "padding", "sep": "seperator", "mask": "mask"}
"""transformers' word to GGUF's, whose spelling it is."""
SAMPLING = {"temperature": "temp", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
VOCABULARY = (
    *("model", "pre", "tokens", "token_type", "scores", "merges", "add_bos_token", "add_eos_token", "add_space_prefix"),
    *(f"{name}_token_id" for name in ("bos", "eos", "eot", "eom")),
)
"""tokenizer.ggml.*: what the tokenizer itself is made from."""
SIZE_KEYS = {*SIZES.values(), "block_count", "context_length", "vocab_size", "attention.value_length"}
POSITION_KEYS = ("rope.", "attention.sliding_window")
SPECIAL = (UNKNOWN, CONTROL, USER_DEFINED)
DEFAULT, TEMPLATE = "default", "tokenizer.chat_template"
NAME = re.compile(r"[\w.-]{1,64}")
"""Of a chat template: it becomes part of a key, and a file's name where transformers saves it."""


@dataclass(frozen=True, kw_only=True)
class About:
    templates: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    sampling: dict[str, float] = field(default_factory=dict)
    unsaid: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = [name for name in self.templates if name != DEFAULT]
        parts = ["chat template"] if DEFAULT in self.templates else []
        parts += [f"chat template{'s' * (len(names) > 1)} {', '.join(names)}"] if names else []
        parts += [", ".join(part) for part in (self.tokens, self.facts, self.sampling) if part]
        return "; ".join(parts)

    def differs(self, other: About) -> str | None:
        """The first thing that the other says otherwise."""
        for part in ("templates", "tokens", "facts", "sampling"):
            one, two = getattr(self, part), getattr(other, part)
            for key in one.keys() | two.keys():
                same = (
                    np.float32(one.get(key, np.nan)) == np.float32(two.get(key, np.nan)) if part == "sampling" else None
                )
                if not (one.get(key) == two.get(key) if same is None else same):
                    return f"{part.removesuffix('s')} {plain(key, 60)}"
        return None

    def to_gguf(self) -> dict[str, Any]:
        keys: dict[str, Any] = {}
        for name, fact in self.facts.items():
            keys |= dict(_numbered(name, fact)) if name in SOURCES else {f"general.{name}": fact}
        keys |= {f"general.sampling.{SAMPLING[name]}": value for name, value in self.sampling.items()}
        keys |= {f"tokenizer.ggml.{TOKENS[name]}_token_id": number for name, number in self.tokens.items()}
        if named := [name for name in self.templates if name != DEFAULT]:
            keys[f"{TEMPLATE}s"] = named
        return keys | {
            TEMPLATE if name == DEFAULT else f"{TEMPLATE}.{name}": text for name, text in self.templates.items()
        }


def _numbered(name: str, addresses: list[str]) -> Iterator[tuple[str, Any]]:
    yield f"general.{name}.count", len(addresses)
    for number, address in enumerate(addresses):
        owner, _, last = address.rpartition("/")
        whole = "://" in address
        said = {"name": last, "organization": "" if whole else owner, "repo_url": address if whole else HUB + address}
        yield from ((f"general.{name}.{number}.{key}", value) for key, value in said.items() if value)


def from_gguf(file: GGUF) -> About:
    """What a GGUF file says; `unsaid` is what a model directory has no place for."""
    said, where = file.metadata, str(file.path)
    arch = said.get("general.architecture")
    facts: dict[str, Any] = {}
    sampling: dict[str, float] = {}
    templates, tokens, unsaid = _templates(said, where), *_tokens(said, where)
    unsaid += [
        key for key in said if key.startswith(f"{TEMPLATE}.") and key.removeprefix(f"{TEMPLATE}.") not in templates
    ]
    for name in SOURCES:
        addresses, rest = _addresses(said, name)
        facts |= {name: addresses} if addresses else {}
        unsaid += rest
    for key, value in said.items():
        layer, _, name = key.partition(".")
        if (
            key in FILE_KEYS
            or value in ("", [])
            or key.startswith((TEMPLATE, *(f"general.{source}." for source in SOURCES)))
        ):
            continue
        if layer == "general" and (isinstance(value, str) if name in TEXTS else name in LISTS and _texts(value)):
            facts[name] = value
        elif (ours := next((o for o, g in SAMPLING.items() if name == f"sampling.{g}"), None)) and is_number(value):
            sampling[ours] = int(value) if ours == "top_k" else float(str(np.float32(value)))
        elif layer == arch and (name in SIZE_KEYS or name.startswith(POSITION_KEYS)):
            continue  # sizes and positions, which the config states
        elif key.removeprefix("tokenizer.ggml.") not in (
            *VOCABULARY,
            *(f"{gguf}_token_id" for gguf in TOKENS.values()),
        ):
            unsaid.append(key)
    return About(templates=templates, tokens=tokens, facts=facts, sampling=sampling, unsaid=tuple(unsaid))


def _texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _templates(said: Mapping[str, Any], where: str) -> dict[str, str]:
    found = {key.removeprefix(TEMPLATE).removeprefix(".") or DEFAULT: key for key in said if key.startswith(TEMPLATE)}
    found.pop("s", None)  # tokenizer.chat_templates, the list of the names
    for key in found.values():
        if not isinstance(said[key], str):
            raise BadInput(where, key, f"is {plain(said[key], 60)!r}, not a text", "convert the model to GGUF again")
    return {name: said[key] for name, key in found.items() if NAME.fullmatch(name)}


def _tokens(said: Mapping[str, Any], where: str) -> tuple[dict[str, int], list[str]]:
    """By name; one that is ordinary text cannot be special in transformers, which would cut texts there."""
    tokens, unsaid = {}, []
    types = said.get("tokenizer.ggml.token_type") or []
    for name, theirs in TOKENS.items():
        key = f"tokenizer.ggml.{theirs}_token_id"
        number = said.get(key)
        if number is None:
            continue
        if type(number) is not int or not 0 <= number < len(said.get("tokenizer.ggml.tokens") or []):
            raise BadInput(where, key, f"is {plain(number, 60)}, no token of the vocabulary", "convert the model again")
        ordinary = number >= len(types) or types[number] not in SPECIAL
        if ordinary:
            unsaid.append(f"{key} as a special token ({number} is an ordinary token)")
        if not ordinary or name == "pad":  # config.json has a place for the number of this one
            tokens[name] = number
    return tokens, unsaid


def _addresses(said: Mapping[str, Any], name: str) -> tuple[list[str], list[str]]:
    """Repositories by number, and the keys of those that have no address, or say more than it."""
    prefix = f"general.{name}."
    entries: dict[str, dict[str, Any]] = {}
    for key in said:
        if key.startswith(prefix) and key != f"{prefix}count":
            number, _, part = key.removeprefix(prefix).partition(".")
            entries.setdefault(number, {})[part] = said[key]
    found, rest = [], []
    for number, entry in entries.items():
        address = entry.get("repo_url")
        if isinstance(address, str):
            found.append(address.removeprefix(HUB))
        rest += [f"{prefix}{number}.{p}" for p in entry if not (isinstance(address, str) and p in IMPLIED)]
    return found, rest
