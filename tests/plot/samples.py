"""One small example of each picture: what it is drawn from, and its settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ropewalk.plot import data
from ropewalk.plot.catalogue import NAMES

PUBLISHED = Path(__file__).parents[1] / "checkpoints" / "published"
LLAMA = str(PUBLISHED / "llama-3.2-1b.json")
QWEN = str(PUBLISHED / "qwen2.5-7b-instruct-yarn.json")

DOCUMENTS = {
    "plain": {"at": [0, 512, 1024], "losses": [[3.0, 2.0, 4.0], [3.5, 2.5, 4.5], [2.5, 2.4, 4.1]]},
    "yarn": {"at": [0, 512, 1024], "loss": [3.1, 2.2, 2.1], "low": [3.0, 2.1, 2.0], "high": [3.2, 2.3, 2.2]},
}


def run_folder(folder: Path, slope: float = 0.01) -> Path:
    """A run as `ropewalk train` leaves it, 40 steps and two evaluations."""
    folder.mkdir(parents=True)
    lines: list[dict[str, Any]] = []
    for step in range(1, 41):
        loss = 4 - slope * step
        lines.append({"step": step, "loss": loss, "norm": 1 / step, "lr": 1e-3, "tokens_per_second": 100.0 + step})
        if step % 20 == 0:
            bins = [{"from": 16 * i, "loss": loss - 0.1 * i, "tokens": 64} for i in range(4)]
            lines.append({"kind": "valid", "step": step, "loss": loss, "tokens": 256, "by_position": bins})
    lines.append({"kind": "event", "what": "spike", "step": 7, "loss": "nan", "norm": 9.0})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


def model() -> Any:
    import torch

    import ropewalk as rw

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = rw.TransformerConfig(stack="decoder", width=32, heads=2, layers=3, vocabulary=50, hidden=32)
        return rw.Transformer(config).eval()


def samples(folder: Path, *, models: bool = True) -> dict[str, tuple[Any, dict[str, Any]]]:
    runs = [str(run_folder(folder / name, slope)) for name, slope in (("one", 0.01), ("two", 0.02))]
    return {
        "sinusoids": (None, {"width": 32, "length": 24}),
        "wavelengths": (LLAMA, {}),
        "scalings": (LLAMA, {}),
        "distance": (None, {"head_width": 32, "length": 5000, "samples": 4}),
        "unseen": (QWEN, {}),
        "biases": (None, {"length": 64}),
        "masks": (None, {"packed": [2, 1], "padded": [2, 3], "window": 2}),
        "layouts": (None, {}),
        "loss": (DOCUMENTS, {"trained": 512}),
        "run": (runs, {}),
        "attention": (model() if models else None, {"ids": list(range(1, 13))}),
        "clocks": (LLAMA, {}),
        "products": (None, {"width": 16, "length": 24}),
        "buckets": (None, {}),
        "engines": ([LLAMA, str(PUBLISHED / "gpt-oss-20b.json")], {}),
        "norms": (model() if models else None, {"ids": list(range(1, 13))}),
        "sections": (str(PUBLISHED / "qwen3-vl-8b.json"), {}),
    }


def sample_data(folder: Path) -> dict[str, dict[str, Any]]:
    every = samples(folder)
    assert tuple(every) == NAMES
    return {name: getattr(data, name)(thing, **settings) for name, (thing, settings) in every.items()}
