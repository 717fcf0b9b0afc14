"""The rotation of features: its numbers against scalar Python, and that its three ways give the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from ropewalk import rotation
from ropewalk.rotation import eager, kernel, plain, rotate
from ropewalk.rotation.kernel import compiled
from tests.closeness import assert_close


@pytest.fixture(autouse=True)
def asks_for_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROPEWALK_COMPILE", "1")


LAYOUTS = ("half", "pairs")
# Half a unit in the last place of what is stored, relative; float32 and float64 round each product and the sum.
ROUNDING = {torch.float64: 2**-51, torch.float32: 2**-22, torch.bfloat16: 2**-8, torch.float16: 2**-11}


def oracle(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    out = x.double().tolist()
    tables = cos.double().expand(len(out), -1, x.shape[2], -1), sin.double().expand(len(out), -1, x.shape[2], -1)
    cosines, sines = (table[:, 0].tolist() for table in tables)
    pairs = cos.shape[-1]
    for batch, of_batch in enumerate(out):
        for of_head in of_batch:
            for position, features in enumerate(of_head):
                for pair in range(pairs):
                    i, j = (pair, pair + pairs) if layout == "half" else (2 * pair, 2 * pair + 1)
                    c, s = cosines[batch][position][pair], sines[batch][position][pair]
                    a, b = features[i], features[j]
                    features[i], features[j] = a * c - b * s, b * c + a * s
    return torch.tensor(out, dtype=torch.float64)


def assert_rounded(name: str, want: Tensor, got: Tensor) -> None:
    """Within one rounding of the exact result."""
    bound = ROUNDING[got.dtype] * want.abs() + (1e-15 if got.dtype == torch.float64 else 1e-6)
    past = (got.double() - want).abs() - bound
    assert_close(name, torch.zeros_like(want), past.clamp(min=0), 0)


def tables(B: int, L: int, pairs: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    angle = 6.3 * torch.rand(B, 1, L, pairs, dtype=torch.float64)
    work = torch.float64 if dtype == torch.float64 else torch.float32
    return angle.cos().to(work), angle.sin().to(work)


def queries(B: int, H: int, L: int, K: int, dtype: torch.dtype, storage: str = "contiguous") -> Tensor:
    if storage == "contiguous":
        return torch.randn(B, H, L, K).to(dtype)
    if storage == "transposed":
        return torch.randn(B, L, H, K).to(dtype).transpose(1, 2)
    if storage == "some heads":
        return torch.randn(B, 3 * H, L, K).to(dtype)[:, H : 2 * H]
    return torch.randn(B, L, 3 * H, K).to(dtype)[:, :, H : 2 * H].transpose(1, 2)  # of queries, keys and values in one


def same_bits(a: Tensor, b: Tensor) -> bool:
    whole = {8: torch.int64, 4: torch.int32, 2: torch.int16}[a.element_size()]
    return a.dtype == b.dtype and torch.equal(a.contiguous().view(whole), b.contiguous().view(whole))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("storage", ["contiguous", "transposed", "packed"])
@pytest.mark.parametrize("dtype", list(ROUNDING), ids=str)
@pytest.mark.parametrize("small", [0, rotation.SMALL])
def test_numbers(layout: str, storage: str, dtype: torch.dtype, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "SMALL", small)
    for width, batches in ((8, 1), (8, 2), (6, 2)):
        x = queries(2, 3, 5, 8, dtype, storage)
        cos, sin = tables(batches, 5, width // 2, dtype)
        before = x.clone()
        got = rotate(x, cos, sin, layout)
        assert got.dtype == dtype
        assert got.is_contiguous()
        assert same_bits(x, before)
        assert_rounded(f"{layout} {storage} R={width}", oracle(x, cos, sin, layout), got)


@given(
    layout=st.sampled_from(LAYOUTS),
    dtype=st.sampled_from(list(ROUNDING)),
    storage=st.sampled_from(["contiguous", "transposed", "packed"]),
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 9), st.integers(1, 16), st.integers(0, 5)),
    shared=st.booleans(),
    tile=st.sampled_from([1, 40, 10**6]),
    small=st.sampled_from([0, rotation.SMALL]),
)
def test_eager_is_the_formula(
    layout: str, dtype: torch.dtype, storage: str, sizes: tuple[int, ...], shared: bool, tile: int, small: int
) -> None:
    B, H, L, pairs, rest = sizes
    x = queries(B, H, L, 2 * pairs + rest, dtype, storage)
    cos, sin = tables(1 if shared else B, L, pairs, dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rotation, "TILE", dict.fromkeys(LAYOUTS, tile))
        patch.setattr(rotation, "SMALL", small)
        got = rotate(x, cos, sin, layout)
    want = plain(x, cos, sin, layout)
    assert got.is_contiguous()
    assert want.is_contiguous()
    if layout == "half" or pairs % 16 == 0:
        assert same_bits(got, want)
    else:  # a complex product may fuse where a row does not fill its vectors
        unit = torch.finfo(dtype).eps * want.abs().double() + torch.finfo(cos.dtype).eps * x.abs().double().sum(
            -1, True
        )
        assert_close("pairs", torch.zeros_like(unit), ((got - want).abs().double() - unit).clamp(min=0), 0)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_compiled_is_the_formula_bit_for_bit_and_compiles_once(
    layout: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(queries(1, 2, 3, 64, dtype), *tables(1, 3, 32), layout, plain)
    monkeypatch.setattr(kernel, "_compile", None)
    torch._dynamo.reset()
    sizes = [(1, 2, 3, 0), (2, 3, 5, 0), (1, 1, 7, 0), (3, 2, 1, 0), (1, 1, 1, 0), (2, 64, 64, 0), (2, 16, 5, 6)]
    for B, H, L, rest in sizes:
        for storage in ("contiguous", "transposed", "packed", "some heads"):
            for batches in {1, B}:
                x, (cos, sin) = queries(B, H, L, 64 + rest, dtype, storage), tables(batches, L, 32)
                want = plain(x, cos, sin, layout)
                got = compiled(x, cos, sin, layout, plain)
                assert got.is_contiguous()
                assert same_bits(want, got), (B, H, L, rest, storage, batches)
    apart = [t.mT.contiguous().mT for t in (x, cos, sin)]  # neighbouring features are not neighbours in memory
    for some in ((0, 1, 2), (0, 1), (0,), (1,), (2,)):
        mixed = [apart[place] if place in some else given for place, given in enumerate((x, cos, sin))]
        assert same_bits(want, compiled(*mixed, layout, plain)), some
    ones = torch.ones(1, dtype=dtype).expand(2, 16, 5, 70)
    assert same_bits(plain(ones, cos, sin, layout), compiled(ones, cos, sin, layout, plain))
    with torch.inference_mode():
        assert same_bits(want, compiled(x.clone(), cos, sin, layout, plain))
    with torch.autocast("cpu"):
        assert same_bits(want, compiled(x, cos, sin, layout, plain))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    alone = compiled(x, cos, sin, layout, plain)
    torch.set_num_threads(threads)
    assert same_bits(want, alone)
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.bfloat16).to(dtype).view(1, 16, 64, 64)
    cos, sin = tables(1, 64, 32)
    want, got = plain(every, cos, sin, layout), compiled(every, cos, sin, layout, plain)
    assert torch.equal(want.isnan(), got.isnan())
    assert same_bits(want.nan_to_num(0, torch.inf, -torch.inf), got.nan_to_num(0, torch.inf, -torch.inf))
    tiny = torch.full((1, 2, 3, 64), 1e-39).to(dtype)
    ones = torch.ones(1, 1, 3, 32)
    assert same_bits(tiny, compiled(tiny, ones, 0 * ones, layout, plain)), "subnormal numbers were flushed to zero"
    assert_special_numbers(layout, dtype, lambda *arguments: compiled(*arguments, plain))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("small", [0, rotation.SMALL])
def test_infinity_and_nan_stay_where_they_are(
    layout: str, dtype: torch.dtype, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "SMALL", small)
    assert_special_numbers(layout, dtype, eager)


def assert_special_numbers(layout: str, dtype: torch.dtype, way: Any) -> None:
    x = queries(1, 2, 3, 64, dtype)
    x[..., 3], x[..., 37] = torch.nan, torch.inf
    x[:, 1, :, 20] = -torch.inf
    x[0, 0, 0, 9] = torch.finfo(dtype).max
    cos, sin = tables(1, 3, 32, dtype)
    sin[..., :9] = 0
    cos[..., 30] = torch.nan
    want, got = plain(x, cos, sin, layout), way(x, cos, sin, layout)
    assert torch.equal(want.isnan(), got.isnan())
    assert torch.equal(want.nan_to_num(0, torch.inf, -torch.inf), got.nan_to_num(0, torch.inf, -torch.inf))
    assert want.isnan().any()
    assert want.isinf().any()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_large_tensors_are_compiled_forward_and_backward(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(rotation, "compiled", lambda *given: calls.append(1) or compiled(*given))
    x = queries(1, 16, rotation.COMPILE_FROM // 1024, 64, torch.bfloat16, "transposed").requires_grad_()
    cos, sin = tables(1, x.shape[2], 32)
    out = rotate(x, cos, sin, layout)
    gradient = torch.randn_like(out)
    out.backward(gradient)
    assert rotation.backend() == "compiled"
    assert len(calls) == 2
    assert same_bits(out, plain(x, cos, sin, layout))
    assert x.grad is not None
    assert same_bits(x.grad, plain(gradient, cos, -sin, layout))
    small = x[:, :, :4].detach()
    assert same_bits(rotate(small, cos[:, :, :4], sin[:, :, :4], layout), out[:, :, :4])
    assert len(calls) == 2


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", list(ROUNDING), ids=str)
def test_what_does_not_turn_passes_bit_for_bit(layout: str, dtype: torch.dtype) -> None:
    x = queries(2, 3, 5, 12, dtype)
    x[..., -1], x[..., -2] = torch.nan, -0.0
    assert same_bits(rotate(x, *tables(1, 5, 4, dtype), layout)[..., 8:], x[..., 8:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pairs_that_begin_at_an_odd_place_of_their_storage(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2 * 3 * 5 * 8 + 1).to(dtype)[1:].view(2, 3, 5, 8)
    assert (x.is_contiguous(), x.storage_offset()) == (True, 1)
    cos, sin = tables(1, 5, 4)
    for smallest in (rotation.COMPILE_FROM, 0):
        monkeypatch.setattr(rotation, "COMPILE_FROM", smallest)
        assert same_bits(rotate(x, cos, sin, "pairs"), rotate(x.clone(), cos, sin, "pairs"))
    assert_rounded("odd", oracle(x, cos, sin, "pairs"), rotate(x, cos, sin, "pairs"))
    x = torch.randn(2, 3, 4, 9).to(dtype)[..., :8]
    assert [step % 2 for step in x.stride()] == [0, 0, 1, 1]
    part = cos[:, :, :4], sin[:, :, :4]
    assert_rounded("odd steps", oracle(x, *part, "pairs"), rotate(x, *part, "pairs"))
    assert rotation.backend() == "compiled"


def test_one_tensor_that_fails_does_not_end_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "COMPILE_FROM", 0)
    cos, sin = tables(1, 5, 4)
    x = queries(2, 3, 5, 8, torch.float32)
    rotate(x, cos, sin, "half")
    key = (kernel._half, torch.float32, torch.float32, 4)
    assert key in kernel._KERNELS

    def failing(*_: Any) -> None:
        raise RuntimeError("this tensor")

    with monkeypatch.context() as one_call:
        one_call.setitem(kernel._KERNELS, key, failing)
        with pytest.raises(RuntimeError, match="this tensor"):
            rotate(x, cos, sin, "half")
    assert rotation.backend() == "compiled"
    assert_rounded("after", oracle(x, cos, sin, "half"), rotate(x, cos, sin, "half"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_norms_are_kept(layout: str) -> None:
    x = queries(2, 3, 50, 64, torch.float64)
    turned = rotate(x, *tables(2, 50, 32, torch.float64), layout)
    assert_close("norms", x.norm(dim=-1), turned.norm(dim=-1), 1e-13)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("width", [8, 6])
def test_gradients(layout: str, width: int) -> None:
    cos, sin = tables(2, 3, width // 2, torch.float64)
    x = queries(2, 2, 3, 8, torch.float64, "transposed").requires_grad_()
    assert torch.autograd.gradcheck(lambda x: rotate(x, cos, sin, layout), x)
    assert torch.autograd.gradgradcheck(lambda x: rotate(x, cos, sin, layout), x)
    learned = cos.requires_grad_(), sin.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, cos, sin: rotate(x, cos, sin, layout), (x, *learned))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradient_is_the_rotation_back(layout: str, dtype: torch.dtype) -> None:
    cos, sin = tables(1, 5, 3)
    x = queries(2, 3, 5, 8, dtype).requires_grad_()
    gradient = queries(2, 3, 5, 8, dtype, "transposed")
    rotate(x, cos, sin, layout).backward(gradient)
    assert x.grad is not None
    assert_rounded("gradient", oracle(gradient, cos, -sin, layout), x.grad)
    x.grad = None
    rotate(x, cos, sin, layout).sum().backward()  # a gradient without memory of its own: all its strides are 0
    assert_rounded("gradient of a sum", oracle(torch.ones(2, 3, 5, 8), cos, -sin, layout), x.grad)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_whatever_follows_the_operators_sees_the_formula(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, (cos, sin) = queries(2, 3, 5, 8, torch.float32), tables(1, 5, 4)
    want = plain(x, cos, sin, layout)
    monkeypatch.setattr(rotation, "_turn", None)

    def turn(x: Tensor) -> Tensor:
        return rotate(x, cos, sin, layout)

    assert same_bits(want, torch.compile(turn, backend="eager", fullgraph=True)(x))
    assert same_bits(want, torch.func.vmap(turn)(torch.stack([x, x]))[1])
    assert_close(
        "torch.func", plain(torch.ones_like(x), cos, -sin, layout), torch.func.grad(lambda x: turn(x).sum())(x), 0
    )
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(turn(forward_ad.make_dual(x, x))).tangent
    assert_close("tangent", want, tangent, 1e-6)
    assert rotate(x.to("meta"), cos.to("meta"), sin.to("meta"), layout).shape == x.shape
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(t) for t in (x, cos, sin)]
        assert rotate(*fake, layout).shape == x.shape


@pytest.mark.parametrize("layout", LAYOUTS)
def test_exports_with_a_free_length(layout: str) -> None:
    class Turn(torch.nn.Module):
        def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
            return rotate(x, cos, sin, layout)

    length = {2: torch.export.Dim("length", min=2, max=4096)}
    arguments = (queries(2, 3, 5, 8, torch.bfloat16), *tables(1, 5, 4))
    program = torch.export.export(Turn(), arguments, dynamic_shapes=(length, length, length)).module()
    x, (cos, sin) = queries(2, 3, 9, 8, torch.bfloat16), tables(1, 9, 4)
    assert same_bits(program(x, cos, sin), rotate(x, cos, sin, layout))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_gradient_of_the_sines_alone(layout: str) -> None:
    x, (cos, sin) = queries(1, 2, 5, 8, torch.float64), tables(1, 5, 4, torch.float64)
    sin.requires_grad_()
    rotate(x, cos, sin, layout).sum().backward()
    half = x.unflatten(-1, (2, 4)).unbind(-2) if layout == "half" else x.unflatten(-1, (4, 2)).unbind(-1)
    assert sin.grad is not None
    torch.testing.assert_close(sin.grad, (half[0] - half[1]).sum(1, keepdim=True))


def test_pairs_of_a_precision_without_a_kernel_are_turned_in_eager_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "COMPILE_FROM", 0)
    for dtype in (torch.float64, torch.float16):
        x, (cos, sin) = queries(1, 2, 5, 8, dtype), tables(1, 5, 4, dtype)
        assert_rounded(f"{dtype}", oracle(x, cos, sin, "pairs"), rotate(x, cos, sin, "pairs"))
    assert rotation.backend() == "compiled"


@pytest.mark.parametrize(("said", "why"), [("0", "ROPEWALK_COMPILE=0"), ("", "no compiled kernel was asked for")])
def test_why_nothing_is_compiled(said: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROPEWALK_COMPILE", said)
    monkeypatch.setattr(rotation, "_WANTED", False)  # a training run earlier in this process asks for the kernel
    assert rotation.backend() == f"eager: {why}"


def test_wider_tables_widen_the_arithmetic() -> None:
    x, (cos, sin) = queries(1, 2, 5, 8, torch.float32), tables(1, 5, 4, torch.float64)
    assert_rounded("float64 tables", oracle(x, cos, sin, "half"), rotate(x, cos, sin, "half"))
    cos, sin = cos.float(), sin.float()
    assert_rounded("float64 x", oracle(x.double(), cos, sin, "half"), rotate(x.double(), cos, sin, "half"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"layout": "halves"}, "layout='halves': choose half or pairs"),
        ({"cos": torch.ones(1, 1, 5, 5), "sin": torch.ones(1, 1, 5, 5)}, "R <= 8"),
        ({"cos": torch.ones(1, 5, 4), "sin": torch.ones(1, 5, 4)}, "must be"),
        ({"cos": torch.ones(1, 3, 5, 4), "sin": torch.ones(1, 3, 5, 4)}, "must be"),
        ({"sin": torch.ones(1, 1, 5, 3)}, "must be"),
        ({"cos": torch.ones(3, 1, 5, 4), "sin": torch.ones(3, 1, 5, 4)}, "does not fit x"),
        ({"cos": torch.ones(1, 1, 4, 4), "sin": torch.ones(1, 1, 4, 4)}, "one row for each of 5 positions"),
        ({"cos": torch.ones(1, 1, 5, 4).bfloat16()}, "keep the tables in float32"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], says: str) -> None:
    cos, sin = tables(1, 5, 4)
    with pytest.raises(ValueError, match=says):
        rotate(**({"x": torch.ones(2, 3, 5, 8), "cos": cos, "sin": sin, "layout": "half"} | change))


LARGE = """
import warnings, torch
from ropewalk import rotation
x = torch.randn(1, 8, rotation.COMPILE_FROM // 256, 32)
cos, sin = torch.rand(2, 1, 1, rotation.COMPILE_FROM // 256, 16)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    outs = [rotation.rotate(x, cos, sin, "half") for _ in range(3)]
assert all(torch.equal(out, rotation.plain(x, cos, sin, "half")) for out in outs)
print(rotation.backend())
print(*[w.message for w in caught if w.category is RuntimeWarning], sep="\\n")
"""


@pytest.mark.parametrize(
    ("environment", "reason", "warned"),
    [
        ({"ROPEWALK_COMPILE": ""}, "eager: no compiled kernel was asked for", False),
        ({"ROPEWALK_COMPILE": "0"}, "eager: ROPEWALK_COMPILE=0", False),
        ({"ROPEWALK_COMPILE": "1", "TORCH_COMPILE_DISABLE": "1"}, "eager: torch.compile is disabled", True),
        ({"ROPEWALK_COMPILE": "1", "CXX": "/no/such/compiler"}, "eager: ", True),
    ],
    ids=["default", "refused", "disabled", "no compiler"],
)
def test_without_compilation(environment: dict[str, str], reason: str, warned: bool, tmp_path: Path) -> None:
    path = os.pathsep.join(filter(None, [str(Path(rotation.__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    environment = {"PYTHONPATH": path, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)} | environment
    done = subprocess.run(
        [sys.executable, "-c", LARGE], env=os.environ | environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    backend, *warnings = done.stdout.strip().splitlines()
    assert backend.startswith(reason)
    assert len(warnings) == warned, warnings
    assert not warned or "rotations run in eager mode" in warnings[0]


FIRST = """
import time, torch
from ropewalk.encodings import RoPE, compile_rotations
from ropewalk import rotation
signal = RoPE(head_width=128).at(torch.arange(1024))
x = torch.randn(1, 16, 1024, 128)
torch.sin(x)
began = time.process_time()
signal.rotate(x, "query")
print(time.process_time() - began)
compile_rotations()
print(rotation.backend())
"""


@pytest.mark.parametrize("compiler", [None, "/no/such/compiler"], ids=["with a compiler", "without"])
def test_nobody_waits_for_a_compiler_unasked(compiler: str | None, tmp_path: Path) -> None:
    """The first rotation of two million elements in a fresh process, in CPU time: other work does not count."""
    environment = {name: value for name, value in os.environ.items() if name != "ROPEWALK_COMPILE"}
    environment |= {"PYTHONPATH": str(Path(rotation.__file__).parents[2]), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    environment |= {"OMP_NUM_THREADS": "1"} | ({"CXX": compiler} if compiler else {})
    done = subprocess.run([sys.executable, "-c", FIRST], env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    seconds, backend = done.stdout.split()
    assert float(seconds) < 0.3
    assert backend == "compiled"
