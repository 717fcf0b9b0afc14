"""A model out of a run's checkpoints, on one process whatever the mesh it was trained on: one of them, or their mean.

    read_model("runs/a", step=1000)    the weights of that step
    read_model("runs/a", average=5)    the mean of the last five checkpoints, as in arXiv:1706.03762, section 6.1

Nothing in the run's folder is trusted: a checkpoint is verified byte by byte, its tensors are read by the restricted
reader, and encodings of other packages that it names are imported only where the caller says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from ropewalk.amounts import counted
from ropewalk.checkpoints.errors import BadInput, few, plain
from ropewalk.checkpoints.export import place
from ropewalk.checkpoints.export.convert import Form, export
from ropewalk.checkpoints.export.prove import NotProven, Proof
from ropewalk.checkpoints.files.run_folder import CHECKPOINTS, committed, no_checkpoint
from ropewalk.checkpoints.files.weights import open_weights
from ropewalk.checkpoints.load.native import NOT_A_LLAMA, Trained
from ropewalk.checkpoints.resolve.native import config_of, why_not_llama
from ropewalk.checkpoints.tokens import tokenizer as tokens
from ropewalk.distributed.world import World
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.system import tell
from ropewalk.train.checkpoint import manifest, tensors
from ropewalk.train.checkpoint.manifest import Broken
from ropewalk.train.checkpoint.model_directory import in_files, write_model
from ropewalk.train.checkpoint.restricted_reader import RestrictedReader
from ropewalk.train.checkpoint.store import STATE, Found, quiet
from ropewalk.train.guard.drift import differences
from ropewalk.train.start.kept import Kept, kept

TOKENIZER = "tokenizer.json"
"""In the run's folder: the tokenizer of its data, which may be elsewhere by the time a model is wanted."""
FACTS = "export"
"""In a checkpoint's state: what an export says besides the weights."""
OLDER = "an older ropewalk wrote it; a run that continues with"


class Saved(NamedTuple):
    """A model as it was at these steps, and what its export says of its training."""

    model: Transformer
    steps: tuple[int, ...]
    trained: Trained
    tokenizer: Path | None


@dataclass(frozen=True)
class Written:
    """What was written, of which steps. proof: of the conversion, where a format was asked for."""

    steps: tuple[int, ...]
    tensors: int
    parameters: int
    proof: Proof | None

    def __str__(self) -> str:
        every = f"steps {', '.join(f'{step:,}' for step in self.steps)}"
        which = f"mean of {every}" if len(self.steps) > 1 else f"step {self.steps[0]:,}"
        if self.proof is not None:
            return f"weights    {which}\n{self.proof}"
        equal = f"{self.tensors} equal bit for bit, {self.parameters:,} numbers"
        return f"weights    {which}\ntensors    {equal}"

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"steps": list(self.steps), "tensors": self.tensors, "parameters": self.parameters}
        return found if self.proof is None else {**found, **self.proof.to_dict()}


def facts(trained: Trained, tokenizer: Path | None) -> dict[str, Any]:
    """What a checkpoint's state says for an export."""
    digest = None if tokenizer is None else manifest.digest(tokenizer).sha256
    return {FACTS: {**trained._asdict(), TOKENIZER: digest}}


def export_run(
    run: Path,
    out: Path,
    *,
    step: int | None = None,
    average: int = 1,
    format: Form | None = None,
    dtype: str | None = None,
    kinds: Collection[str] = (),
) -> Written:
    """Writes a model out of a run's checkpoints as the run does at its end; format: then converts it, and proves it."""
    target = place.free(out, run, format)
    saved = read_model(run, step=step, average=average, kinds=kinds)
    form = kept(run, saved.model.config)
    in_family = form is not None and form.family is not None
    if format is not None and not in_family and (why := why_not_llama(saved.model.config)) is not None:
        raise BadInput(run, "model", NOT_A_LLAMA.format(why), "leave --format out: ropewalk reads what is written then")
    count = sum(parameter.numel() for parameter in saved.model.parameters())
    proof = None
    with place.beside(target) as made:
        folder = made if format is None else made.with_name("model")
        alone = World(None, torch.device("cpu"))
        write_model(saved.model, folder, alone, saved.trained, tokenizer=saved.tokenizer, run=run)
        written = _compare_written(saved.model, folder, form)
        if format is not None:
            proof = export(folder, made, format=format, dtype=dtype, kinds=kinds)
    return Written(saved.steps, written, count, proof)


