"""What a file is by its first bytes, whatever its name says: safetensors, GGUF and JSON are read, programs are not.

A pickle is a program that runs when it is opened, and hides well: in a zip (torch.save), a tar (older torch), .npy and
.npz, under any suffix. There is no switch that opens one here.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Literal

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.files.run_folder import EXPORT, has_export, not_a_model

FileKind = Literal["safetensors", "gguf", "json", "directory"]

HEAD = 512

CONVERT = (
    'convert it where you trust it:  python -c "import sys, torch; from safetensors.torch import save_file; '
    "w = torch.load(sys.argv[1], map_location='cpu', weights_only=True); "
    "save_file({k: v.contiguous().clone() for k, v in w.items()}, 'model.safetensors')\" FILE  "
    "then pass the .safetensors"
)
PICKLE = "is a pickle (a program, not data); ropewalk does not run it"
PACKED = "unpack it, and pass the .safetensors, the .gguf or the model's directory"
OTHER = "pass a .safetensors, a .gguf, a config.json or a model's directory"

PROGRAMS: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", "is a zip, as torch.save and .npz are: pickles inside (programs, not data); not run here", CONVERT),
    (
        b"\x93NUMPY",
        "is a NumPy array, which may hold a pickle (a program, not data); ropewalk does not run it",
        CONVERT,
    ),
    (b"\x89HDF\r\n\x1a\n", "is HDF5, which Keras fills with programs", "convert it to safetensors where you trust it"),
    (b"\x7fELF", "is a program (ELF)", OTHER),
    (b"MZ", "is a program (Windows)", OTHER),
    (b"\xcf\xfa\xed\xfe", "is a program (Mach-O)", OTHER),
    (b"\xca\xfe\xba\xbe", "is a program (Mach-O or Java)", OTHER),
    (b"#!", "is a script", OTHER),
)
"""What runs, or may hold what does."""
SIGNATURES = (
    *PROGRAMS,
    (b"PK\x05\x06", "is an empty zip", OTHER),
    (b"7z\xbc\xaf\x27\x1c", "is a 7z archive", PACKED),
    (b"\x1f\x8b", "is a gzip", PACKED),
    (b"BZh", "is a bzip2", PACKED),
    (b"\xfd7zXZ\x00", "is an xz", PACKED),
    (b"\x28\xb5\x2f\xfd", "is a zstd", PACKED),
    (b"\x04\x22\x4d\x18", "is an lz4", PACKED),
    (b"Rar!", "is a rar archive", PACKED),
    (b"lmgg", "is a GGML file from before GGUF", "convert it with llama.cpp's convert_llama_ggml_to_gguf.py"),
    (b"tjgg", "is a GGJT file from before GGUF", "convert it with llama.cpp's convert_llama_ggml_to_gguf.py"),
    (b"fmgg", "is a GGMF file from before GGUF", "convert it with llama.cpp's convert_llama_ggml_to_gguf.py"),
    (b"PAR1", "is Parquet", OTHER),
    (b"SQLite format 3", "is a SQLite database", OTHER),
    (b"version https://git-lfs", "is a Git LFS pointer, not the file itself", "fetch it: git lfs pull"),
    (b"<", "is a web page or XML", "download the file itself, not the page about it"),
)
PROGRAM_SUFFIXES = (
    *(".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".npy", ".npz", ".h5", ".keras"),
    *(".py", ".pyc", ".pyd", ".sh", ".so", ".dylib", ".dll", ".exe", ".jar"),
)
# Protocols 0 and 1 have no magic: the first opcode pushes a mark, a global (a module and a name, each with its line)
# or an empty container that is then put in the memo.
OLD_PICKLE = re.compile(
    rb"\(?c[\w.]+\n[\w.]+\n|\((?:d|l|i[\w.]+\n|t|[SVIKFU(])|[\]})](?:q.|p\d|\.|\()|[IFVS][^\n]{0,99}\np?\d*"
)


def kind_of(path: str | os.PathLike[str]) -> FileKind:
    """What is there to be read, by content."""
    place = Path(path)
    try:
        mode = place.stat().st_mode
    except (OSError, ValueError):
        raise BadInput(path, "path", "does not exist or cannot be reached", "check the path") from None
    if stat.S_ISDIR(mode):
        return "directory"
    if not stat.S_ISREG(mode):
        raise BadInput(path, "path", "is a device, pipe or socket, not a file", OTHER)
    try:
        with place.open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise BadInput(path, "path", f"cannot be read ({error.strerror})", "check the file's rights") from None
    return _kind(head, place, place.stat().st_size)


def runs(path: Path) -> bool:
    """Whether a file is a program or may hold one: by its first bytes, or by a suffix that is for such."""
    if path.suffix.lower() in PROGRAM_SUFFIXES:
        return True
    with path.open("rb") as file:
        head = file.read(HEAD)
    if head[8:9] == b"{":  # a header of safetensors of 640 bytes begins as a pickle does
        return False
    return head.startswith(tuple(start for start, _, _ in PROGRAMS)) or _tar(head) or _pickle(head)


def _tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def _pickle(head: bytes) -> bool:
    """Of protocol 2 or later."""
    return head[:1] == b"\x80" and head[1:2] <= b"\x05"


def meant(path: str | os.PathLike[str]) -> Path:
    """What a directory without a config.json stands for: the one .gguf in it, or the model that a run exported. A run
    that has not exported one yet is refused with what to type."""
    place = Path(path)
    if not place.is_dir() or (place / "config.json").exists():
        return place
    files = sorted(place.glob("*.gguf"))
    if len(files) == 1:
        return files[0]
    if has_export(place):
        return place / EXPORT
    if (wrong := not_a_model(place)) is not None:
        raise wrong
    return place


def _kind(head: bytes, path: Path, size: int) -> FileKind:
    if not head:
        raise BadInput(path, "content", "is empty", "was the download cut off?")
    # First, for a header of 640 bytes begins as a pickle does: 0x80 0x02. One cut off is its reader's to refuse.
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= max(size - 8, 1 << 32):
        return "safetensors"
    if head.startswith(b"GGUF"):
        return "gguf"
    for start, problem, remedy in SIGNATURES:
        if head.startswith(start):
            raise BadInput(path, "content", problem, remedy)
    if _tar(head):
        raise BadInput(
            path, "content", "is a tar, as older torch.save files are: pickles inside; not run here", CONVERT
        )
    if _pickle(head):
        raise BadInput(path, "content", PICKLE, CONVERT)
    if head.lstrip(b" \t\r\n\xef\xbb\xbf")[:1] in (b"{", b"["):
        return "json"
    if OLD_PICKLE.match(head):
        raise BadInput(path, "content", PICKLE, CONVERT)
    if path.suffix == ".safetensors" or head[8:9] == b"{":
        return "safetensors"  # damaged: its reader says where
    raise BadInput(path, "content", "is neither safetensors, GGUF nor JSON", OTHER)
