"""Whether Python may read a tensor's numbers, or choose another way to compute them, without anyone noticing."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad


def watched(x: Tensor) -> bool:
    """Whether something follows the operators one by one: a compiler, a mode, a transform, a subclass of Tensor."""
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or type(x) not in (Tensor, torch.nn.Parameter)
        or x.is_meta
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
    )
