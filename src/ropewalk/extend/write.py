"""A checkpoint with another scaling, in the form that it has: a directory for transformers and vLLM, or a GGUF file.

Of a directory, config.json is changed, and with it the lengths that a tokenizer and a generation config state; every
other file is copied, but for programs, pickles, links to elsewhere and other forms of the model. Of a GGUF file, the
keys of RoPE and the length are changed and everything else is copied byte for byte, so quantised weights stay what they
are. What was written is read back with the rules of each engine; one that would compute something else is named.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from ropewalk.checkpoints.engines import sglang
from ropewalk.checkpoints.engines.facts import Facts
from ropewalk.checkpoints.engines.llama_cpp import rules
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.export import place
from ropewalk.checkpoints.export.convert import export
from ropewalk.checkpoints.export.gguf import PositionsInGGUF, architecture, positions_of
from ropewalk.checkpoints.export.gguf_keys import rewrite
from ropewalk.checkpoints.export.prove import NotProven
from ropewalk.checkpoints.files.sniff import meant, runs
from ropewalk.checkpoints.files.strict_json import MOST_INDEX_BYTES, read_json
from ropewalk.checkpoints.files.weights import INDEX, homes, open_weights
from ropewalk.checkpoints.inspect import beside
from ropewalk.checkpoints.inspect.changes import Wanted
from ropewalk.checkpoints.inspect.scaled_config import scaled_config, short_of, too_short
from ropewalk.checkpoints.load.stream import Checkpoint, open_checkpoint
from ropewalk.checkpoints.resolve.native import MODEL_TYPE
from ropewalk.checkpoints.resolve.read import read
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.scaling import NTK, Llama3, LongRoPE, Scaling

SERVED_TOO = {"SGLang": sglang}
"""Told a command for what was written, and so asked what it makes of that; the keys are not chosen for it."""
OTHER_FORMS = ("*.gguf", "*.onnx", "*.onnx_data", "params.json", "consolidated*.safetensors", "consolidated*.json")
"""Files that hold the model once more, with the positions that it had: llama.cpp's, ONNX's, and Mistral's own, which
vLLM takes before config.json."""
LONGEST = 2**32 - 1
"""Tokens that a GGUF file can state."""
IN_TENSORS = (Llama3, LongRoPE)
"""Scalings that a GGUF file holds as tensors, and not as keys."""


@dataclass(frozen=True, kw_only=True)
class Written:
    path: Path
    """What was written: a directory or a .gguf file."""
    engines: dict[str, str | None]
    """By engine: None where its rules read what was meant, else what it would do."""
    left_out: tuple[str, ...]
    """Files that were not copied."""
    raised: tuple[str, ...] = ()
    """Lengths beside the config's that were raised."""
    gguf: Path | None = None
    """The same model as one file, beside a directory."""

    def commands(self, to: int) -> dict[str, str]:
        """By engine, what serves texts of `to` tokens; none for an engine that would compute something else."""
        name = shlex.quote(str(self.path))
        if self.path.suffix == ".gguf":
            found = {
                "llama.cpp": f"llama-server -m {name} -c {to}",
                "others": f"ropewalk export {name} --format hf OUT",
            }
        else:
            gguf = "OUT.gguf" if self.gguf is None else shlex.quote(str(self.gguf))
            made = f"ropewalk export {name} --format gguf {gguf} && " if self.gguf is None else ""
            found = {
                "vLLM": f"vllm serve {name} --max-model-len {to}",
                "SGLang": f"python -m sglang.launch_server --model-path {name} --context-length {to}",
                "llama.cpp": f"{made}llama-server -m {gguf} -c {to}",
            }
        return {engine: command for engine, command in found.items() if self.engines.get(engine) is None}