def read_model(run: Path, *, step: int | None = None, average: int = 1, kinds: Collection[str] = ()) -> Saved:
    """The newest checkpoint or that of `step`, or the mean of so many, the last of which it is."""
    chosen = sorted(_choose(run, step, average), key=lambda found: found.step)
    last = chosen[-1]
    for found in chosen[:-1]:
        _check_same(found, last)
    config = config_of(_recipe(last).get("model"), last.folder / STATE, kinds)
    readers = [RestrictedReader(found.folder, found.manifest.files) for found in chosen]
    model = _built(config, readers, last)
    trained, tokenizer = _trained(run, last)
    try:
        means = {name: _mean(readers, f"model.{name}") for name in model.state_dict()}
    except CheckpointException as error:
        if gone := [found.folder for found in chosen if not found.folder.exists()]:
            raise ValueError(f"{gone[0]} was removed while it was read: the run goes on. Type it again") from None
        cause = next(cause for cause, _ in error.failures.values())
        raise ValueError(f"{last.folder} is whole and could not be read: {cause}") from None
    model.load_state_dict(means, assign=True)
    return Saved(model.eval().requires_grad_(False), tuple(found.step for found in chosen), trained, tokenizer)


def _choose(run: Path, step: int | None, average: int) -> list[Found]:
    """The newest that are whole, up to `step`, newest first."""
    every = committed(run / CHECKPOINTS)
    if not every:
        raise BadInput(run, CHECKPOINTS, *no_checkpoint(run))
    there = list(dict.fromkeys(number for number, _ in every))
    if step is not None and step not in there:
        raise ValueError(f"{run} has no checkpoint of step {step:,}; it has {_listed(there)}")
    chosen = list(islice(_whole([each for each in reversed(every) if step is None or each[0] <= step]), average))
    if step is not None and (not chosen or chosen[0].step != step):
        raise ValueError(f"{run}: the checkpoint of step {step:,} is damaged; it has {_listed(there)}")
    if len(chosen) == average:
        return chosen
    have = f"{run} has {counted(len(chosen), 'whole checkpoint')}" + ("" if step is None else f" up to step {step:,}")
    if average == 1:
        raise ValueError(f"{have}; continue it with --resume, which begins again")
    named = f", of {_listed([found.step for found in reversed(chosen)])}" if chosen else ""
    says = f"--average {average} needs {average}: ask for fewer, or train with train.save.keep={average}"
    raise ValueError(f"{have}{named}; {says}")


def _whole(every: list[tuple[int, Path]]) -> Iterator[Found]:
    """Those that are as they were written, each step once; the others are named and skipped, as when a run resumes."""
    done: set[int] = set()
    for step, folder in every:
        if step in done:
            continue
        try:
            held = manifest.verify(folder)
            if held.step != step:
                raise Broken(folder / manifest.NAME, f"is of step {held.step}")
            if STATE not in held.files:
                raise Broken(folder / manifest.NAME, f"does not name {STATE}")
            state = json.loads((folder / STATE).read_bytes())
        except (Broken, OSError, ValueError, RecursionError) as fault:
            tell(f"checkpoint {folder.name} is damaged and skipped: {fault}")
            continue
        done.add(step)
        yield Found(step, folder, held, state if isinstance(state, dict) else {})


def _listed(steps: list[int]) -> str:
    return f"step{'s' * (len(steps) > 1)} {few([f'{step:,}' for step in steps], most=8)}"


def _recipe(found: Found) -> dict[str, Any]:
    recipe = found.state.get("recipe")
    return recipe if isinstance(recipe, dict) else {}


