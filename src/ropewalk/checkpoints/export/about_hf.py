"""What a model directory says besides weights, positions and vocabulary, read and written: see about.py.

Templates are in chat_template.jinja and additional_chat_templates/*.jinja, or else in tokenizer_config.json, as
transformers reads them. Facts are in the front matter of README.md, under the hub's keys and those that llama.cpp's
converter reads. Values are strings whatever YAML takes them for: `no` is a language.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ropewalk.checkpoints.errors import BadInput, few, plain
from ropewalk.checkpoints.export.about import DEFAULT, LISTS, NAME, SAMPLING, SOURCES, TEXTS, TOKENS, About, is_number
from ropewalk.checkpoints.files.strict_json import MOST_BYTES, read_bytes, read_json
from ropewalk.checkpoints.files.weights import INDEX, refuse_outside
from ropewalk.checkpoints.tokens.tokenizer import Tokenizer

CARD = "README.md"
CONVERTED = "Converted from GGUF by `ropewalk export`; the keys above are the file's own."
MORE_TEMPLATES = "additional_chat_templates"
COPIED = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.model"),
    *("spiece.model", "vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja", "chat_template.json"),
    *("generation_config.json", CARD, "LICENSE", "LICENSE.md", "LICENSE.txt", "NOTICE", "NOTICE.txt"),
)
LEGAL = ("LICENSE", "NOTICE")
"""Files of a directory that are copied into another as they are; none of them is a program."""
MOST_TEMPLATES = 64
MOST_FRONT, MOST_BRACKETS = 64 << 10, 500
"""Of one key's value in a model card, in characters; PyYAML takes seconds for 5,000 brackets."""
MOST_NAMED = 12
TOP_KEY = re.compile(r"^((\w[\w-]*):(?:.*)(?:\n(?:[ -].*)?(?=\n|$))*)", re.MULTILINE)
"""A key of the front matter with the lines that belong to it."""
CARD_KEYS = {
    "license.name": "license_name",
    "license.link": "license_link",
    "languages": "language",
    "dataset": "datasets",
}
PLAIN_KEYS = ("license", "quantized_by", "tags", "base_model")
"""The hub's own words. All others have `model_` before them, as llama.cpp's converter reads them."""
SPELLED = {
    name: CARD_KEYS.get(name, name if name in PLAIN_KEYS else f"model_{name.removeprefix('source.')}")
    for name in (*TEXTS, *LISTS, *SOURCES)
}
TOKENIZER_KEYS = {
    *(
        "tokenizer_class",
        "add_bos_token",
        "add_eos_token",
        "bos_token",
        "eos_token",
        "chat_template",
        "model_max_length",
    ),
    *(
        "added_tokens_decoder",
        "additional_special_tokens",
        "extra_special_tokens",
        "add_prefix_space",
        "tokenizer_file",
    ),
    *(
        "name_or_path",
        "special_tokens_map_file",
        "backend",
        "is_local",
        "use_fast",
        *(f"{t}_token" for t in (*TOKENS, "cls")),
    ),
}
"""Of tokenizer_config.json: what is carried, is in tokenizer.json too, or says where the file came from."""
GENERATION_KEYS = {
    *("bos_token_id", "eos_token_id", "pad_token_id", "do_sample", "transformers_version", "_from_model_config"),
    *("use_cache", "output_attentions", "output_hidden_states"),
}


def copied(directory: Path) -> list[str]:
    """Names of the files that go into another directory as they are."""
    return [*(name for name in COPIED if (directory / name).exists()), *_more_templates(directory)]


def not_copied(directory: Path) -> list[str]:
    """What else lies there, weights and their index aside."""
    kept = {*copied(directory), "config.json", INDEX, MORE_TEMPLATES}
    there = [path for path in sorted(directory.iterdir()) if path.name not in kept and not path.name.startswith(".")]
    return [path.name + "/" * path.is_dir() for path in there if path.suffix != ".safetensors"]


def read_copied(directory: Path, name: str, most: int = MOST_BYTES) -> bytes:
    """A link out of the directory would carry any file of this machine into what is given away."""
    refuse_outside(directory / name, (directory / name).parent, directory, name)
    return read_bytes(directory / name, most)


