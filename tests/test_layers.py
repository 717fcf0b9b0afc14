"""The rules of the source tree: imports go one way, the light parts stay without torch, files stay small."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).parents[1]
SOURCE = REPOSITORY / "src" / "ropewalk"

# A layer may import itself and the layers of earlier rows, never its neighbours in the row.
ORDER = (
    ("torch_private", "yaml_text"),
    ("overrides", "crash", "outside", "amounts", "system", "plan_text"),
    ("settings", "trials"),
    ("scaling",),
    ("positions", "phase", "rotation"),
    ("plan",),
    ("encodings",),
    ("attention",),
    ("nn",),
    ("models",),
    ("data", "checkpoints"),
    ("evaluate",),
    ("distributed",),
    ("train",),
    ("extend", "compare"),
    ("conformance",),
    ("plot",),
    ("report",),
    ("lab",),
    ("cli",),
)
LAYERS = tuple(layer for row in ORDER for layer in row)
# Layers that may import less than their row allows: these and nothing else.
NARROWER = {
    "plan": ("amounts", "plan_text", "settings", "scaling"),
    "conformance": LAYERS[: LAYERS.index("checkpoints") + 1],
}

ROOMS = {
    "checkpoints": (
        *("errors", "files", "architectures", "resolve", "engines", "families", "load", "tokens", "export", "inspect"),
        "census",
    )
}
"""Within a layer: each part imports those before it."""

WITHOUT_TORCH = (
    "__init__.py",
    "__main__.py",
    "settings.py",
    "overrides.py",
    "yaml_text.py",
    "crash.py",
    "outside.py",
    "amounts.py",
    "system.py",
    "plan.py",
    "plan_text.py",
    "scaling/**/*.py",
    "checkpoints/errors.py",
    "checkpoints/files/strict_json.py",
    "checkpoints/files/sniff.py",
    "checkpoints/files/gguf.py",
    "checkpoints/resolve/*.py",
    "checkpoints/architectures/*.py",
    "checkpoints/engines/**/*.py",
    "checkpoints/inspect/*.py",
    "checkpoints/census/*.py",
    "checkpoints/files/hub.py",
    "extend/candidates/*.py",
)
HEAVY = ("torch", "transformers", "safetensors.torch")

WITHOUT_STATE = ("positions.py", "phase.py", "rotation/*.py", "scaling/**/*.py", "encodings/**/*.py")

LONGEST_FILE = 600
MOST_FILES = 15
ONE_THING_A_FILE = ("encodings", "families", "cli", "candidates", "pictures")
"""Folders with one file for each of a kind of thing, which may have any number."""
EMPTY_WORDS = {"util", "utils", "helper", "helpers", "misc", "new", "my", "v2"}


class Import(NamedTuple):
    name: str
    line: int
    eager: bool  # runs when the module is imported: not in a function, not for type checkers only


def imports(file: Path, module: str) -> Iterator[Import]:
    """Every import of a file with its full dotted name, `from a import b` as a.b; import_module("a.b") counts."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]

    def walk(node: ast.AST, eager: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, eager)
        elif isinstance(node, ast.ImportFrom):
            base = [node.module] if node.module else []
            if node.level:
                base = [*package.split(".")[: len(package.split(".")) - node.level + 1], *base]
            for alias in node.names:
                yield Import(".".join(base if alias.name == "*" else [*base, alias.name]), node.lineno, eager)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for child in node.body:
                yield from walk(child, False)
            for child in node.orelse:
                yield from walk(child, eager)
        else:
            if isinstance(node, ast.Call) and (name := dynamic_import(node)):
                yield Import(name, node.lineno, eager)
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                yield from walk(child, eager and not inside)

    yield from walk(ast.parse(file.read_text(encoding="utf-8")), True)


def dynamic_import(call: ast.Call) -> str | None:
    """The module that import_module or __import__ is given, as far as it is written out."""
    called = getattr(call.func, "attr", getattr(call.func, "id", None))
    if called not in ("import_module", "__import__") or not call.args:
        return None
    first = call.args[0].values[0] if isinstance(call.args[0], ast.JoinedStr) else call.args[0]
    return str(first.value).strip(".") if isinstance(first, ast.Constant) else None


