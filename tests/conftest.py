"""What every test stands on: fixed seeds, poisoned memory, a search by hypothesis that repeats itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

# Tensors here are small: a second thread gains nothing, and on a busy machine waiting for it costs tenfold.
torch.set_num_threads(1)

hypothesis.settings.register_profile("ropewalk", derandomize=True, deadline=None)
hypothesis.settings.load_profile("ropewalk")


TESTS = Path(__file__).parent
EARLY = (
    "train/test_campaigns.py",
    "distributed/test_parity.py",
    "checkpoints/bad/test_bad_files.py",
    "checkpoints/load/test_memory.py",
    "train/test_start.py",
    "train/test_worlds.py",
    "train/test_estimate.py",
    "attention/test_backends.py",
)
"""Files that take half a minute or more, begun first: at the end no worker waits for another's."""


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    early = [TESTS / name for name in EARLY]
    if gone := [str(path) for path in early if not path.is_file()]:
        raise pytest.UsageError(f"EARLY of tests/conftest.py names files that are not there: {', '.join(gone)}")
    items.sort(key=lambda item: early.index(item.path) if item.path in early else len(early))


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
