"""Every name of torch that is not public, in this file alone, each with what is done where torch no longer has it.

A private name may change or go with any release. None of them is needed: without it the same numbers take longer, or a
question is answered as if the answer were no. A test of each removes the name and goes the other way.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")


class CannotCompile(RuntimeError):
    """This machine, process or torch makes no kernels. Anything else that goes wrong is about one call, and raises."""

    def __init__(self, error: Exception | str) -> None:
        super().__init__((str(error).strip() or type(error).__name__).splitlines()[0])


def watched(x: Tensor) -> bool:
    """Whether something follows the operators one by one: a compiler, a mode, a transform, a subclass of Tensor. Then
    nothing is computed in place and no tensor's numbers are read; so too where torch does not say."""
    try:
        return transformed(x) or torch._C._len_torch_dispatch_stack() > 0
    except AttributeError:
        return True


def transformed(x: Tensor) -> bool:
    """The same without modes that only look on (counters of operations or memory): what computes numbers does it in
    another way, or has none."""
    try:
        return (
            torch.compiler.is_compiling()
            or torch.jit.is_tracing()
            or type(x) not in (Tensor, torch.nn.Parameter)
            or x.is_meta
            or torch._C._functorch.peek_interpreter_stack() is not None
            or forward_ad._current_level >= 0
        )
    except AttributeError:
        return True


def real(compute: Callable[[], Result]) -> Result:
    """What it computes, also where a mode follows the operators and makes tensors without numbers of them. Where torch
    does not say how, it is computed in the mode."""
    try:
        from torch.utils._python_dispatch import _disable_current_modes

        followed = torch._C._len_torch_dispatch_stack() > 0
    except (ImportError, AttributeError):
        return compute()
    if not followed:
        return compute()
    with _disable_current_modes():
        return compute()


def writes(*tensors: Tensor) -> list[int] | None:
    """How often each tensor has been written to. None: torch does not say, as of tensors made in inference mode, so
    that nothing can be known of their numbers."""
    try:
        return [x._version for x in tensors]
    except (AttributeError, RuntimeError):
        return None


def can_assert() -> bool:
    """Whether a compiled graph can stop where something is not so. Where it cannot, nothing is taken as known in it."""
    return hasattr(torch, "_assert_async")


def assert_in_graph(condition: Tensor, says: str) -> None:
    torch._assert_async(condition, says)


def cpu_attention() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """The fused attention of a CPU, which also gives the logarithm of each query's sum, and its backward pass, which
    takes it. None: attention is computed with a mask."""
    try:
        return (
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu,
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward,
        )
    except AttributeError:
        return None


def constant(function: Function) -> Function:
    """A function whose result a compiler takes as a constant of the graph: all that
    torch.compiler.assume_constant_result does, which however imports Dynamo, a second and 73 MB. Where Dynamo looks for
    another mark, the graph breaks at the call."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def compile_graph(
    function: Callable[..., None], examples: Sequence[Tensor], options: dict[str, Any]
) -> Callable[..., Any]:
    """One kernel of Inductor's, each size and stride that the examples do not share being a number given to it."""
    try:
        import torch._dynamo
        import torch._inductor
        from torch.fx.experimental.proxy_tensor import make_fx

        compile_fx, disabled = torch._inductor.compile, torch._dynamo.config.disable
    except (ImportError, AttributeError) as error:
        raise CannotCompile(error) from error
    if disabled:
        raise CannotCompile("torch.compile is disabled in this process")
    graph = make_fx(function, tracing_mode="symbolic")(*examples)
    symbolic = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    try:
        return compile_fx(graph, symbolic, options=options)
    except compile_errors() as error:
        raise CannotCompile(error) from error


def compile_errors() -> tuple[type[Exception], ...]:
    """What compiling raises where it fails: errors of Dynamo's and Inductor's own, and the system's where there is no
    compiler. Of a torch that keeps them elsewhere, the system's alone."""
    system = (OSError, ImportError, subprocess.SubprocessError)
    try:
        from torch._dynamo.exc import TorchDynamoException
        from torch._inductor.exc import CppCompileError, InvalidCxxCompiler
    except ImportError:
        return system
    return (*system, TorchDynamoException, CppCompileError, InvalidCxxCompiler)