def write(source: str | Path, out: str | Path, scaling: Scaling, to: int) -> Written:
    """Writes the checkpoint for texts of `to` tokens."""
    path = meant(Path(source))
    resolved = read(path)
    if resolved.model_type == MODEL_TYPE:
        raise ValueError(f"{path} is a model of ropewalk's own; its scaling stands in its config: change it there")
    stated = resolved.plan.longest
    if stated is not None and to < stated:
        raise ValueError(f"--to {to:,} is shorter than the {stated:,} tokens of {path}")
    Facts(resolved).scaled(scaling)  # refuses a checkpoint without layers to scale
    target = _target(path, out)
    if path.is_dir():
        with place.beside(target) as made:
            engines, left_out, raised = _directory(path, made, Wanted(resolved, scaling, to))
    else:
        left_out = raised = ()
        with place.beside(target) as made:
            engines = _file(path, resolved, made, scaling, to)
    return Written(path=target, engines=engines, left_out=left_out, raised=raised)


def free(source: str | Path, out: str | Path, gguf: str | Path | None) -> None:
    """Raises where something cannot be written at its place: known before anything is measured."""
    path = meant(Path(source))
    if gguf is not None and not path.is_dir():
        raise ValueError(f"{path} is a GGUF file, and so is what is written for it; leave out --gguf")
    _target(path, out)
    if gguf is not None:
        place.free(Path(gguf), path, "gguf")


def _target(path: Path, out: str | Path) -> Path:
    """Where a checkpoint is written in the form that it has."""
    if path.is_dir():
        open_weights(path)  # of pickles alone nothing would be left to write
        if Path(out).suffix == ".gguf":
            raise ValueError(
                f"{path} is a directory, and so is what is written for it: write {Path(out).with_suffix('')}; "
                f"for a GGUF file as well, add --gguf {out}"
            )
    return place.free(Path(out), path, "hf" if path.is_dir() else "gguf")


def with_gguf(written: Written, out: str | Path) -> Written:
    """The directory as a GGUF file too, in float32: llama.cpp computes with it what the directory means, and smaller
    files are made from it. Where llama.cpp has no key for the positions, it says why."""
    try:
        export(written.path, out, format="gguf", dtype="float32")
    except (ValueError, NotProven) as error:
        return replace(written, engines=written.engines | {"llama.cpp": f"no GGUF file is written: {error}"})
    return replace(written, engines=written.engines | {"llama.cpp": None}, gguf=Path(out))


def served(source: str | Path, to: int) -> Callable[[Scaling], dict[str, str | None]]:
    """What engines would make of a scaling: None where they compute it from the keys that `write` writes, else why not.
    A model of our own has no keys of other engines."""
    path = meant(Path(source))
    resolved = read(path)
    if resolved.model_type == MODEL_TYPE:
        return lambda scaling: {"ropewalk": None}
    if path.is_dir():
        return lambda scaling: scaled_config(Wanted(resolved, scaling, to))[1]
    checkpoint = open_checkpoint(path)

    def of_file(scaling: Scaling) -> dict[str, str | None]:
        try:
            _positions(checkpoint, scaling)
        except ValueError as error:
            return {"llama.cpp": str(error)}
        return {"llama.cpp": None}

    return of_file


def _directory(path: Path, out: Path, wanted: Wanted) -> tuple[dict[str, str | None], tuple[str, ...], tuple[str, ...]]:
    config, read_by = scaled_config(wanted)
    if all(why is not None for why in read_by.values()):
        raise ValueError(f"no engine would compute {wanted.scaling.kind} from config.json: {read_by['transformers 5']}")
    out.mkdir()
    left_out, raised, shards = [], [], _shards(path)
    stated = wanted.resolved.plan.stated
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path)
        if name == Path("config.json") or (file.is_dir() and not file.is_symlink()):
            continue
        once_more = name.name not in shards and any(fnmatch(name.name, form) for form in OTHER_FORMS)
        if once_more or any(part.startswith(".") for part in name.parts) or not _of_model(file, path):
            left_out.append(str(name))
            continue
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        if str(name) in beside.STATED:
            raised.append(beside.copy_raised(file, out / name, stated, wanted.to))
        else:
            shutil.copyfile(file, out / name)
    text = json.dumps(config, indent=2, ensure_ascii=False, allow_nan=False)
    (out / "config.json").write_text(text + "\n", encoding="utf-8")
    too = {name: short_of(wanted, config, engine) for name, engine in SERVED_TOO.items()}
    if (why := _no_file(path, wanted.scaling)) is not None:
        too["llama.cpp"] = f"no GGUF file can be made of it: {why}"
    return read_by | too, tuple(left_out), tuple(filter(None, raised))


