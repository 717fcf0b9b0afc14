"""YAML by the rules of version 1.2, as files and the command line are read and as configs are written.

1e-3 is a number, `no` and 12:30 are words, a key stands once. What could take a reader forever is refused: aliases of
aliases, merges, deep nesting.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from types import NoneType
from typing import Any

import yaml

MOST_VALUES = 100_000
"""Aliases can make a small file describe an endless one."""
DEEPEST = 64
TOO_DEEP = f"nested deeper than {DEEPEST} levels"


class _Loader(yaml.SafeLoader):
    """YAML 1.2's plain values, keys that are words, and no key twice."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError(TOO_DEEP)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_whole(self, node: yaml.ScalarNode) -> int:
        text = str(self.construct_scalar(node))
        return int(text, 0) if text.startswith(("0x", "0o")) else int(text.replace("_", ""))

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            text = dotted((key_node.value,)) if isinstance(key_node, yaml.ScalarNode) else "that is a list or a mapping"
            fault = None
            if key_node.tag == "tag:yaml.org,2002:merge":
                # Merges of merges make a short file take forever, as aliases of aliases do.
                fault = "<< is not supported; write the keys out"
            elif key_node.tag != "tag:yaml.org,2002:str":
                fault = f"the key {text} is no word"
            elif key_node.value in seen:
                fault = f"the key {text} is there twice"
            if fault:
                raise yaml.MarkedYAMLError(problem=fault, problem_mark=key_node.start_mark)
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Block mappings, lists on one line; a text that either version of YAML would read as something else is quoted."""

    def represent_list(self, data: Iterable[Any]) -> yaml.SequenceNode:
        flow = not any(isinstance(value, (dict, list)) for value in data)
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=flow)

    def represent_str(self, data: str) -> yaml.ScalarNode:
        # Left to itself, PyYAML writes some line breaks of Unicode in a way that reads back as spaces.
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=None if data.isprintable() else '"')

    def ignore_aliases(self, data: Any) -> bool:
        return True


_PLAIN = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9][0-9_]*|0x[0-9a-fA-F]+|0o[0-7]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
)
for _name, _pattern, _first in _PLAIN:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), list(_first))
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile("^<<$"), ["<"])
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_whole)
_Dumper.add_representer(list, _Dumper.represent_list)
_Dumper.add_representer(str, _Dumper.represent_str)


def parse(text: str) -> Any:
    """The value of a YAML text, made of dicts, lists, texts, numbers, booleans and None."""
    try:
        data = _Loader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"{where}{error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"no YAML: {str(error).splitlines()[0]}") from None
    _check(data)
    return data


def _check(data: Any) -> None:
    waiting, seen = [(data, 0)], 0
    while waiting:
        value, depth = waiting.pop()
        seen += 1
        if depth > DEEPEST:
            raise ValueError(TOO_DEEP)
        if seen > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES:,} values; a config is a small YAML file")
        if not isinstance(value, (dict, list, str, int, float, NoneType)):
            raise ValueError(f"{short(value)} is a {type(value).__name__}, which no config has")
        below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        waiting.extend((item, depth + 1) for item in below)


def to_yaml(data: Any) -> str:
    """What `parse` reads back as the same."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def dotted(path: Sequence[str | int]) -> str:
    """A key as it is written, model.encoding.base."""
    # Control characters in a file must not reach the terminal.
    return ".".join(str(step) if str(step).isprintable() else repr(step) for step in path)


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