def modules(root: Path) -> dict[str, Path]:
    """Each module of a package by its dotted name; a package by the name of its folder."""
    found = {}
    for file in sorted(root.rglob("*.py")):
        parts = (root.name, *file.relative_to(root).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def broken_imports(root: Path) -> list[str]:
    """Each import that goes the wrong way, in words."""
    broken = []
    for module, file in modules(root).items():
        layer = module.split(".")[1] if "." in module else None
        if layer is None:
            continue  # the lazy root, which has a rule of its own
        if layer == "__main__":
            layer = "cli"
        if layer not in LAYERS:
            broken.append(f"{file}: {layer} is in no layer; give it a place in ORDER")
            continue
        below = NARROWER.get(layer, LAYERS[: min(LAYERS.index(x) for row in ORDER if layer in row for x in row)])
        for name, line, _ in imports(file, module):
            top, _, rest = name.partition(".")
            target = rest.partition(".")[0]
            if top != root.name or target == layer or target in below or target.startswith("__"):
                continue
            if target in LAYERS:
                broken.append(f"{file}:{line}: {layer} must not import {target}")
            elif layer != "cli":
                broken.append(f"{file}:{line}: {layer} imports {name} from the public face; name the module it is in")
    return broken


def broken_rooms(root: Path) -> list[str]:
    """The same within a layer that has an order of its own."""
    broken = []
    for module, file in modules(root).items():
        layer, _, inner = module.partition(".")[2].partition(".")
        room = inner.partition(".")[0]
        if layer not in ROOMS or not room:
            continue
        if room not in ROOMS[layer]:
            broken.append(f"{file}: {room} has no place in ROOMS")
            continue
        below = ROOMS[layer][: ROOMS[layer].index(room) + 1]
        for name, line, _ in imports(file, module):
            target = name.removeprefix(f"{root.name}.{layer}.").partition(".")[0]
            if name.startswith(f"{root.name}.{layer}.") and target not in below:
                broken.append(f"{file}:{line}: {room} must not import {target}")
    return broken


def heavy_imports(root: Path, patterns: tuple[str, ...]) -> list[str]:
    """Each way by which importing one of these files imports torch, as the chain that leads there."""
    known = modules(root)
    heavy = []
    for start in (m for m, file in known.items() if any(file in root.glob(p) for p in patterns)):
        ways = {step: [start, step] for step in parents(start, known)} | {start: [start]}
        waiting = list(ways)
        while waiting:
            module = waiting.pop()
            for name, line, eager in imports(known[module], module):
                if not eager:
                    continue
                if any(name == h or name.startswith(f"{h}.") for h in HEAVY):
                    heavy.append(f"{' -> '.join(ways[module])} -> {name} ({known[module]}:{line})")
                for step in parents(name, known):
                    if step not in ways:
                        ways[step] = [*ways[module], step]
                        waiting.append(step)
    return heavy


def parents(name: str, known: dict[str, Path]) -> list[str]:
    """The modules that importing this name runs: itself, if it is one, and every package around it."""
    parts = name.split(".")
    return [m for m in (".".join(parts[: i + 1]) for i in range(len(parts))) if m in known]


def cycles(root: Path) -> list[str]:
    """Modules that import each other, also where a function does it late or only a type checker sees it."""
    known = modules(root)
    graph: dict[str, set[str]] = {}
    for module, file in known.items():
        # `from a import b` is an import of a.b where that is a module, else of a.
        named = (parents(i.name, known)[-1:] for i in imports(file, module))
        # The root is what users import: its table of lazy names is no dependency of what it names.
        graph[module] = {one for found in named for one in found} - {module, root.name}
    graph[root.name] = set()
    while free := {module for module, needs in graph.items() if not needs & graph.keys()}:
        graph = {module: needs for module, needs in graph.items() if module not in free}
    # What only imports a cycle is not in it.
    while ends := graph.keys() - set().union(*graph.values()):
        graph = {module: needs for module, needs in graph.items() if module not in ends}
    return [f"{module} -> {', '.join(sorted(needs & graph.keys()))}" for module, needs in sorted(graph.items())]


def crowded_folders(root: Path) -> list[str]:
    """Folders with more files than a reader takes in; an __init__.py is none of them."""
    counts = {
        folder: sum(file.name != "__init__.py" for file in folder.glob("*.py"))
        for folder in [root, *root.rglob("*")]
        if folder.is_dir() and folder.name not in ONE_THING_A_FILE
    }
    return [
        f"{folder}: {count} files; which rooms are in it?" for folder, count in counts.items() if count > MOST_FILES
    ]


def private_imports(root: Path) -> list[str]:
    """Each import of a name that another file keeps to itself; attributes of that kind are ruff's SLF."""
    known = modules(root)
    return [
        f"{file}:{line}: {name}"
        for module, file in known.items()
        for name, line, _ in imports(file, module)
        if name.startswith(f"{root.name}.") and name not in known and re.match(r"_[^_]", name.rpartition(".")[2])
    ]


def eager_imports_of_root(root: Path) -> list[str]:
    """What `import ropewalk` would load at once beyond the standard library."""
    found = imports(root / "__init__.py", root.name)
    return [i.name for i in found if i.eager and i.name.partition(".")[0] not in sys.stdlib_module_names]


def stateful_names(root: Path) -> list[str]:
    """Each buffer or memo in code that must keep none."""
    found = []
    for file in sorted({file for pattern in WITHOUT_STATE for file in root.glob(pattern)}):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "functools":
                found += [f"{file}:{node.lineno}: {a.name}" for a in node.names if a.name in ("cache", "lru_cache")]
            if isinstance(node, ast.Attribute) and (
                node.attr in ("register_buffer", "lru_cache") or ast.unparse(node) == "functools.cache"
            ):
                found.append(f"{file}:{node.lineno}: {node.attr}")
    return found


def python_files(*folders: str) -> list[Path]:
    return sorted(file for folder in folders for file in (REPOSITORY / folder).rglob("*.py"))


def test_imports_go_one_way() -> None:
    assert broken_imports(SOURCE) == []


def test_imports_within_a_layer_go_one_way() -> None:
    assert broken_rooms(SOURCE) == []


def test_light_modules_do_not_import_torch() -> None:
    assert heavy_imports(SOURCE, WITHOUT_TORCH) == []


def test_no_modules_import_each_other() -> None:
    assert cycles(SOURCE) == []


def test_private_names_stay_in_their_file() -> None:
    assert private_imports(SOURCE) == []


def test_no_folder_is_crowded() -> None:
    assert crowded_folders(SOURCE) == []


def test_root_is_lazy() -> None:
    assert eager_imports_of_root(SOURCE) == []


def test_position_code_keeps_no_state() -> None:
    assert stateful_names(SOURCE) == []


@pytest.mark.parametrize("file", python_files("src", "tests"), ids=lambda file: str(file.relative_to(REPOSITORY)))
def test_file_is_short_and_named_for_what_it_holds(file: Path) -> None:
    lines = len(file.read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST_FILE, f"{file} has {lines} lines, {LONGEST_FILE} is the most: which two ideas are in it?"
    words = {word for part in file.relative_to(REPOSITORY).with_suffix("").parts for word in re.split(r"[_\W]+", part)}
    assert not words & EMPTY_WORDS, f"{file}: {', '.join(words & EMPTY_WORDS)} says nothing of what the file holds"


def tree(root: Path, files: dict[str, str]) -> Path:
    package = root / "ropewalk"
    for name, text in ({"__init__.py": ""} | files).items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")
    return package


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("models/decoder.py", "from ropewalk.distributed import mesh", "models must not import distributed"),
        ("models/decoder.py", "def f():\n    import ropewalk.distributed.mesh", "models must not import distributed"),
        ("models/decoder.py", "from ..distributed import mesh", "models must not import distributed"),
        ("models/decoder.py", "from .. import distributed", "models must not import distributed"),
        ("nn/block.py", "from ropewalk import models", "nn must not import models"),
        ("nn/block.py", "m = importlib.import_module(f'ropewalk.models.{kind}')", "nn must not import models"),
        ("nn/block.py", "if TYPE_CHECKING:\n    import ropewalk.models", "nn must not import models"),
        ("phase.py", "from ropewalk.positions import Positions", "phase must not import positions"),
        ("data/text.py", "import ropewalk.checkpoints", "data must not import checkpoints"),
        ("plan.py", "from ropewalk.phase import turns", "plan must not import phase"),
        ("conformance/run.py", "from ropewalk.train import loop", "conformance must not import train"),
        ("conformance/run.py", "from ropewalk.evaluate import nll", "conformance must not import evaluate"),
        ("settings.py", "import ropewalk.cli.main", "settings must not import cli"),
        ("nn/block.py", "from ropewalk import RoPE", "nn imports ropewalk.RoPE from the public face"),
        ("nn/block.py", "import ropewalk", "nn imports ropewalk from the public face"),
        ("shared.py", "", "shared is in no layer"),
    ],
)
def test_a_wrong_import_is_reported(tmp_path: Path, file: str, text: str, says: str) -> None:
    (report,) = broken_imports(tree(tmp_path, {file: text}))
    assert says in report


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (
            "encodings/rope.py",
            "from ropewalk.encodings.base import Encoding\nfrom . import base\nfrom .base import Encoding",
        ),
        ("encodings/rope.py", "from ropewalk.phase import angle\nfrom ropewalk.plan import LayerPlan\nimport torch"),
        ("plan.py", "from ropewalk.scaling import YaRN\nfrom ropewalk.settings import Settings"),
        ("conformance/run.py", "from ropewalk.checkpoints import resolve\nfrom ropewalk.models import Transformer"),
        ("report/page.py", "from ropewalk.conformance import run\nfrom ropewalk.train import loop"),
        ("checkpoints/export/convert.py", "from ropewalk import __version__"),
        ("cli/main.py", "import ropewalk"),
        ("__main__.py", "from ropewalk.cli.main import run"),
    ],
)
def test_a_right_import_is_not_reported(tmp_path: Path, file: str, text: str) -> None:
    assert broken_imports(tree(tmp_path, {file: text})) == []


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        (
            "resolve/read.py",
            "def f():\n    from ropewalk.checkpoints.load import native",
            "resolve must not import load",
        ),
        ("files/sniff.py", "from ..export.hf import write", "files must not import export"),
        ("spare/room.py", "", "spare has no place in ROOMS"),
    ],
)
def test_a_wrong_import_within_a_layer_is_reported(tmp_path: Path, file: str, text: str, says: str) -> None:
    right = {"checkpoints/load/model.py": "from ropewalk.checkpoints.resolve import read\nfrom ropewalk import models"}
    (report,) = broken_rooms(tree(tmp_path, {**right, f"checkpoints/{file}": text}))
    assert says in report