def _shards(directory: Path) -> set[str]:
    """Files that the index of the weights names."""
    index = directory / INDEX
    return set(read_json(index, MOST_INDEX_BYTES)["weight_map"].values()) if index.is_file() else set()


def _of_model(file: Path, directory: Path) -> bool:
    """Whether it is copied: a link to elsewhere would carry any file of this machine into what is given away."""
    try:
        real = file.resolve()
    except (OSError, RuntimeError):  # a link to itself
        return False
    return any(real.is_relative_to(one) for one in homes(directory)) and real.is_file() and not runs(file)


def _no_file(path: Path, scaling: Scaling) -> str | None:
    """Why llama.cpp cannot be given what is written to a directory."""
    try:
        _positions(open_checkpoint(path), scaling)
    except ValueError as error:
        return str(error)
    return None


def _file(path: Path, resolved: Resolved, out: Path, scaling: Scaling, to: int) -> dict[str, str | None]:
    if to > LONGEST:
        raise ValueError(f"--to {to:,} is longer than the {LONGEST:,} tokens that a GGUF file can state; give fewer")
    checkpoint = open_checkpoint(path)
    arch, wanted = str(resolved.config["general.architecture"]), Wanted(resolved, scaling, to)
    length = {f"{arch}.context_length": to}
    if wanted.short_of(rules.read(resolved)) is None:  # as a tuned file does: it was trained with the scaling
        rewrite(path, out, keys=length, dropped=lambda key: False, tensors={})
    else:
        positions = _positions(checkpoint, scaling)
        keys = {f"{arch}.{key}": value for key, value in positions.keys.items()} | length
        rope = (f"{arch}.rope.scaling.", f"{arch}.rope.scale_linear")
        rewrite(path, out, keys=keys, dropped=lambda key: key.startswith(rope), tensors=positions.tensors)
    try:
        found = rules.read(read(out))
    except BadInput as error:
        raise ValueError(f"what was written cannot be read back: {error}") from error
    return {"llama.cpp": too_short(found, wanted) or wanted.short_of(found)}


def _positions(checkpoint: Checkpoint, scaling: Scaling) -> PositionsInGGUF:
    """What a file says of this scaling."""
    layers = checkpoint.resolved.plan.layers
    held = next((one for layer in layers if isinstance(one := layer.scaling, IN_TENSORS)), None)
    if checkpoint.gguf and held is not None:
        problem = f"the file holds the divisors of {held.kind} as a tensor, which llama.cpp applies beside any scaling"
        raise BadInput(checkpoint.path, "rope", problem, "extend the checkpoint that it was made from")
    plan = Facts(checkpoint.resolved).scaled(scaling)
    if isinstance(scaling, NTK):  # a larger base and nothing else
        plan = replace(plan, layers=tuple(_rebased(layer, scaling) for layer in plan.layers))
    meaning = replace(checkpoint.resolved, plans={**checkpoint.resolved.plans, "decoder": plan})
    return positions_of(replace(checkpoint, resolved=meaning), architecture(checkpoint))


def _rebased(layer: Any, scaling: NTK) -> Any:
    if layer.scaling != scaling:
        return layer
    return replace(layer, base=float(scaling.scaled_base(layer.base, layer.rotary_width)), scaling=None)
