"""The GGUF parser against the gguf package's writer and reader, and against files that lie about their sizes."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.files import gguf as gguf_file
from ropewalk.checkpoints.files.gguf import GGUF, TYPES, TensorInfo
from ropewalk.checkpoints.files.gguf_head import LONGEST_ELEMENT
from tests.checkpoints import file_bytes
from tests.checkpoints.file_bytes import Raw, Tensor, array

Q = gguf.GGMLQuantizationType
DEQUANTISED = [
    kind
    for kind in Q
    if kind.name[0] != "I" or kind.name.startswith("IQ")
    if kind not in (Q.F32, Q.F16, Q.F64, Q.BF16, Q.Q8_1, Q.Q8_K, Q.Q1_0)
]


def written(path: Path, tensors: dict[str, tuple[np.ndarray, Q | None]], vocabulary: int = 0) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(2048)
    writer.add_rope_freq_base(5e5)
    writer.add_bool("llama.truth", True)
    writer.add_float64("llama.double", 0.1)
    writer.add_int64("llama.below", -(2**40))
    if vocabulary:
        writer.add_token_list([f"token{n}" for n in range(vocabulary)])
        writer.add_token_scores([-float(n) for n in range(vocabulary)])
        writer.add_token_types([1] * vocabulary)
        writer.add_token_merges([f"a \u0120b{n}" for n in range(vocabulary)])
    for name, (values, kind) in tensors.items():
        writer.add_tensor(name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_reads_what_the_package_writes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    three = rng.standard_normal((3, 5, 64)).astype(np.float32)
    half = rng.standard_normal((7, 3)).astype(np.float16)
    quantised = gguf.quants.quantize(three, Q.Q4_1)
    bfloat = gguf.quants.quantize(three, Q.BF16)
    tensors = {"f32": (three, None), "f16": (half, None), "q4": (quantised, Q.Q4_1), "bf16": (bfloat, Q.BF16)}
    path = written(tmp_path / "a.gguf", tensors | {"f64": (np.arange(3.0), None)}, 10)
    file = GGUF(path)
    assert file.version == 3
    assert file.metadata["llama.context_length"] == 2048
    assert file.metadata["llama.rope.freq_base"] == 5e5
    assert file.metadata["llama.truth"] is True
    assert file.metadata["llama.double"] == 0.1
    assert file.metadata["llama.below"] == -(2**40)
    assert file.metadata["tokenizer.ggml.tokens"] == [f"token{n}" for n in range(10)]
    assert file.metadata["tokenizer.ggml.scores"] == [-float(n) for n in range(10)]
    assert file.metadata["tokenizer.ggml.merges"][9] == "a \u0120b9"
    assert {name: (info.shape, info.type) for name, info in file.tensors.items()} == {
        "f32": ((3, 5, 64), "F32"),
        "f16": ((7, 3), "F16"),
        "q4": ((3, 5, 64), "Q4_1"),
        "bf16": ((3, 5, 64), "BF16"),
        "f64": ((3,), "F64"),
    }
    np.testing.assert_array_equal(file.floats("f32"), three)
    np.testing.assert_array_equal(file.floats("f16"), half.astype(np.float32))
    np.testing.assert_array_equal(file.floats("f64"), np.arange(3, dtype=np.float32))
    np.testing.assert_array_equal(file.floats("q4"), gguf.quants.dequantize(quantised, Q.Q4_1))
    np.testing.assert_array_equal(file.floats("bf16"), gguf.quants.dequantize(bfloat, Q.BF16))
    assert file.floats("f32").flags.owndata or file.floats("f32").base.flags.owndata


@pytest.mark.parametrize("kind", DEQUANTISED, ids=lambda kind: kind.name)
def test_dequantises_as_the_package_does_in_pieces_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Q
) -> None:
    block, width = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 256, (6, 2 * width), dtype=np.uint8)
    path = tmp_path / "a.gguf"
    path.write_bytes(file_bytes.gguf(tensors=[Tensor("w", (2 * block, 3, 2), kind)], data=rows.tobytes()))
    monkeypatch.setattr(gguf_file, "PIECE", 4 * block)
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(rows, kind).reshape(2, 3, 2 * block)
    np.testing.assert_array_equal(GGUF(path).floats("w"), expected)


def test_types_are_the_package_s() -> None:
    assert {int(kind): (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()} == TYPES


def test_a_vocabulary_of_50_000_is_read_in_a_moment(tmp_path: Path) -> None:
    path = written(tmp_path / "a.gguf", {"w": (np.zeros(4, np.float32), None)}, 50_000)
    start = time.process_time()
    file = GGUF(path)
    assert len(file.metadata["tokenizer.ggml.tokens"]) == 50_000
    assert time.process_time() - start < 0.4
    assert file.metadata["tokenizer.ggml.tokens"][-1] == "token49999"
    assert file.metadata["tokenizer.ggml.scores"] == [-float(n) for n in range(50_000)]
    assert file.metadata["tokenizer.ggml.merges"][49_999] == "a \u0120b49999"
    assert file.small["llama.context_length"] == 2048
    assert "tokenizer.ggml.tokens" in file.metadata.keys() - file.small.keys()


def test_version_2_and_bytes_behind_the_last_tensor_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(file_bytes.gguf(version=b"\2\0\0\0", data=file_bytes.floats(1, 2, 3, 4) + b"tail"))
    file = GGUF(path)
    assert file.tensors == {"w": TensorInfo((4,), "F32", 128, 16)}
    assert file.floats("w").tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("kind", [Q.Q8_1, Q.Q8_K, Q.Q1_0, Q.I32], ids=lambda kind: kind.name)
def test_a_type_without_float_values_is_refused_when_read(tmp_path: Path, kind: Q) -> None:
    block, width = gguf.GGML_QUANT_SIZES[kind]
    path = tmp_path / "a.gguf"
    path.write_bytes(file_bytes.gguf(tensors=[Tensor("w", (block,), kind)], data=b"\0" * width))
    with pytest.raises(BadInput, match=rf"a\.gguf: w: type {kind.name} "):
        GGUF(path).floats("w")


A = "general.architecture"
REFUSED: dict[str, tuple[bytes, str, str]] = {
    "magic": (file_bytes.gguf(magic=b"FUGG"), "header", "begins with"),
    "big-endian": (file_bytes.gguf(version=b"\0\0\0\3"), "version", "big-endian"),
    "version 1": (file_bytes.gguf(version=b"\1\0\0\0"), "version", "is 1"),
    "too many tensors": (file_bytes.gguf(tensor_count=1 << 40), "tensor_count", "is the most"),
    "more tensors than bytes": (file_bytes.gguf(tensor_count=1000), "tensor_count", "can hold"),
    "more keys than bytes": (file_bytes.gguf(key_count=1000), "kv_count", "can hold"),
    "array of 2**40": (file_bytes.gguf([("k", array(8, 1 << 40))], []), "k", "elements in all arrays"),
    "array longer than the file": (file_bytes.gguf([("k", array(5, 1000))], []), "k", "bytes left"),
    "string of 2**62": (file_bytes.gguf([("k", Raw(8, struct.pack("<Q", 1 << 62)))]), "k", "are left in the file"),
    "nested three deep": (
        file_bytes.gguf([("k", array(9, 1, struct.pack("<IQIQ", 9, 1, 9, 1)))]),
        "k",
        "arrays inside arrays",
    ),
    "bool of 2": (file_bytes.gguf([("k", Raw(7, b"\2"))]), "k", "truth value"),
    "bool of 2 in an array": (file_bytes.gguf([("k", array(7, 2, b"\1\2"))]), "k", "truth value"),
    "type 13": (file_bytes.gguf([("k", Raw(13, b"\0" * 8))]), "k", "type 13"),
    "NaN": (file_bytes.gguf([("llama.rope.freq_base", float("nan"))]), "llama.rope.freq_base", "not a finite"),
    "key twice": (file_bytes.gguf([(A, "llama"), (A, "gemma")]), A, "given twice"),
    "empty key": (file_bytes.gguf([("", 1)]), "key 0", "no name"),
    "key not UTF-8": (file_bytes.gguf([(b"\xff", 1)]), "key 0", "UTF-8"),
    "token not UTF-8": (file_bytes.gguf([("k", array(8, 1, file_bytes.text(b"\xff")))]), "k", "string 0"),
    "alignment 7": (file_bytes.gguf([("general.alignment", 7)]), "general.alignment", "power of two"),
    "alignment text": (file_bytes.gguf([("general.alignment", "x")]), "general.alignment", "power of two"),
    "no axes": (file_bytes.gguf(tensors=[Tensor("w", (4,), axes=0)]), "w", "0 dimensions"),
    "2**31 axes": (file_bytes.gguf(tensors=[Tensor("w", (4,), axes=1 << 31)]), "w", "dimensions"),
    "axis 0": (file_bytes.gguf(tensors=[Tensor("w", (4, 0))]), "w", "no elements"),
    "product past 2**64": (file_bytes.gguf(tensors=[Tensor("w", (1 << 32, 1 << 32))]), "w", "needs"),
    "type 9999": (file_bytes.gguf(tensors=[Tensor("w", (4,), 9999)]), "w", "type 9999"),
    "row not of blocks": (file_bytes.gguf(tensors=[Tensor("w", (33,), 2)], data=b"\0" * 99), "w", "block of 32"),
    "offset not aligned": (file_bytes.gguf(tensors=[Tensor("w", (1,), offset=4)]), "w", "alignment"),
    "offset past the end": (file_bytes.gguf(tensors=[Tensor("w", offset=1 << 40)]), "w", "are left"),
    "cut off": (file_bytes.gguf(data=b"\0" * 15), "w", "ends at byte"),
    "alias": (file_bytes.gguf(tensors=[Tensor("a"), Tensor("b")]), "b", "inside the tensor before"),
    "hole": (file_bytes.gguf(tensors=[Tensor("a"), Tensor("b", offset=64)], data=b"\0" * 99), "b", "hole"),
    "tensor twice": (file_bytes.gguf(tensors=[Tensor("a"), Tensor("a", offset=32)]), "a", "given twice"),
    "short": (b"GGUF\3\0\0\0", "size", "24 bytes"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refuses(tmp_path: Path, what: str) -> None:
    data, field, says = REFUSED[what]
    path = tmp_path / "a.gguf"
    path.write_bytes(data)
    with pytest.raises(BadInput, match=r"a\.gguf: ") as caught:
        GGUF(path)
    assert caught.value.field == field
    assert says in str(caught.value)


@pytest.mark.parametrize("data", [b"\xff", b"\xc3"])
def test_a_long_array_is_checked_when_the_file_is_opened(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.gguf"
    strings = file_bytes.text("a") * 5000 + file_bytes.text(data)
    path.write_bytes(file_bytes.gguf([("k", array(8, 5001, strings))]))
    with pytest.raises(BadInput, match="k: string 5,000 is not UTF-8"):
        GGUF(path)
    path.write_bytes(file_bytes.gguf([("k", array(7, 5001, b"\1" * 5000 + b"\2"))]))
    with pytest.raises(BadInput, match="k: a truth value is 2"):
        GGUF(path)


def test_every_cut_of_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    keys = [("a", "text"), ("b", 1.5), ("c", ["x", "yz"]), ("d", True), ("e", array(5, 2, b"\1\0\0\0\2\0\0\0"))]
    whole = file_bytes.gguf(keys, [Tensor("v"), Tensor("w", offset=32)], b"\0" * 48)
    path.write_bytes(whole)
    assert GGUF(path).metadata == {"a": "text", "b": 1.5, "c": ["x", "yz"], "d": True, "e": [1, 2]}
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(BadInput, match=r"a\.gguf"):
            GGUF(path)


@pytest.mark.parametrize("others", [0, 5000])
def test_a_string_in_an_array_has_a_bound(tmp_path: Path, others: int) -> None:
    for length, says in (
        (LONGEST_ELEMENT, None),
        (LONGEST_ELEMENT + 1, r"k: string \d[\d,]* has 65,537 bytes, 65,536 is"),
    ):
        strings = file_bytes.text("a") * others + file_bytes.text("a" * length)
        (tmp_path / "a.gguf").write_bytes(file_bytes.gguf([("k", array(8, others + 1, strings))]))
        if says is None:
            assert len(GGUF(tmp_path / "a.gguf").metadata["k"][-1]) == length
        else:
            with pytest.raises(BadInput, match=says):
                GGUF(tmp_path / "a.gguf")


@pytest.mark.parametrize(
    ("strings", "said"),
    [
        (["é", "a" * 255, "", "字"], None),
        (["a" * 256, "é"], None),
        ([b"\xc3", b"\xa9"], "string 5,000 is not UTF-8"),  # one character over two strings
        (["", b"", b"\xa9"], "string 5,002 is not UTF-8"),
        ([b"\xc3", "é"], "string 5,000 is not UTF-8"),
        (["a" * (LONGEST_ELEMENT + 1)], f"string 5,000 has {LONGEST_ELEMENT + 1:,} bytes"),
    ],
)
def test_strings_checked_together_are_each_checked(
    tmp_path: Path, strings: list[str | bytes], said: str | None
) -> None:
    before = ["ab"] * 5000
    listed = b"".join(file_bytes.text(each) for each in (*before, *strings, *before))
    path = tmp_path / "a.gguf"
    path.write_bytes(file_bytes.gguf([("k", array(8, 10_000 + len(strings), listed)), ("after", 7)], []))
    if said is None:
        assert GGUF(path).metadata == {"k": [*before, *strings, *before], "after": 7}
        return
    with pytest.raises(BadInput, match=said):
        GGUF(path)


@pytest.mark.parametrize("cut", [1, 9, 10, 11, 20])
def test_a_file_cut_in_a_long_array_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.gguf"
    whole = file_bytes.gguf([("k", array(8, 5000, file_bytes.text("ab") * 5000))], [], b"", alignment=1)
    path.write_bytes(whole[:-cut])
    with pytest.raises(BadInput, match="k: "):
        GGUF(path)