def from_directory(directory: Path, made: Tokenizer) -> About:
    """What a directory says; `unsaid` is what GGUF has no place for."""
    words, generation, config = (
        _json(directory, name) for name in ("tokenizer_config.json", "generation_config.json", "config.json")
    )
    templates, unsaid = _templates(directory, words)
    tokens, rest = _tokens(directory, words, config, made)
    unsaid += [*rest, *_of_texts(made)]
    unsaid += [f"tokenizer_config.json {key}" for key, said in words.items() if key not in TOKENIZER_KEYS and said]
    sampled = generation.get("do_sample") is True
    sampling = {key: generation[key] for key in SAMPLING if sampled and is_number(generation.get(key))}
    unsaid += [f"generation_config.json {key}" for key in generation if key not in {*GENERATION_KEYS, *sampling}]
    facts, rest = _facts(directory)
    unsaid += rest
    unsaid += [name for name in copied(directory) if name.startswith(LEGAL)]
    unsaid += not_copied(directory)
    return About(templates=templates, tokens=tokens, facts=facts, sampling=sampling, unsaid=tuple(unsaid))


def to_words(about: About, made: Tokenizer) -> dict[str, Any]:
    """Keys of tokenizer_config.json. Padding by an ordinary token is left to config.json."""
    special = made.inner.get_added_tokens_decoder()
    named = {f"{name}_token": made.token(number) for name, number in about.tokens.items() if number in special}
    if list(about.templates) == [DEFAULT]:
        return {**named, "chat_template": about.templates[DEFAULT]}
    several = [{"name": name, "template": text} for name, text in about.templates.items()]
    return {**named, **({"chat_template": several} if several else {})}


def to_generation(about: About) -> dict[str, Any]:
    """Keys of generation_config.json."""
    sampling = {"do_sample": True, **about.sampling} if about.sampling else {}
    return {**({"pad_token_id": about.tokens["pad"]} if "pad" in about.tokens else {}), **sampling}


def card(about: About, said: str = CONVERTED) -> str | None:
    """README.md: the facts, and one sentence on where the model is from."""
    if not about.facts:
        return None
    front = {SPELLED[name]: fact for name, fact in about.facts.items()}
    # PyYAML writes some line ends of Unicode as they are, and reads them as spaces.
    readable = all(
        text.isprintable() for fact in front.values() for text in ([fact] if isinstance(fact, str) else fact)
    )
    text = yaml.safe_dump(front, sort_keys=False, allow_unicode=readable)
    title = plain(about.facts.get("name", "Model"))
    return f"---\n{text}---\n\n# {title}\n\n{said}\n"


def _json(directory: Path, name: str) -> dict[str, Any]:
    if not (directory / name).exists():
        return {}
    refuse_outside(directory / name, directory, directory, name)
    return read_json(directory / name)


def _more_templates(directory: Path) -> list[str]:
    found = sorted((directory / MORE_TEMPLATES).glob("*.jinja"))
    if len(found) > MOST_TEMPLATES:
        raise BadInput(directory, MORE_TEMPLATES, f"holds {len(found)} templates, {MOST_TEMPLATES} is the most")
    return [f"{MORE_TEMPLATES}/{path.name}" for path in found]