@pytest.mark.parametrize(
    ("files", "ways"),
    [
        ({"scaling/yarn.py": "import torch"}, 1),
        ({"scaling/yarn.py": "from torch import nn"}, 1),
        ({"scaling/yarn.py": "try:\n    import torch.nn\nexcept ImportError:\n    pass"}, 1),
        ({"plan.py": "from ropewalk.scaling.yarn import YaRN", "scaling/yarn.py": "import torch"}, 2),
        ({"checkpoints/resolve/read.py": "", "checkpoints/__init__.py": "from safetensors.torch import load_file"}, 1),
        ({"__init__.py": "from ropewalk.positions import PAD", "positions.py": "import torch", "settings.py": ""}, 2),
        ({"scaling/yarn.py": "def f():\n    import torch"}, 0),
        ({"scaling/yarn.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"}, 0),
        ({"scaling/yarn.py": "import torchless"}, 0),
        ({"phase.py": "import torch"}, 0),
    ],
)
def test_a_way_to_torch_is_reported(tmp_path: Path, files: dict[str, str], ways: int) -> None:
    assert len(heavy_imports(tree(tmp_path, files), WITHOUT_TORCH)) == ways


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"nn/a.py": "from ropewalk.nn import b", "nn/b.py": "def f():\n    from ropewalk.nn.a import x"}, ["a", "b"]),
        ({"nn/a.py": "if TYPE_CHECKING:\n    from .b import B", "nn/b.py": "from .a import A"}, ["a", "b"]),
        ({"nn/a.py": "import ropewalk.nn.b", "nn/b.py": "", "nn/c.py": "from ropewalk.nn.a import x"}, []),
        (
            {"nn/__init__.py": "from ropewalk.nn.a import A", "nn/a.py": "from ropewalk.nn.b import B", "nn/b.py": ""},
            [],
        ),
    ],
)
def test_a_cycle_is_reported(tmp_path: Path, files: dict[str, str], found: list[str]) -> None:
    reports = cycles(tree(tmp_path, {"nn/__init__.py": "", **files}))
    assert [report.split(" ->")[0].rpartition(".")[2] for report in reports] == found


