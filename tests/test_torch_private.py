"""Private names of torch: in one file, and each can go. The names are removed from torch itself, and what ropewalk does
without them is compared with what it does with them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils import _python_dispatch

from ropewalk import positions, torch_private
from ropewalk.attention import Rule, Score, attend, choose
from ropewalk.encodings import build
from ropewalk.encodings import rope as rope_module
from ropewalk.encodings.none import NoPE
from ropewalk.encodings.rope import RoPE
from ropewalk.torch_private import CannotCompile, compile_errors, compile_graph, real, watched
from tests.closeness import assert_close

SOURCE = Path(__file__).parents[1] / "src" / "ropewalk"
OF_TENSORS = ("_version", "_dynamo_marked_constant", "_base", "_typed_storage")
"""Private attributes of tensors and functions, which no import gives away."""


def private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def private_names(source: str) -> Iterator[str]:
    """Private names of torch that a file uses: imported, or by way of something that it imported from torch."""
    tree, from_torch = ast.parse(source), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "torch":
                    from_torch.add(alias.asname or "torch")
                    yield from (f"{node.lineno}: {alias.name}" for part in alias.name.split(".") if private(part))
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "torch":
            for alias in node.names:
                from_torch.add(alias.asname or alias.name)
                path = f"{node.module}.{alias.name}"
                yield from (f"{node.lineno}: {path}" for part in path.split(".") if private(part))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr):
            root: ast.expr = node
            while isinstance(root, ast.Attribute):
                root = root.value
            if node.attr in OF_TENSORS or (isinstance(root, ast.Name) and root.id in from_torch):
                yield f"{node.lineno}: {ast.unparse(node)}"


def test_private_names_of_torch_are_in_one_file() -> None:
    found = [
        f"{file.relative_to(SOURCE)}:{name}"
        for file in sorted(SOURCE.rglob("*.py"))
        if file.name != "torch_private.py"
        if "torch" in (text := file.read_text(encoding="utf-8"))
        for name in private_names(text)
    ]
    assert found == [], "private names of torch belong in torch_private.py, each with what is done without it"
    assert list(private_names((SOURCE / "torch_private.py").read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("import torch._dynamo", 1),
        ("import torch\ntorch._C._len_torch_dispatch_stack()", 2),
        ("def f():\n    from torch.utils import _pytree as tree", 1),
        ("from torch._subclasses.fake_tensor import FakeTensorMode", 1),
        ("from torch.autograd import forward_ad\nx = forward_ad._current_level", 1),
        ("from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING", 1),
        ("def f(x):\n    return x._version", 1),
        ("import torch\ntorch.__version__\nself._own = torch.nn.Linear(1, 1)\nother._private()", 0),
        ("from ropewalk.torch_private import writes\nfrom torch import nn\nnn.init.zeros_(x)", 0),
    ],
)
def test_a_private_name_is_reported(source: str, count: int) -> None:
    assert len(list(private_names(source))) == count


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (torch._C, "_len_torch_dispatch_stack"),
        (torch._C._functorch, "peek_interpreter_stack"),
        (forward_ad, "_current_level"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_without_knowing_what_follows_the_operators(
    owner: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, rope = torch.randn(2, 3, 5, 8), RoPE(head_width=8)
    at = positions.explicit(torch.arange(5) + 2**35)
    want = rope.at(at).rotate(x, "query")
    assert not watched(x)
    monkeypatch.delattr(owner, name)
    assert watched(x)
    assert torch.equal(rope.at(at).rotate(x, "query"), want)  # by the formula, which gives the same bits


@pytest.mark.parametrize(
    ("owner", "name"), [(torch._C, "_len_torch_dispatch_stack"), (_python_dispatch, "_disable_current_modes")]
)
def test_without_a_way_out_of_a_mode(owner: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeTensorMode():
        assert real(lambda: torch.ones(2).tolist()) == [1.0, 1.0]
    monkeypatch.delattr(owner, name)
    assert real(lambda: torch.ones(2).tolist()) == [1.0, 1.0]  # as it is where nothing follows


def test_without_counted_writes_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(x: Tensor) -> int:
        raise AttributeError("_version")

    assert positions.plain(4).is_plain
    monkeypatch.setattr(Tensor, "_version", property(gone))
    at = positions.plain(4)
    assert not at.is_plain
    at.segment[:, 2:] = 1
    assert not at.is_plain


def test_without_assertions_a_graph_takes_nothing_as_known(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.compiler.reset()
    nowhere, (q, k, v) = NoPE(), torch.randn(3, 1, 2, 6, 4)

    def mixed(at: positions.Positions) -> Tensor:
        return attend(q, k, v, Score(nowhere.at(at), Rule()))

    known = positions.plain(6)
    want = mixed(known)
    with monkeypatch.context() as gone:
        gone.delattr(torch, "_assert_async")
        assert not torch_private.can_assert()
    # This torch's own compiler asks for the name, so it stays while a graph is made.
    monkeypatch.setattr(positions, "can_assert", lambda: False)
    assert_close("compiled", want, torch.compile(mixed, backend="eager", fullgraph=True)(known), 1e-6)
    edited = positions.plain(6)
    edited.segment[:, 3:] = 1
    want = mixed(edited)
    assert_close("edited", want, torch.compile(mixed, backend="eager", fullgraph=True)(edited), 1e-6)


class Without:
    """A namespace without some of its names."""

    def __init__(self, namespace: Any, *names: str) -> None:
        self.namespace, self.names = namespace, names

    def __getattr__(self, name: str) -> Any:
        if name in self.names:
            raise AttributeError(name)
        return getattr(self.namespace, name)


@pytest.mark.parametrize("gone", ["", "_backward"])
def test_without_the_kernel_of_a_cpu_documents_have_a_mask(gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = [torch.randn(2, 2, 200, 8, requires_grad=True) for _ in range(3)]
    at = positions.packed([[90, 110], [200]])
    at = positions.Positions(at.index + 2**30, at.order + 2**30, at.segment, 2**31)
    signal = NoPE().at(at)
    assert choose(*inputs, Score(signal, Rule())).reason == "each document by itself"
    want = torch.autograd.grad(attend(*inputs, Score(signal, Rule())).square().sum(), inputs)
    name = f"_scaled_dot_product_flash_attention_for_cpu{gone}"
    monkeypatch.setattr(torch.ops, "aten", Without(torch.ops.aten, name))
    assert choose(*inputs, Score(signal, Rule())).reason == "fused, with a small mask"
    got = torch.autograd.grad(attend(*inputs, Score(signal, Rule())).square().sum(), inputs)
    for one, other in zip(want, got, strict=True):
        assert_close("gradient", one, other, 1e-5)


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace the builtin")  # torch 2.11
@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")  # around what computes the plan
def test_the_mark_of_a_constant_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    def ours() -> None: ...
    def torchs() -> None: ...

    assert vars(torch_private.constant(ours)) == vars(torch.compiler.assume_constant_result(torchs))
    # Without it the call breaks the graph, and gives the same numbers.
    dynamic = build({"kind": "rope", "scaling": {"kind": "dynamic", "factor": 4, "trained": 8}}, head_width=8)
    at, x = positions.explicit(torch.arange(20, 30), limit=64), torch.randn(1, 2, 10, 8)

    def turned(x: Tensor) -> Tensor:
        return dynamic.at(at).rotate(x, "query")

    want = turned(x)
    monkeypatch.delattr(rope_module._for_length, "_dynamo_marked_constant")
    torch.compiler.reset()
    assert_close("broken graph", want, torch.compile(turned, backend="eager")(x), 1e-6)


def doubled(x: Tensor, out: Tensor) -> None:
    out.copy_(2 * x)


@pytest.mark.parametrize("module", ["torch._dynamo", "torch._inductor", "torch.fx.experimental.proxy_tensor"])
def test_without_a_compiler_of_graphs(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CannotCompile, match=r"import"):
        compile_graph(doubled, (torch.ones(3), torch.ones(3)), {})


def test_without_inductors_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor

    monkeypatch.delattr(torch._inductor, "compile")
    with pytest.raises(CannotCompile, match="compile"):
        compile_graph(doubled, (torch.ones(3), torch.ones(3)), {})


@pytest.mark.parametrize("module", ["torch._dynamo.exc", "torch._inductor.exc"])
def test_without_the_compilers_own_errors(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(compile_errors()) == 6
    monkeypatch.setitem(sys.modules, module, None)
    assert compile_errors()[0] is OSError
    assert len(compile_errors()) == 3


def test_only_what_compiling_raises_means_that_nothing_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor
    from torch._inductor.exc import InvalidCxxCompiler

    def failing(error: Exception) -> None:
        def compile_fx(*_: Any, **__: Any) -> None:
            raise error

        monkeypatch.setattr(torch._inductor, "compile", compile_fx)

    for error in (InvalidCxxCompiler(), FileNotFoundError("no g++")):
        failing(error)
        with pytest.raises(CannotCompile):
            compile_graph(doubled, (torch.ones(3), torch.ones(3)), {})
    failing(ValueError("a mistake of ours"))
    with pytest.raises(ValueError, match="a mistake of ours"):
        compile_graph(doubled, (torch.ones(3), torch.ones(3)), {})
