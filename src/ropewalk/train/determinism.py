"""`train.deterministic`: torch's deterministic algorithms while a run lasts, and what was set before it after it.

Batches, dropout masks and rates are functions of the seed and the step anyway; what is left are operations whose sums
a GPU adds in another order each time. An operation that has no other form is an error of torch that names it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""Without one of the two values that cuBLAS documents for it, its products may differ; read when it is first used."""


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    cudnn, workspace = torch.backends.cudnn, os.environ.get(WORKSPACE)
    mode, settings = torch.get_deterministic_debug_mode(), (cudnn.deterministic, cudnn.benchmark)
    os.environ.setdefault(WORKSPACE, ":4096:8")
    torch.use_deterministic_algorithms(True)
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        cudnn.deterministic, cudnn.benchmark = settings
        if workspace is None:
            os.environ.pop(WORKSPACE, None)
