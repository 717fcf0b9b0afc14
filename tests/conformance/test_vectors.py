"""Golden vectors, worked out again in another arithmetic (mpmath, 220 bits) from the settings in vectors.json alone."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import mpmath
import numpy as np
import pytest
import torch
from mpmath import mpf

from ropewalk.conformance import oracles
from ropewalk.conformance.vectors import arrays, page
from ropewalk.encodings import RoPE, Sinusoidal
from ropewalk.positions import FARTHEST, explicit
from ropewalk.scaling import names
from tests.cli.conftest import Ropewalk, ropewalk

__all__ = ["ropewalk"]

BITS = 220
Numbers = list[Any]


class Written(NamedTuple):
    folder: Path
    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]
    reader: Any


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("vectors") / "out"
    assert [path.name for path in arrays.write(folder)] == list(arrays.FILES)
    spec = importlib.util.spec_from_file_location("read_vectors", folder / "read_vectors.py")
    assert spec is not None
    assert spec.loader is not None
    reader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reader)
    return Written(folder, *reader.load(folder), reader)


@pytest.fixture(autouse=True)
def bits() -> Any:
    with mpmath.workprec(BITS):
        yield


def ramp(x: Any) -> Any:
    return min(max(x, mpf(0)), mpf(1))


def frequencies(spec: dict[str, Any]) -> Numbers:
    R, b, s = spec["rotary_width"], mpf(spec["base"]), spec["scaling"] or {"kind": "plain"}
    plain = [b ** (mpf(-2 * i) / R) for i in range(R // 2)]
    factor, L = mpf(s.get("factor", 1)), s.get("trained")
    match s["kind"]:
        case "plain":
            return plain
        case "linear":
            return [w / factor for w in plain]
        case "ntk":
            return [(b * factor ** (mpf(R) / (R - 2))) ** (mpf(-2 * i) / R) for i in range(R // 2)]
        case "dynamic":
            length = max(spec["length"], L)
            base = b * (factor * length / L - (factor - 1)) ** (mpf(R) / (R - 2))
            return [base ** (mpf(-2 * i) / R) for i in range(R // 2)]
        case "yarn" if s["ramp"] == "code":
            low, high = (
                R * mpmath.log(L / (2 * mpmath.pi * mpf(s[turns]))) / (2 * mpmath.log(b))
                for turns in ("beta_fast", "beta_slow")
            )
            low, high = (mpmath.floor(low), mpmath.ceil(high)) if s["truncate"] else (low, high)
            low, high = max(low, 0), min(high, R - 1)
            shares = [ramp((i - low) / (high - low)) for i in range(R // 2)]
            return [w * (1 - share) + w / factor * share for w, share in zip(plain, shares, strict=True)]
        case "yarn" | "llama3":
            slow, fast = (s["beta_slow"], s["beta_fast"]) if s["kind"] == "yarn" else (s["low"], s["high"])
            kept = [ramp((L * w / (2 * mpmath.pi) - slow) / (mpf(fast) - slow)) for w in plain]
            return [(1 - keep) * w / factor + keep * w for w, keep in zip(plain, kept, strict=True)]
        case "longrope":
            divisors = s["long"] if spec["length"] > L else s["short"]
            return [w / mpf(by) for w, by in zip(plain, divisors, strict=True)]
        case "proportional":
            turning = int(s["fraction"] * R) // 2
            return [w / factor if i < turning else mpf(0) for i, w in enumerate(plain)]
    raise AssertionError(s)


def gains(spec: dict[str, Any]) -> Numbers:
    s = spec.get("scaling") or {"kind": "plain"}
    if s["kind"] == "longrope":
        return [mpmath.sqrt(1 + mpmath.log(s["factor"]) / mpmath.log(s["trained"])), mpf(1)]
    if s["kind"] != "yarn":
        return [mpf(1), mpf(1)]

    def g(m: float) -> Any:
        return mpf(m) * mpmath.log(s["factor"]) / 10 + 1

    everywhere = s.get("mscale_all_dim", 0.0)
    rotary = g(s.get("mscale", 1.0)) / g(everywhere)
    return [mpf(s.get("attention_factor", rotary)), g(everywhere) ** 2 if s["dialect"] == "deepseek" else mpf(1)]


def rotate(x: Numbers, position: int, spec: dict[str, Any], layout: str) -> Numbers:
    """By complex numbers."""
    out, R = [mpf(value) for value in x], spec["rotary_width"]
    for i, w in enumerate(frequencies(spec)):
        a, b = (2 * i, 2 * i + 1) if layout == "pairs" else (i, i + R // 2)
        z = mpmath.mpc(x[a], x[b]) * mpmath.expj(position * w) * gains(spec)[0]
        out[a], out[b] = z.real, z.imag
    return out


def doubles(values: Any) -> np.ndarray:
    return np.array([float(value) for value in values])


def lcg(count: int, state: int) -> Numbers:
    found = []
    for _ in range(count):
        state = (1103515245 * state + 12345) % 2**31
        found.append(((state >> 16) % 256 - 128) / 64)
    return found


def test_every_scaling_is_there() -> None:
    kinds = {spec.scaling.kind for spec in arrays.CASES.values() if spec.scaling is not None}
    assert kinds == set(names())


@pytest.mark.parametrize("name", arrays.CASES)
def test_frequencies_and_gains(written: Written, name: str) -> None:
    case = written.facts["cases"][name]
    want = frequencies(case["spec"])
    np.testing.assert_array_equal(written.arrays[f"frequencies/{name}"], doubles(want))
    np.testing.assert_array_equal(written.arrays[f"gains/{name}"], doubles(gains(case["spec"])))
    assert written.arrays[f"gains/{name}"] == pytest.approx(np.array(oracles.gains(arrays.CASES[name])), rel=1e-15)
    said = [*case["frequencies"], case["rotary_gain"], case["logit_gain"]]
    for text, value in zip(said, [*want, *gains(case["spec"])], strict=True):
        assert len(Decimal(text).as_tuple().digits) <= arrays.DIGITS
        assert abs(mpf(text) - value) <= value * mpf(10) ** (1 - arrays.DIGITS)


@pytest.mark.parametrize("name", arrays.CASES)
def test_cos_and_sin(written: Written, name: str) -> None:
    spec = written.facts["cases"][name]["spec"]
    omegas, gain = frequencies(spec), gains(spec)[0]
    for row, position in enumerate(written.arrays["positions"].tolist()):
        circle = [gain * mpmath.expj(position * w) for w in omegas]
        np.testing.assert_array_equal(written.arrays[f"cos/{name}"][row], doubles(z.real for z in circle))
        np.testing.assert_array_equal(written.arrays[f"sin/{name}"][row], doubles(z.imag for z in circle))


@pytest.mark.parametrize("layout", ["half", "pairs"])
@pytest.mark.parametrize("name", arrays.CASES)
def test_rotated_vectors(written: Written, name: str, layout: str) -> None:
    spec = written.facts["cases"][name]["spec"]
    x = lcg(spec["head_width"], spec["head_width"])
    np.testing.assert_array_equal(written.arrays[f"input/{spec['head_width']}"], x)
    for row in (0, 4, 9, 14):
        position = written.facts["positions"][row]
        got = written.arrays[f"rotated/{layout}/{name}"][row]
        np.testing.assert_array_equal(got, doubles(rotate(x, position, spec, layout)))
        np.testing.assert_array_equal(got[spec["rotary_width"] :], x[spec["rotary_width"] :])


@pytest.mark.parametrize("width", arrays.SINUSOIDAL)
def test_sinusoidal(written: Written, width: int) -> None:
    base = written.facts["sinusoidal"][str(width)]["base"]
    omegas = frequencies({"rotary_width": width, "base": base, "scaling": None})
    for row, position in enumerate(written.arrays["positions"].tolist()):
        circle = [mpmath.expj(position * w) for w in omegas]
        sines, cosines = doubles(z.imag for z in circle), doubles(z.real for z in circle)
        pairs, half = (written.arrays[f"sinusoidal/{layout}/{width}"][row] for layout in ("pairs", "half"))
        np.testing.assert_array_equal(half, np.concatenate([sines, cosines]))
        np.testing.assert_array_equal(pairs[0::2], sines)
        np.testing.assert_array_equal(pairs[1::2], cosines)


@pytest.mark.parametrize("layout", ["pairs", "half"])
def test_our_sinusoids_are_these(written: Written, layout: str) -> None:
    got = Sinusoidal(width=64, layout=layout)(explicit(torch.tensor(written.arrays["positions"])[None], FARTHEST))[0]
    off, _ = written.reader.farthest_off(got.numpy(), written.arrays[f"sinusoidal/{layout}/64"])
    assert off <= 1e-6


@pytest.mark.parametrize("name", arrays.ATTENTION)
def test_attention(written: Written, name: str) -> None:
    spec = written.facts["attention"][name]["spec"]
    part = {key: written.arrays[f"attention/{name}/{key}"] for key in arrays.attention(arrays.ATTENTION[name])}
    H, K, window = spec["heads"], spec["head_width"], spec["window"]
    assert part["q"].ravel().tolist() == lcg(H * 3 * K, 1)
    assert part["k"].ravel().tolist() == lcg(H * 10 * K, 2)
    scale = gains(spec)[1] / mpmath.sqrt(K)
    m, n = part["q_positions"].tolist(), part["k_positions"].tolist()
    for h in (0, H - 1):
        q, k = part["q"][h].tolist(), part["k"][h].tolist()
        slope = mpf(0)
        if spec["kind"] == "rope":
            q = [rotate(x, at, spec, spec["layout"]) for x, at in zip(q, m, strict=True)]
            k = [rotate(x, at, spec, spec["layout"]) for x, at in zip(k, n, strict=True)]
        else:
            slope = mpf(float(written.arrays["alibi/slopes"][H - 1, h]))
        for i, x in enumerate(q):
            row = [mpmath.fdot(x, y) * scale - slope * abs(m[i] - at) for y, at in zip(k, n, strict=True)]
            seen = [0 <= m[i] - at < (window or 2**60) for at in n]
            total = sum(mpmath.exp(score) for score, ok in zip(row, seen, strict=True) if ok)
            shares = [mpmath.exp(score) / total if ok else 0 for score, ok in zip(row, seen, strict=True)]
            np.testing.assert_array_equal(part["logits"][h, i], doubles(row))
            np.testing.assert_array_equal(part["probabilities"][h, i], doubles(shares))
            assert part["visible"][i].tolist() == seen


@pytest.mark.parametrize("name", arrays.ATTENTION)
def test_attention_is_also_the_oracles(written: Written, name: str) -> None:
    case = arrays.ATTENTION[name]
    q, k, m, n, want = (
        torch.tensor(written.arrays[f"attention/{name}/{key}"])[None]
        for key in ("q", "k", "q_positions", "k_positions", "logits")
    )
    assert torch.allclose(oracles.scores(q, k, m, n, case.spec), want, atol=1e-12, rtol=1e-15)


def test_slopes(written: Written) -> None:
    table = written.arrays["alibi/slopes"]
    for heads in range(1, 129):
        power = 2 ** (heads.bit_length() - 1)
        exponents = [mpf(8 * h) / power for h in range(1, power + 1)]
        exponents += [mpf(4 * h) / power for h in range(1, 2 * power, 2)][: heads - power]
        np.testing.assert_array_equal(table[heads - 1, :heads], doubles(mpf(2) ** -e for e in exponents))
        assert not table[heads - 1, heads:].any()
    for heads, slopes in written.facts["alibi_slopes"].items():
        assert table[int(heads) - 1, : int(heads)].tolist() == slopes


@pytest.mark.parametrize(("count", "farthest"), arrays.BUCKETS)
@pytest.mark.parametrize("way", ["one_way", "two_way"])
def test_buckets(written: Written, count: int, farthest: int, way: str) -> None:
    found = written.arrays[f"t5/{way}/{count}_{farthest}"].tolist()
    half = count // 2 if way == "two_way" else count
    for ahead, bucket in zip(written.arrays["t5/distances"].tolist(), found, strict=True):
        apart = abs(ahead) if way == "two_way" else max(-ahead, 0)
        want, exact = apart, half // 2
        if apart >= exact:
            share = mpmath.log(mpf(apart) / exact) / mpmath.log(mpf(farthest) / exact) * (half - exact)
            # Where the logarithm is whole, 220 bits may fall on either side of it.
            share = mpmath.nint(share) if abs(share - mpmath.nint(share)) < mpf(2) ** -150 else share
            want = min(exact + int(mpmath.floor(share)), half - 1)
        assert bucket == want + (half if way == "two_way" and ahead > 0 else 0), ahead
    firsts = written.facts["t5_first_distance_of_each_bucket"][f"{count}_{farthest}"]
    name = "one_way" if way == "one_way" else "two_way_behind"
    assert len(firsts[name]) == half
    assert all(first in (0, *range(1, farthest + 1)) for first in firsts[name])


@pytest.mark.parametrize("name", ["plain", "yarn", "llama3_500k_128", "partial"])
def test_what_the_page_allows_is_what_exact_angles_in_float32_need(written: Written, name: str) -> None:
    spec = arrays.CASES[name]
    x = torch.tensor(written.arrays[f"input/{spec.head_width}"], dtype=torch.float32)
    at = torch.tensor(written.arrays["positions"])[None]
    rope = RoPE(
        head_width=spec.head_width, base=spec.base, rotary_width=spec.rotary_width, scaling=spec.scaling,
        arithmetic="exact",
    )  # fmt: skip
    got = rope.at(at).rotate(x.expand(1, 1, at.shape[1], -1), "query")[0, 0]
    off, _ = written.reader.farthest_off(got.numpy(), written.arrays[f"rotated/half/{name}"])
    assert off <= 1e-6 * oracles.gains(spec)[0]


def test_the_page_says_where_every_array_is(written: Written) -> None:
    text = (written.folder / "README.md").read_text(encoding="utf-8")
    raw = (written.folder / "vectors.safetensors").read_bytes()
    assert set(page.places(raw)) == set(written.arrays)
    for name, place in page.places(raw).items():
        assert f"| `{name}` | {place['dtype']} |" in text
        assert place["first"] % np.dtype(place["dtype"]).itemsize == 0
        flat = np.frombuffer(raw, place["dtype"], int(np.prod(place["shape"])), place["first"])
        np.testing.assert_array_equal(flat.reshape(place["shape"]), written.arrays[name])


def test_the_page_explains_every_kind_of_array(written: Written) -> None:
    page = (written.folder / "README.md").read_text(encoding="utf-8")
    arrays = page.partition("## Arrays")[2].partition("## Without")[0]
    for name in written.arrays:
        kind = name.split("/")[0]
        part = name.split("/")[-1] if kind == "attention" else ""
        assert f"`{kind}" in arrays
        assert part in arrays


def test_the_python_of_the_documentation_prints_what_it_says(written: Written, tmp_path: Path) -> None:
    shutil.copytree(written.folder, tmp_path / "vectors")
    shutil.copy(written.folder / "read_vectors.py", tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "en" / "vectors.md").read_text(encoding="utf-8")
    code, said = re.findall(
        r"^```(?:python)?\n(.*?)^```$", text.partition("## In Python")[2], re.DOTALL | re.MULTILINE
    )[:2]
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"of {len(arrays.CASES)} cases" in text
    assert f"**Whole attentions**, {len(arrays.ATTENTION)} of them" in text
    # Each machine's float32 cosine may differ in its last place.
    assert [line.split()[0] for line in done.stdout.splitlines()] == [line.split()[0] for line in said.splitlines()]
    for line, other in zip(done.stdout.splitlines(), said.splitlines(), strict=True):
        assert float(line.split()[-1]) == pytest.approx(float(other.split()[-1]), rel=0.1)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_c_of_the_page_runs(written: Written, tmp_path: Path) -> None:
    page = (written.folder / "README.md").read_text(encoding="utf-8")
    code = page.partition("```c\n")[2].partition("```")[0]
    first, _, rest = code.partition("\n")
    show = 'for (int i = 0; i < 15 * 32; i++) printf("%.17g\\n", cosines[i]);'
    (tmp_path / "main.c").write_text(f"{first}\nint main(void) {{\n{rest}\n{show}\nreturn 0;\n}}\n", encoding="utf-8")
    subprocess.run(["cc", "-o", "main", "main.c"], cwd=tmp_path, check=True, capture_output=True)
    out = subprocess.run([tmp_path / "main"], cwd=written.folder, check=True, capture_output=True, text=True).stdout
    assert [float(line) for line in out.split()] == written.arrays["cos/yarn"].ravel().tolist()


def test_the_reader_needs_numpy_alone(written: Written) -> None:
    """In a Python that sees nothing of ours, of torch or of safetensors."""
    refuse = (
        "import sys, runpy\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        assert name.partition('.')[0] not in ('torch', 'ropewalk', 'safetensors', 'pydantic'), name\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "runpy.run_path('read_vectors.py', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", refuse], cwd=written.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(written.arrays)
    assert len((written.folder / "read_vectors.py").read_text(encoding="utf-8").splitlines()) <= 64


def test_the_reader_agrees_with_safetensors(written: Written) -> None:
    from safetensors.numpy import load_file

    other = load_file(written.folder / "vectors.safetensors")
    assert set(other) == set(written.arrays)
    for name, array in other.items():
        assert array.dtype == written.arrays[name].dtype
        np.testing.assert_array_equal(array, written.arrays[name])


def test_the_reader_refuses_half_a_file(written: Written, tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes((written.folder / "vectors.safetensors").read_bytes()[:100])
    with pytest.raises(ValueError, match="not a whole safetensors file: 100 bytes"):
        written.reader.read(tmp_path / "short")


def test_the_farthest_off(written: Written) -> None:
    want = np.array([[1.0, -np.inf], [0.0, 2.0]])
    assert written.reader.farthest_off(want.copy(), want) == (0.0, (0, 0))
    assert written.reader.farthest_off(want + np.array([[0, 0], [0, 0.5]]), want) == (0.5, (1, 1))
    assert written.reader.farthest_off(np.array([[1.0, np.nan], [0, 2]]), want) == (np.inf, (0, 1))
    with pytest.raises(ValueError, match=r"shape \(1,\) was given"):
        written.reader.farthest_off(np.zeros(1), want)


def test_the_command_writes_the_same_and_never_over_another(
    ropewalk: Ropewalk, written: Written, tmp_path: Path
) -> None:
    answer = ropewalk("verify", "--vectors", "out")
    assert answer.code == 0
    assert answer.stdout.split() == [str(Path("out") / name) for name in arrays.FILES]
    for name in arrays.FILES:
        assert (tmp_path / "out" / name).read_bytes() == (written.folder / name).read_bytes()
    json.loads((tmp_path / "out" / "vectors.json").read_text(encoding="utf-8"))
    (tmp_path / "out" / "README.md").write_text("mine", encoding="utf-8")
    answer = ropewalk("verify", "--vectors", "out")
    assert answer.code == 3
    assert "README.md is there and differs" in answer.stderr
    assert (tmp_path / "out" / "README.md").read_text(encoding="utf-8") == "mine"
