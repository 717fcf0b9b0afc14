"""Every change of one place of a line of Python: operators, numbers, conditions, twins such as min and max.

None in messages, annotations, docstrings, representations, and in what chooses between ways of computing the same:
`why_not`, `memory`, `bias_bytes`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SWAPS: dict[type[ast.AST], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in", ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*",
    ast.FloorDiv: "*", ast.Mod: "*", ast.Pow: "*", ast.And: "or", ast.Or: "and", ast.BitAnd: "|", ast.BitOr: "&",
    ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip
TWINS = {
    "min": "max",
    "amin": "amax",
    "minimum": "maximum",
    "cos": "sin",
    "any": "all",
    "floor": "ceil",
    "zeros": "ones",
}
TWINS |= {other: one for one, other in TWINS.items()}


class Mutant(NamedTuple):
    file: str
    """Below src/ropewalk."""
    line: int
    before: str
    after: str

    @property
    def key(self) -> str:
        return f"{self.file}: {self.before} -> {self.after}"


def mutants(file: Path, name: str) -> Iterator[Mutant]:
    """Of the file of this name below src/ropewalk; not all of them are Python (`is_python`)."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    for node, start, end, new in _changes(ast.parse(text), lines):
        if node.lineno == node.end_lineno:
            before = lines[node.lineno - 1]
            yield Mutant(name, node.lineno, before.strip(), (before[:start] + new + before[end:]).strip())


def is_python(mutant: Mutant, file: Path) -> bool:
    lines = file.read_text(encoding="utf-8").splitlines()
    old = lines[mutant.line - 1]
    lines[mutant.line - 1] = old[: len(old) - len(old.lstrip())] + mutant.after
    try:
        ast.parse("\n".join(lines))
    except SyntaxError:
        return False
    return True


def _changes(tree: ast.AST, lines: list[str]) -> Iterator[tuple[Any, int, int, str]]:
    for node in _code(tree):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, bool):
                yield node, node.col_offset, node.end_col_offset or 0, str(not node.value)
            elif isinstance(node.value, int):
                yield node, node.col_offset, node.end_col_offset or 0, str(node.value + 1)
            elif isinstance(node.value, float):
                yield node, node.col_offset, node.end_col_offset or 0, repr(node.value * 1.25 + 0.01)
        elif isinstance(node, ast.BinOp | ast.Compare | ast.BoolOp):
            pairs = {
                ast.BinOp: lambda n: [(n.left, n.op, n.right)],
                ast.Compare: lambda n: zip([n.left, *n.comparators], n.ops, n.comparators),  # noqa: B905
                ast.BoolOp: lambda n: [(a, n.op, b) for a, b in zip(n.values, n.values[1:])],  # noqa: B905
            }[type(node)](node)
            for left, op, right in pairs:
                if type(op) in SWAPS and left.end_lineno == right.lineno == node.lineno == node.end_lineno:
                    between = lines[node.lineno - 1][left.end_col_offset : right.col_offset]
                    symbol = between.strip("() ")
                    if symbol and symbol in between:
                        at = left.end_col_offset + between.index(symbol)
                        yield node, at, at + len(symbol), SWAPS[type(op)]
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
            yield node, node.col_offset, node.operand.col_offset, ""
        elif isinstance(node, ast.Name | ast.Attribute):
            word = node.id if isinstance(node, ast.Name) else node.attr
            if word in TWINS and node.end_col_offset:
                yield node, node.end_col_offset - len(word), node.end_col_offset, TWINS[word]
        elif isinstance(node, ast.If | ast.IfExp) and node.test.lineno == node.test.end_lineno:
            test = node.test
            yield test, test.col_offset, test.end_col_offset or 0, f"(not ({ast.unparse(test)}))"


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """What is computed: no messages, annotations, defaults of pydantic's Field descriptions or representations."""
    if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr):
        return
    if isinstance(node, ast.FunctionDef) and node.name in {
        "__repr__",
        "extra_repr",
        "__str__",
        "why_not",
        "memory",
        "bias_bytes",
    }:
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    yield node
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "decorator_list", "type_params"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _code(child)
