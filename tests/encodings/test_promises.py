"""What must not change an encoding's numbers: casts, autocast, precision switches, compile, export, FSDP2.

The phase stays bit-equal; cos and sin stay within 2.4e-7 (N6), an ulp of 1 and one rounding.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch._dynamo.testing
from torch import Tensor, nn

from ropewalk import positions
from ropewalk.encodings import Encoding, RoPE
from ropewalk.encodings.sinusoidal import Sinusoidal
from tests.closeness import assert_close
from tests.encodings.rows import HEAD_WIDTH, HEADS, LIMIT, ROWS, WIDTH, Row

TRIG = 2.4e-7
PLACES = torch.tensor([0, 1, 255, 256, 257, 2047, 8191, 65_535, 131_071, 2**20 - 1, 2**31, 2**40 - 1])


def tables(rope: RoPE) -> tuple[Tensor, Tensor, Tensor]:
    at = positions.explicit(PLACES)
    return rope.phases(at), *rope.at(at).q_table


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    yield
    torch.set_default_dtype(before)


@contextmanager
def matmul_precision(name: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    yield
    torch.set_float32_matmul_precision(before)


AMBIENT = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default-bfloat16": lambda: default_dtype(torch.bfloat16),
    "default-float64": lambda: default_dtype(torch.float64),
    "matmul-medium": lambda: matmul_precision("medium"),
    "inference": torch.inference_mode,
}


@pytest.mark.parametrize("ambient", AMBIENT)
def test_ambient_switches_change_nothing(ambient: str) -> None:
    want = tables(RoPE(head_width=128, base=500_000))
    with AMBIENT[ambient]():
        got = tables(RoPE(head_width=128, base=500_000))
    assert torch.equal(want[0], got[0])
    assert got[1].dtype == torch.float32
    assert_close("cos", want[1], got[1], TRIG)
    assert_close("sin", want[2], got[2], TRIG)


CASTS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "to-bfloat16": lambda m: m.to(torch.bfloat16),
    "half": lambda m: m.half(),
    "double": lambda m: m.double(),
    "meta-to-empty": lambda m: m.to("meta").to_empty(device="cpu"),
}


@pytest.mark.parametrize("cast", CASTS)
def test_casts_change_nothing(cast: str) -> None:
    want = tables(RoPE(head_width=128))
    rope = RoPE(head_width=128)
    CASTS[cast](nn.ModuleDict({"rope": rope}))
    got = tables(rope)
    assert torch.equal(want[0], got[0])
    assert_close("cos", want[1], got[1], TRIG)
    assert_close("sin", want[2], got[2], TRIG)


def test_a_bfloat16_sinusoid_is_rounded_once() -> None:
    at = positions.explicit(PLACES[:9])
    exact = Sinusoidal(width=WIDTH)(at)
    embedded = Sinusoidal(width=WIDTH).to(torch.bfloat16).at(at).embed(torch.zeros(1, 9, WIDTH, dtype=torch.bfloat16))
    assert torch.equal(embedded, exact.to(torch.bfloat16))


def through(encoding: Encoding) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]:
    """A whole pass of one encoding: every site it has, from bare integers."""

    def run(tokens: Tensor, x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
        signal = encoding.at(index, limit=LIMIT)
        out = [signal.embed(tokens), signal.rotate(x, "query"), signal.rotate(x, "key")]
        if "bias" in encoding.sites:
            at = signal.q.index
            head = torch.arange(HEADS)[:, None, None]
            out.append(signal.bias(head, at[:, None, :, None], at[:, None, None, :]))
        return tuple(out)

    return run


def inputs(encoding: Encoding, length: int) -> tuple[Tensor, Tensor, Tensor]:
    index = torch.arange(4000 - length, 4000)
    return torch.randn(1, length, encoding.token_width), torch.randn(1, HEADS, length, HEAD_WIDTH), index


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_compiles_whole_and_at_most_twice_over_eight_lengths(row: Row) -> None:
    encoding = row.build()
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    plain = through(encoding)
    compiled = torch.compile(plain, fullgraph=True, backend=counter)
    with torch.no_grad():
        for length in (5, 9, 16, 33, 64, 100, 127, 200):
            given = inputs(encoding, length)
            for want, got in zip(plain(*given), compiled(*given), strict=True):
                assert_close(f"{row} {length}", want, got, 1e-5 * max(1.0, want.abs().max().item()))
    assert counter.frame_count <= 2


@pytest.mark.no_poison
def test_inductor_keeps_the_phase_bit_for_bit() -> None:
    torch._dynamo.reset()
    rope = RoPE(head_width=128, base=500_000)
    compiled = torch.compile(
        lambda index: (rope.phases(positions.explicit(index)), *rope.at(index).q_table), fullgraph=True
    )
    got = compiled(PLACES)
    want = tables(rope)
    assert torch.equal(want[0], got[0])
    assert_close("cos", want[1], got[1], TRIG)
    assert_close("sin", want[2], got[2], TRIG)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_exports_with_any_length(row: Row) -> None:
    """Exported at one length, right at twice that: no table of the example's length is baked in."""
    encoding = row.build()

    class Pass(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoding = encoding

        def forward(self, tokens: Tensor, x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
            return through(self.encoding)(tokens, x, index)

    length = torch.export.Dim("length", min=2, max=LIMIT)
    shapes = ({1: length}, {2: length}, {0: length})
    with torch.no_grad():
        exported = torch.export.export(Pass(), inputs(encoding, 16), dynamic_shapes=shapes).module()
        given = inputs(encoding, 32)
        for want, got in zip(through(encoding)(*given), exported(*given), strict=True):
            assert_close(str(row), want, got, 1e-5 * max(1.0, want.abs().max().item()))


def test_fsdp2_mixed_precision_on_two_ranks() -> None:
    """FSDP2 casts float inputs of a block to bfloat16; a signal's tables must come through untouched."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    command = [sys.executable, "-m", "tests.encodings.fsdp_worker"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("tables as they were") == 2, done.stdout