def _check_same(one: Found, other: Found) -> None:
    """A mean of two models is none: what the weights mean must be the same in both."""
    for name, was, is_ in differences("model", _recipe(one).get("model"), _recipe(other).get("model")):
        steps = f"steps {one.step:,} and {other.step:,} are of different models"
        raise ValueError(f"{steps}: {plain(name)} was {plain(was)!r}, is {plain(is_)!r}; average fewer")


def _built(config: TransformerConfig, readers: list[RestrictedReader], last: Found) -> Transformer:
    """The model without its weights, for which every checkpoint has all tensors and no others."""
    contents = [reader.contents for reader in readers]
    held = sum(name.startswith("model.") for name in contents[-1].state_dict_metadata)
    deep = sum(len(config.layer_kinds(side)) for side in config.sides)
    if deep > held:
        problem = f"{deep:,} layers and {held:,} tensors"
        raise BadInput(last.folder / STATE, "layers", problem, "the recipe does not belong to these tensors")
    with torch.device("meta"):
        model = Transformer(config)
    for each in contents:
        tensors.compare(tensors.of_model(model), each.state_dict_metadata)
    return model


def _mean(readers: list[RestrictedReader], name: str) -> Tensor:
    """Added in float64 and rounded once; numbers that are counted must be equal. One tensor at a time, so the peak is
    the model and one tensor."""
    first = _tensor(readers[0], name)
    if len(readers) == 1:
        return first
    if not first.is_floating_point():
        if not all(torch.equal(_tensor(reader, name), first) for reader in readers[1:]):
            raise ValueError(f"{name} holds {first.dtype} that differ between the steps, and have no mean")
        return first
    total = first.double()
    for reader in readers[1:]:
        total += _tensor(reader, name)
    return (total / len(readers)).to(first.dtype)


def _tensor(reader: RestrictedReader, name: str) -> Tensor:
    about = reader.contents.state_dict_metadata[name]
    assert isinstance(about, TensorStorageMetadata)
    if sum(math.prod(chunk.sizes) for chunk in about.chunks) != math.prod(about.size):
        raise Broken(reader.folder, f"the parts of {name} are not the whole of it")
    held = {name: torch.zeros(about.size, dtype=about.properties.dtype)}
    with quiet():
        dcp.load(held, storage_reader=reader, no_dist=True)
    return held[name]


def _trained(run: Path, found: Found) -> tuple[Trained, Path | None]:
    """What the export says, and the tokenizer, which must be the one of that training."""
    file, said = found.folder / STATE, found.state.get(FACTS)
    numbers: dict[str, Any] = {key: said.get(key) for key in Trained._fields} if isinstance(said, dict) else {}
    if not isinstance(said, dict) or numbers["length"] is None:
        raise BadInput(file, FACTS, "was saved without its lengths and tokens", f"{OLDER} --resume saves them")
    for key, value in numbers.items():
        if value is not None and (type(value) is not int or not 0 <= value < 2**40):
            raise BadInput(file, f"{FACTS}.{key}", f"{value!r} is not a number of tokens, or one", "is it the run's?")
    trained, wanted = Trained(**numbers), said.get(TOKENIZER)
    if wanted is None:
        return trained, None
    tokenizer = run / TOKENIZER
    if not tokenizer.is_file() or manifest.digest(tokenizer).sha256 != wanted:
        problem = "is not the tokenizer that this checkpoint was trained with"
        raise BadInput(tokenizer, TOKENIZER, problem, "copy tokenizer.json from the folder of its data")
    words = tokens.from_directory(run)
    for key in ("start", "end", "mask", "pad"):
        if (number := numbers[key]) is not None and words.token(number) is None:
            raise BadInput(tokenizer, key, f"has no token {number}, which {STATE} names", "is it the run's?")
    return trained, tokenizer


def _compare_written(model: Transformer, folder: Path, form: Kept | None) -> int:
    """How many tensors were written; each is read back, and equal."""
    weights, wanted = open_weights(folder), in_files(model, model.state_dict(), form)
    for name, tensor in wanted.items():
        if not torch.equal(weights.read(name), tensor):
            raise NotProven(f"{name} read back is not the checkpoint's")
    return len(wanted)
