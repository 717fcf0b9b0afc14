"""A checkpoint opened for evaluation: the engine, its tokenizer, and a digest of its weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import torch

from ropewalk.checkpoints.engines.facts import Facts
from ropewalk.checkpoints.errors import plain
from ropewalk.checkpoints.files.sniff import meant
from ropewalk.checkpoints.load.model import load
from ropewalk.checkpoints.resolve.read import read
from ropewalk.checkpoints.tokens.tokenizer import of
from ropewalk.encodings import Encoding
from ropewalk.encodings.find import code_of
from ropewalk.evaluate.engines.begun import Begun
from ropewalk.evaluate.engines.ours import Ours
from ropewalk.evaluate.passage import Engine
from ropewalk.system import keep_freed_memory

WEIGHTS = (".safetensors", ".gguf", "config.json")


ENGINES = ("ropewalk", "transformers", "llama.cpp", "llama.cpp:FILE", "vllm:PYTHON")
"""As --engine writes them. FILE: the .gguf of a model that is given as a directory. PYTHON: that of vLLM's own
environment."""
VLLM, LLAMA_CPP = "vllm:", "llama.cpp:"


def opened(
    path: str | Path,
    *,
    engine: str = "ropewalk",
    dtype: str | None = None,
    kinds: Collection[str] = (),
    hashed: bool = True,
) -> tuple[Engine, Callable[[str], Sequence[int]]]:
    """The engine, whose texts begin as the tokenizer begins them, and what turns a document into tokens. hashed:
    whether the engine names its weights by their digest, which reads all of them; measurements that are stored need
    it."""
    check_name(engine)
    place = meant(Path(engine.removeprefix(LLAMA_CPP) if engine.startswith(LLAMA_CPP) else path))
    tokenizer = of(place)
    facts = Facts(read(place, kinds=kinds))
    named = digest(place) if hashed else ""
    if engine == "transformers":
        found: Engine = _by_transformers(place, facts, dtype, named)
    elif engine.startswith("llama.cpp"):
        found = _by_llama_cpp(place, facts, dtype, named)
    elif engine.startswith(VLLM):
        found = _by_vllm(place, facts, dtype, named, Path(engine.removeprefix(VLLM)))
    else:
        model = load(place, dtype=dtype, kinds=kinds)
        if hashed:
            named = _with_sources(named, model)
        found = Ours(model, model=named, windows_scale=facts.windows_scale)
    if tokenizer.before:
        spelled = " ".join(plain(tokenizer.token(number)) for number in tokenizer.before)
        found = Begun(found, tokenizer.before, spelled)
    keep_freed_memory()  # after loading: weights still go back to the system when the engine is dropped
    return found, tokenizer.encode_document


def check_name(engine: str) -> None:
    if engine not in ENGINES and not any(engine.startswith(start) and engine != start for start in (VLLM, LLAMA_CPP)):
        raise ValueError(f"no engine {engine!r}; there are {', '.join(ENGINES)}")


def _with_sources(named: str, model: torch.nn.Module) -> str:
    """Encodings outside the package change without the checkpoint."""
    kinds = {type(part) for part in model.modules() if isinstance(part, Encoding)}
    own = sorted((kind for kind in kinds if not kind.__module__.startswith("ropewalk.")), key=repr)
    return hashlib.sha256("".join([named, *map(code_of, own)]).encode()).hexdigest() if own else named


def _by_transformers(place: Path, facts: Facts, dtype: str | None, named: str) -> Engine:
    if not place.is_dir():
        raise ValueError(
            f"transformers reads directories, {place} is a file; write ropewalk export {place} --format hf OUT"
        )
    import transformers

    from ropewalk.evaluate.engines.hf import HF

    device = "cuda" if torch.cuda.is_available() else "cpu"
    # Nothing of the directory is run: no code, and no pickles.
    safe = {"trust_remote_code": False, "use_safetensors": True, "local_files_only": True}
    bar = transformers.utils.logging
    shown = bar.is_progress_bar_enabled()
    bar.disable_progress_bar()  # it would stand among the answers on a terminal
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(place, dtype=dtype or "auto", **safe).to(device)
    finally:
        if shown:
            bar.enable_progress_bar()
    return HF(model, model=named, facts=facts)


def _by_llama_cpp(place: Path, facts: Facts, dtype: str | None, named: str) -> Engine:
    if place.is_dir():
        raise ValueError(f"llama.cpp reads .gguf files; write ropewalk export {place} --format gguf OUT.gguf")
    if dtype is not None:
        raise ValueError(f"llama.cpp computes with the file's weights; leave out --dtype {dtype}")
    from ropewalk.evaluate.engines.llama_cpp import LlamaCpp

    return LlamaCpp(place, model=named, facts=facts)


def _by_vllm(place: Path, facts: Facts, dtype: str | None, named: str, python: Path) -> Engine:
    if not place.is_dir():
        raise ValueError(f"vLLM reads directories, {place} is a file; write ropewalk export {place} --format hf OUT")
    from ropewalk.evaluate.engines.vllm import ByVLLM

    return ByVLLM(place, python, model=named, facts=facts, dtype=dtype)


def _weighs(file: Path) -> bool:
    """A pipe or a device of such a name would be read for ever, and no loader reads it. A link to elsewhere is read:
    ropewalk does not follow it, and others do."""
    return file.name.endswith(WEIGHTS) and file.is_file()


def digest(path: Path) -> str:
    """SHA-256 over config and weights, so that a stored measurement is never taken for another model's. What the files
    of a directory are called says which is read as what; a single file is the same model under any name."""
    if not path.is_dir():
        return _hashed(path).hex()
    whole = hashlib.sha256()
    for file in sorted(filter(_weighs, path.iterdir())):
        whole.update(file.name.encode() + _hashed(file))
    return whole.hexdigest()


def _hashed(file: Path) -> bytes:
    with file.open("rb") as opened_file:
        return hashlib.file_digest(opened_file, "sha256").digest()