def test_a_crowded_folder_is_reported(tmp_path: Path) -> None:
    files = {f"{folder}/f{number}.py": "" for folder in ("nn", "encodings") for number in range(MOST_FILES + 1)}
    (report,) = crowded_folders(tree(tmp_path, files))
    assert report.endswith("nn: 16 files; which rooms are in it?")


def test_a_private_import_is_reported(tmp_path: Path) -> None:
    files = {"nn/a.py": "from ropewalk.nn.b import _f, g\nfrom ropewalk.nn import _c", "nn/b.py": "", "nn/_c.py": ""}
    (report,) = private_imports(tree(tmp_path, files))
    assert report.endswith("nn/a.py:1: ropewalk.nn.b._f")


def test_an_eager_root_is_reported(tmp_path: Path) -> None:
    root = tree(tmp_path, {"__init__.py": "import sys\nfrom ropewalk.encodings import RoPE\nimport numpy"})
    assert eager_imports_of_root(root) == ["ropewalk.encodings.RoPE", "numpy"]


def test_state_is_reported(tmp_path: Path) -> None:
    buffer = "class A:\n    def __init__(self):\n        self.register_buffer('x', None)"
    memo = "import functools\nfrom functools import cache\n\n@functools.cache\n@functools.lru_cache\ndef f(): ..."
    field = "def f(self, cache):\n    return self.cache or cache"
    files = {"encodings/a.py": buffer, "phase.py": memo, "positions.py": field, "attention/cache.py": buffer}
    package = tree(tmp_path, files)
    found = {report.removeprefix(str(package)) for report in stateful_names(package)}
    assert found == {
        "/encodings/a.py:3: register_buffer",
        "/phase.py:2: cache",
        "/phase.py:4: cache",
        "/phase.py:5: lru_cache",
    }


REFUSE_TORCH = """
import runpy, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name == "torch" or name.startswith("torch."):
            raise RuntimeError(f"{name} was imported")

sys.meta_path.insert(0, Refuse())
"""
COMMAND_LINE = """
sys.argv[0] = "ropewalk"
try:
    runpy.run_module("ropewalk", run_name="__main__")
except SystemExit as leaving:
    assert leaving.code in (None, 0), leaving.code
"""


def run_without_torch(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a fresh Python in which importing torch raises."""
    paths = [str(REPOSITORY / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-c", REFUSE_TORCH + code, *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "code", ["import ropewalk", "import ropewalk.scaling, ropewalk.plan", "import ropewalk.settings, ropewalk.cli.main"]
)
def test_importing_leaves_torch_out(code: str) -> None:
    done = run_without_torch(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_command_line_answers_without_torch(argument: str) -> None:
    done = run_without_torch(COMMAND_LINE, argument)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_refusal_works() -> None:
    done = run_without_torch("import torch")
    assert done.returncode == 1
    assert "torch was imported" in done.stderr
