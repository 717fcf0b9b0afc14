"""One row an architecture: each model type once, and no code that asks for one by its name."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

import ropewalk.checkpoints
from ropewalk.checkpoints import families
from ropewalk.checkpoints.architectures import table
from ropewalk.checkpoints.architectures.rows import gemma, latent, llama, qwen, rotating, several_parts, still

SOURCE = Path(ropewalk.checkpoints.__file__).parent
NAMED = ("model_type", "owner", "arch", "architecture")
"""How code calls a model type, alone or at the end of a name."""


def literal_comparisons(root: Path) -> list[str]:
    """Each place where code compares a model type with a name that is written out."""
    found = []
    for file in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            sides: list[ast.expr] = []
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
            elif isinstance(node, ast.Match):
                values = [case.pattern.value for case in node.cases if isinstance(case.pattern, ast.MatchValue)]
                sides = [node.subject, *values]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                asks = node.func.attr in ("startswith", "endswith")
                sides = [node.func.value, *node.args] if asks else []
            if any(map(is_model_type, sides)) and any(map(is_text, sides)):
                found.append(f"{file.relative_to(root)}:{node.lineno}: {ast.unparse(node).splitlines()[0]}")
    return found


def is_model_type(node: ast.expr) -> bool:
    """A variable or attribute of such a name, and config["model_type"] or config.get("model_type")."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        node = node.args[0]
    elif isinstance(node, ast.Subscript):
        node = node.slice
    else:
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        return name.endswith(NAMED)
    return isinstance(node, ast.Constant) and str(node.value).endswith(NAMED)


def is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple | ast.Set | ast.List):
        return any(map(is_text, node.elts))
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_no_code_compares_a_model_type_with_a_literal() -> None:
    assert literal_comparisons(SOURCE) == []


@pytest.mark.parametrize(
    "code",
    [
        'keys.owner == "phi3"',
        '"gemma3" not in facts.resolved.model_type',
        'arch in ("llama", "qwen2")',
        'config["model_type"] == "t5"',
        'config.get("model_type") != "t5"',
        'keys.owner.startswith("gemma")',
        'match arch:\n    case "llama":\n        pass',
    ],
)
def test_a_comparison_is_reported(tmp_path: Path, code: str) -> None:
    (tmp_path / "a.py").write_text(code, encoding="utf-8")
    assert len(literal_comparisons(tmp_path)) == 1


@pytest.mark.parametrize("code", ["model_type in TABLE", 'kind == "rope"', 'config["kind"] == "t5"', "arch == other"])
def test_other_comparisons_are_not(tmp_path: Path, code: str) -> None:
    (tmp_path / "a.py").write_text(code, encoding="utf-8")
    assert literal_comparisons(tmp_path) == []


def test_a_model_type_has_one_row() -> None:
    lineages = (gemma, latent, llama, qwen, rotating, still, several_parts)
    counts = Counter([name for lineage in lineages for name in lineage.ROWS] + list(several_parts.REMOTE))
    assert [name for name, count in counts.items() if count > 1] == []
    assert {*table.TABLE, *table.SEVERAL_PARTS, *table.REMOTE} == set(counts)
    for lineage in lineages:
        assert list(lineage.ROWS) == sorted(lineage.ROWS), lineage.__name__


def test_a_name_of_gguf_has_one_row() -> None:
    named = Counter(table.gguf_name(name) for name, row in table.TABLE.items() if row.gguf is not None)
    assert [name for name, count in named.items() if count > 1] == []


def test_rows_and_families_name_each_other() -> None:
    assert {row.family for row in table.TABLE.values()} - {None} == set(families.names())
    others = [row.gguf.with_windows for row in table.TABLE.values() if row.gguf is not None and row.gguf.with_windows]
    assert set(others) <= set(table.TABLE)
    loading = [name for name, row in table.TABLE.items() if row.gguf is not None and row.gguf.loads]
    written = [name for name, row in table.TABLE.items() if row.written_as_gguf]
    assert {*loading, *written} <= set(families.model_types())
    assert all(table.gguf_name(name) in table.GGUF_TYPES for name in written)
