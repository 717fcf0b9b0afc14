"""What every test stands on: fixed seeds, poisoned memory, a search by hypothesis that repeats itself."""

from __future__ import annotations

import random
from collections.abc import Iterator

import hypothesis
import numpy as np
import pytest
import torch

# Tensors here are small: a second thread gains nothing, and on a busy machine waiting for it costs tenfold.
torch.set_num_threads(1)

hypothesis.settings.register_profile("ropewalk", derandomize=True, deadline=None)
hypothesis.settings.load_profile("ropewalk")


class TorchRandom:
    """Torch's default generator in the terms of `random.Random`: each hypothesis example then starts from one seed."""

    def seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def getstate(self) -> torch.Tensor:
        return torch.get_rng_state()

    def setstate(self, state: torch.Tensor) -> None:
        torch.set_rng_state(state)


TORCH_RANDOM = TorchRandom()  # hypothesis keeps a weak reference
hypothesis.register_random(TORCH_RANDOM)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture(autouse=True)
def seeds() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def poison(request: pytest.FixtureRequest) -> Iterator[None]:
    """Uninitialised memory holds NaN, or the largest integer, so that reading it shows.

    Torch's own switch, which fills inside the allocating operators and is known to torch.compile, meta tensors and
    distributed code. Python wrappers around torch.empty were tried: dynamo then refuses to trace them, and
    `torch.device("meta")` no longer reaches them. The switch also makes torch refuse nondeterministic operators.
    On CUDA it would ask for a cuBLAS workspace setting, so gpu tests go without.
    """
    before = torch.get_deterministic_debug_mode()
    spared = request.node.get_closest_marker("no_poison") or request.node.get_closest_marker("gpu")
    torch.set_deterministic_debug_mode("default" if spared else "error")
    yield
    torch.set_deterministic_debug_mode(before)