def _templates(directory: Path, words: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Files win over tokenizer_config.json, which wins over the chat_template.json of processors."""
    files = ["chat_template.jinja"] * (directory / "chat_template.jinja").exists() + _more_templates(directory)
    told = {DEFAULT if name == "chat_template.jinja" else Path(name).stem: name for name in files}
    found = {name: _text(directory, file) for name, file in told.items()}
    others = {
        "tokenizer_config.json": _listed(words.get("chat_template"), directory / "tokenizer_config.json"),
        "chat_template.json": _listed(
            _json(directory, "chat_template.json").get("chat_template"), directory / "chat_template.json"
        ),
    }
    unsaid = []
    for file, other in others.items():
        if found and other and other != found:
            unsaid.append(f"{file} chat_template (another one takes precedence)")
        found = found or other
    unsaid += [f"chat template {plain(name, 60)!r}" for name in found if not NAME.fullmatch(name)]
    return {name: text for name, text in found.items() if NAME.fullmatch(name)}, unsaid


def _listed(said: Any, where: Path) -> dict[str, str]:
    """One template, or several with names: as an object, or as a list of objects."""
    if isinstance(said, list) and all(isinstance(one, dict) for one in said):
        said = {one.get("name"): one.get("template") for one in said}
    found = {} if said is None else said if isinstance(said, dict) else {DEFAULT: said}
    if not all(isinstance(name, str) and isinstance(text, str) for name, text in found.items()):
        raise BadInput(where, "chat_template", "is neither a text nor texts with names", "correct it, or remove it")
    return found


def _text(directory: Path, name: str) -> str:
    """With line ends as Python, and so transformers, reads them."""
    try:
        return read_copied(directory, name).decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise BadInput(directory, name, "is not UTF-8", "save the file as UTF-8") from None


def _tokens(
    directory: Path, words: Mapping[str, Any], config: Mapping[str, Any], made: Tokenizer
) -> tuple[dict[str, int], list[str]]:
    tokens, unsaid = {}, []
    more = _json(directory, "special_tokens_map.json")
    for name in (*TOKENS, "cls"):
        said = words.get(f"{name}_token", more.get(f"{name}_token"))
        said = said.get("content") if isinstance(said, Mapping) else said
        number = made.inner.token_to_id(said) if isinstance(said, str) else config.get(f"{name}_token_id")
        if name in TOKENS and type(number) is int and 0 <= number < len(made):
            tokens[name] = number
        elif (said is not None or number is not None) and (name in TOKENS or number != made.bos):
            why = "" if name == "cls" else " (no token of the vocabulary)"
            unsaid.append(f"{name}_token {plain(said if number is None else number, 60)}{why}")
    return tokens, unsaid


def _of_texts(made: Tokenizer) -> list[str]:
    """What the tokenizer does to texts and llama.cpp does not: compose characters, and take spaces with a token."""
    found = ["tokenizer.json normalizer NFC"] if type(made.inner.normalizer).__name__ == "NFC" else []
    added = made.inner.get_added_tokens_decoder().values()
    taking = [plain(one.content, 60) for one in added if one.lstrip or one.rstrip or one.single_word]
    return found + ([f"tokenizer.json lstrip, rstrip or single_word of {few(taking)}"] if taking else [])


def _facts(directory: Path) -> tuple[dict[str, Any], list[str]]:
    """From the front matter of the model card; and what of the card has no place in GGUF."""
    if not (directory / CARD).exists():
        return {}, []
    text = _text(directory, CARD)
    front, _, body = text[4:].partition("\n---") if text.startswith("---\n") else ("", "", text)
    # Each key by itself, and only those that are wanted: cards hold pages of results, and YAML can be made slow.
    blocks = {name: whole for whole, name in TOP_KEY.findall(front)}
    facts = {}
    for name, key in SPELLED.items():
        if (value := _value(blocks.get(key, ""), listed=name not in TEXTS)) is not None:
            facts[name] = value
    rest = [key for key in blocks if key not in {SPELLED[name] for name in facts}]
    more = [f"and {len(rest) - MOST_NAMED} more"] if len(rest) > MOST_NAMED else []
    unsaid = [f"{CARD} {' '.join([*(plain(key, 40) for key in rest[:MOST_NAMED]), *more])}"] if rest else []
    return facts, [*unsaid, *([f"the text of {CARD}"] if body.strip() or not blocks else [])]


def _value(block: str, *, listed: bool) -> str | list[str] | None:
    """A text or texts, as strings whatever they look like; None for anything else."""
    if len(block) > MOST_FRONT or block.count("[") + block.count("{") > MOST_BRACKETS:
        return None
    try:
        ((_, said),) = yaml.load(block, yaml.BaseLoader).items()  # noqa: S506 - makes strings alone
    except (yaml.YAMLError, RecursionError, ValueError, TypeError, AttributeError):
        return None
    several = [said] if isinstance(said, str) else said
    if not isinstance(several, list) or not several or not all(isinstance(one, str) and one for one in several):
        return None
    return several if listed else said if isinstance(said, str) else None
