"""What `campaigns.exactness` compares is what it says: its arms against transformers' own module, cast as programs cast
it; and a run of it on a small model."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import ropewalk as rw
from campaigns import exactness, exactness_arms
from campaigns.exactness_arms import ARMS, Arm, Cell
from ropewalk.encodings import RoPE

BASE, WIDTH = 100_000.0, 64
PLACES = [0, 1, 255, 257, 2047, 8191, 16383, 10**6 + 1, 10**8 + 3]
YARN = rw.scaling.YaRN(factor=2, trained=8192)


def arm(name: str, scaling: Any = None) -> tuple[Tensor, Tensor]:
    config = RoPE.Config(base=BASE, scaling=scaling, arithmetic="float32")
    cos, sin = Arm(config, name, head_width=WIDTH)(rw.positions.explicit(torch.tensor([PLACES])))
    return cos[0, 0], sin[0, 0]


def theirs(scaling: Any, *, cast: bool = False, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    said: dict[str, Any] = {"rope_type": "default", "rope_theta": BASE}
    if scaling is not None:
        said |= {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 8192}
    config = LlamaConfig(hidden_size=WIDTH, num_attention_heads=1, max_position_embeddings=16384, rope_parameters=said)
    module = LlamaRotaryEmbedding(config)
    module = module.to(torch.bfloat16) if cast else module
    cos, sin = module(torch.zeros(1, dtype=dtype), torch.tensor([PLACES]))
    return cos[0, :, : WIDTH // 2].float(), sin[0, :, : WIDTH // 2].float()


@pytest.mark.parametrize("scaling", [None, YARN], ids=["plain", "yarn"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [("float32", {}), ("tables", {"dtype": torch.bfloat16}), ("frequencies", {"cast": True})],
    ids=["float32", "tables", "frequencies"],
)
def test_an_arm_is_transformers_bit_for_bit(name: str, settings: dict[str, Any], scaling: Any) -> None:
    for ours, want in zip(arm(name, scaling), theirs(scaling, **settings), strict=True):
        assert torch.equal(ours, want)


def rounded(value: float) -> float:
    """To bfloat16: the upper half of a float32, to the nearest, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    bits += 0x7FFF + (bits >> 16 & 1)
    return struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0]


def test_bfloat16_angles_are_rounded_three_times() -> None:
    frequencies = RoPE(head_width=WIDTH, base=BASE, arithmetic="float32").layer_plan().frequencies
    want = [[rounded(rounded(place) * rounded(omega)) for omega in frequencies] for place in PLACES]
    cos, sin = arm("angles")
    assert torch.equal(cos, torch.tensor(want).cos())
    assert torch.equal(sin, torch.tensor(want).sin())
    assert rounded(257) == 256


def test_exact_is_the_encoding_itself() -> None:
    rope = RoPE(head_width=WIDTH, base=BASE, scaling=YARN, arithmetic="float32")
    for ours, want in zip(arm("exact", YARN), rope(rw.positions.explicit(torch.tensor([PLACES]))), strict=True):
        assert torch.equal(ours, want[0, 0])


def test_bfloat16_products_are_summed_in_float32_and_rounded_once() -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(8, 512).bfloat16(), torch.randn(64, 512).bfloat16(), torch.randn(64).bfloat16()
    with exactness_arms.Accumulated():
        found = F.linear(x, weight, bias)
    want = (x.double() @ weight.double().T + bias.double()).bfloat16()
    assert found.dtype == torch.bfloat16
    assert (found == want).float().mean() > 0.99
    assert torch.allclose(found.float(), want.float(), rtol=2**-7, atol=1e-3)


def small(cell: Cell, text: str) -> dict[str, Any]:
    """A piece by a random model: large weights, so that it looks at single tokens."""
    torch.manual_seed(len(text))
    tokens = torch.randint(0, 97, (cell.length,))
    torch.manual_seed(1)
    model = rw.Transformer(
        rw.preset("llama", vocabulary=97, width=64, heads=2, key_heads=1, hidden=64, layers=2, std=0.4)
    )
    return {"passes": exactness_arms.run(cell, model.to(getattr(torch, cell.dtype)).eval(), tokens)}


@pytest.fixture
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    far = (10**6, 10**8)
    cells = (Cell("smollm2", 320, "float32", 3, far=far), Cell("tinyllama", 320, "bfloat16", 2, factor=2))
    monkeypatch.setattr(exactness, "CELLS", cells)
    monkeypatch.setattr(exactness, "piece", small)
    texts = tmp_path / "texts.jsonl"
    lines = [json.dumps({"text": "a" * (exactness_arms.LONG_ENOUGH + n)}) for n in range(9)]
    texts.write_text("\n".join([*lines, json.dumps({"text": "short"})]), encoding="utf-8")
    return texts


def campaign(texts: Path, out: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> int:
    monkeypatch.setattr(sys, "argv", ["exactness", str(texts), "--out", str(out), "--json", *more])
    return exactness.main()


def test_a_short_run(short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "result.json"
    assert campaign(short, out, monkeypatch, "--minutes", "0") == 3
    assert campaign(short, out, monkeypatch) in (0, 1)
    result = json.loads(out.read_text(encoding="utf-8"))
    first, second = result["measured"].values()
    assert (first["documents"], second["documents"]) == (3, 2)
    assert len({piece["document"] for piece in result["pieces"].values()}) == 3
    assert set(first) >= {f"{name} from 0" for name in ARMS[1:]}
    assert first["float32 from 0"]["token"] < 1e-3
    assert first["exact from 100,000,000"]["token"] < 1e-4
    assert first["float32 from 100,000,000"]["token"] > 0.1
    moved = [first[f"{name} from 0"]["token"] for name in ("float32", "tables", "frequencies", "angles")]
    assert moved == sorted(moved)
    assert moved[-1] > 0.1
    assert second["float32 from 0"]["token"] > first["float32 from 0"]["token"]  # bfloat16 has noise of its own


def test_what_is_done_is_not_done_again(short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, done = tmp_path / "result.json", []
    monkeypatch.setattr(exactness, "piece", lambda cell, text: done.append(text) or small(cell, text))
    campaign(short, out, monkeypatch)
    assert len(done) == 5
    campaign(short, out, monkeypatch)
    assert len(done) == 5


def test_the_interval_is_students() -> None:
    found = exactness.interval([1.0, 2.0, 3.0])  # sd 1, so 4.303 / sqrt(3)
    assert found["added"] == 2
    assert found["within"] == pytest.approx(2.484, abs=1e-3)
    assert exactness.interval([1.0])["within"] is None
