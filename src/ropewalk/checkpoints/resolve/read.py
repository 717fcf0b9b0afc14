"""What positions a checkpoint really uses: config.json or GGUF in, one plan a side out, each value with its source.

resolve(config), resolve_gguf(file), read(path). Nothing is guessed: a position key that is contradicted or missing
is a BadInput that says what the readings are, and one that is not understood is too unless `strict` is off.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.files.gguf import GGUF
from ropewalk.checkpoints.files.sniff import kind_of, meant
from ropewalk.checkpoints.files.strict_json import read_json
from ropewalk.checkpoints.resolve.gguf import resolve_gguf
from ropewalk.checkpoints.resolve.hf import resolve
from ropewalk.checkpoints.resolve.native import MODEL_TYPE, resolve_native
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.plan import Arithmetic

__all__ = ["Resolved", "read", "resolve", "resolve_gguf"]


def read(
    path: Path | str, *, arithmetic: Arithmetic = "exact", strict: bool = True, kinds: Collection[str] = ()
) -> Resolved:
    """A directory with a config.json, a config.json, or a .gguf file.

    strict=False: keys about positions that are not understood are named in the answer, and are no error.
    kinds: encodings of other packages to import where a model of our own names them, as for `load`.
    """
    try:
        return _read(Path(path), arithmetic, strict, kinds)
    except BadInput as error:
        # Every directory has a config.json, so an error says which one; sources in the plan need not.
        if Path(error.file).name != error.file or Path(error.file) == Path(path):
            raise
        folder = Path(path) if Path(path).is_dir() else Path(path).parent
        raise BadInput(folder / error.file, error.field, error.problem, error.remedy) from None


def _read(given: Path, arithmetic: Arithmetic, strict: bool, kinds: Collection[str]) -> Resolved:
    path = meant(given)
    kind = kind_of(path)
    if kind == "gguf":
        return resolve_gguf(GGUF(path), arithmetic=arithmetic, strict=strict)
    if kind == "safetensors":
        raise BadInput(
            path.name, "contents", "holds weights, and says nothing of positions", "give the directory it is in"
        )
    config = path / "config.json" if kind == "directory" else path
    if kind == "directory" and not config.is_file():
        raise BadInput(path, "config.json", "is missing", "give a model directory, a config.json or a .gguf file")
    # A config.json is known by the folder it is in; any other file by its own name.
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    name = given.absolute().name if kind == "directory" else name
    said = read_json(config)
    if said.get("model_type") == MODEL_TYPE:
        return resolve_native(config, name, kinds)
    return resolve(said, name=name, where=config.name, arithmetic=arithmetic, strict=strict)
