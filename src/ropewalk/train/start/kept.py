"""RUN/start: what a run keeps of the checkpoint it started from, so that it is resumed and exported without it.

RUN/start/start.json     which checkpoint, its fingerprint, its config, and the model that is trained
RUN/start/config.json    of the export: the checkpoint's own config, with the positions and the length trained here
RUN/start/...            the checkpoint's tokenizer, special tokens, chat templates and licence

A Llama stays a Llama: the export has the form of the checkpoint's family wherever its config can state the positions.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ropewalk.checkpoints import families
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.export import about_hf
from ropewalk.checkpoints.export.config import config_of
from ropewalk.checkpoints.export.hf import LARGEST_COPY, write_beside
from ropewalk.checkpoints.export.vocabulary import about_of
from ropewalk.checkpoints.families.base import Source as Place
from ropewalk.checkpoints.files.strict_json import read_json
from ropewalk.checkpoints.inspect.changes import Wanted
from ropewalk.checkpoints.inspect.scaled_config import scaled_config
from ropewalk.checkpoints.load.model import adopted
from ropewalk.checkpoints.load.native import Trained, describe
from ropewalk.checkpoints.load.stream import Checkpoint
from ropewalk.checkpoints.load.tensors import named
from ropewalk.checkpoints.resolve.hf import resolve
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.models.config import Side
from ropewalk.plan import Plan
from ropewalk.scaling import Dynamic, Scaling
from ropewalk.train.start.recipe import FOLDER, RECORD, differences
from ropewalk.train.start.source import Source


def keep(source: Source, start: str, model: TransformerConfig, trained: Trained, run: Path) -> dict[str, Any]:
    """Writes the folder, on the first rank, and returns what start.json says."""
    folder, partial = run / FOLDER, run / f".{FOLDER}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    trained = _ends(source, trained)
    record: dict[str, Any] = {"path": start, "fingerprint": source.fingerprint()}
    record |= {"changes": differences(source.config, model), "family": None, "why": None, "left_out": []}
    if source.checkpoint is None:
        for name in about_hf.copied(source.path):
            if name != about_hf.CARD:
                (partial / name).parent.mkdir(exist_ok=True)
                (partial / name).write_bytes(about_hf.read_copied(source.path, name, LARGEST_COPY))
    else:
        record |= _in_family(source.checkpoint, model, trained, partial)
    if record["family"] is None:
        (partial / "config.json").write_text(_json(describe(model, trained)), encoding="utf-8")
    record |= {"base": source.config.model_dump(mode="json"), "model": model.model_dump(mode="json")}
    (partial / RECORD).write_text(_json(record), encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return record


def _ends(source: Source, trained: Trained) -> Trained:
    """The checkpoint's own tokens around a text, and the longest text of both trainings."""
    said = {} if source.path.is_file() else read_json(source.path / "config.json")
    lengths = [said.get("trained_length"), trained.length]
    trained = trained._replace(length=max(n for n in lengths if type(n) is int))
    sources = [n for n in (said.get("trained_source_length"), trained.source_length) if type(n) is int]
    trained = trained._replace(source_length=max(sources, default=None))
    keys = {"start": "bos_token_id", "end": "eos_token_id", "mask": "mask_token_id", "pad": "pad_token_id"}
    ends = {name: said.get(key) for name, key in keys.items()}
    return trained._replace(**{name: number for name, number in ends.items() if type(number) is int})


def _in_family(checkpoint: Checkpoint, model: TransformerConfig, trained: Trained, folder: Path) -> dict[str, Any]:
    """config.json and what lies beside it in the family's form, or why there is none."""
    found: dict[str, Any] = {"family": checkpoint.model_type, "left_out": sorted(checkpoint.rest())}
    # Marian's bias of the output is (1, V), ours (V).
    shapes = {source.names[0]: checkpoint.weights.shape(source.names[0]) for source in checkpoint.found.values()}
    found["shapes"] = {name: list(shape) for name, shape in shapes.items() if shape[:1] == (1,)}
    try:
        config = family_config(checkpoint, model, trained)
        (folder / "config.json").write_text(_json(config), encoding="utf-8")
    except ValueError as error:
        found |= {"family": None, "why": str(error)}
        config = {"max_position_embeddings": trained.length}
    _beside(checkpoint, folder, config)
    return found


def family_config(checkpoint: Checkpoint, model: TransformerConfig, trained: Trained) -> dict[str, Any]:
    """The config.json of a checkpoint's family that states the positions of what is trained from it. A ValueError says
    why there is none."""
    plans = {side: model.plan(side) for side in model.sides}
    resolved = replace(checkpoint.resolved, plans={**plans})
    try:
        scaling = _other_scaling(checkpoint, plans)
        if scaling is not None and not checkpoint.gguf and not checkpoint.row.one_rotation:
            length = max(trained.length, checkpoint.resolved.plan.longest or 0)
            resolved = replace(resolved, config=scaled_config(Wanted(checkpoint.resolved, scaling, length))[0])
        config = config_of(replace(checkpoint, resolved=resolved), dict.fromkeys(checkpoint.names, torch.float32))
        stated = config.get("max_position_embeddings")
        dynamic = any(isinstance(layer.scaling, Dynamic) for plan in plans.values() for layer in plan.layers)
        # A dynamic scaling starts from the number that stands there.
        if type(stated) is int and stated < trained.length and not dynamic:
            config["max_position_embeddings"] = trained.length
        read_back = resolve(json.loads(_json(config)), where="config.json", arithmetic="float32")
        for side, plan in plans.items():
            length = trained.source_length if side == "encoder" and trained.source_length else trained.length
            adopted(plan.for_length(length), read_back.plans[side].for_length(length))
    except (BadInput, RuntimeError, KeyError, ValueError) as error:
        raise ValueError(f"{checkpoint.model_type} cannot state these positions ({error})") from error
    return config


def _other_scaling(checkpoint: Checkpoint, plans: Mapping[Side, Plan]) -> Scaling | None:
    """What layers that had another scaling in the checkpoint have in common."""
    pairs = [
        (was.scaling, layer.scaling)
        for side, plan in plans.items()
        for was, layer in zip(checkpoint.resolved.plans[side].layers, plan.layers, strict=True)
    ]
    new = {now for was, now in pairs if now != was}
    return new.pop() if len(new) == 1 else None


def _beside(checkpoint: Checkpoint, folder: Path, config: dict[str, Any]) -> None:
    if not checkpoint.gguf and not (checkpoint.path / "tokenizer.json").is_file():
        return
    write_beside(checkpoint, folder, config)
    (folder / about_hf.CARD).unlink(missing_ok=True)
    # The card's prose is about another model; its licence and languages are about this one too.
    said = f"Trained from {checkpoint.path.name} by `ropewalk train`; the keys above are that model's."
    if (card := about_hf.card(about_of(checkpoint), said)) is not None:
        (folder / about_hf.CARD).write_text(card, encoding="utf-8")


class Kept(NamedTuple):
    """What a run keeps for its export."""

    folder: Path
    own: bool
    """Whether config.json is the exported model's. After a change that --allow-drift let in, it is not."""
    family: str | None
    """The model type whose form the export has; None: ropewalk's own, or a Llama's."""
    shapes: dict[str, Any]
    """Of tensors that have an axis of size 1 in the family's files."""

    def copy(self, out: Path) -> None:
        """Everything but the record. Nothing outside the folder: a link there would be given away with the model."""
        for name in [*about_hf.copied(self.folder), *(["config.json"] if self.own else [])]:
            (out / name).parent.mkdir(exist_ok=True)
            (out / name).write_bytes(about_hf.read_copied(self.folder, name, LARGEST_COPY))


def kept(run: Path | None, model: TransformerConfig) -> Kept | None:
    """None where the run did not start from a checkpoint. model: what is exported."""
    folder = None if run is None else run / FOLDER
    if folder is None or not (folder / RECORD).is_file():
        return None
    record = read_json(folder / RECORD)
    was, is_, family = record.get("model"), model.model_dump(mode="json"), record.get("family")
    # A family's form has its own opinion of which matrices are one.
    own = was == is_ or (family is not None and isinstance(was, dict) and {**was, "fused": model.fused} == is_)
    return Kept(folder, own, family if own else None, record.get("shapes") or {})


def places(model: TransformerConfig, family: str) -> tuple[Transformer, dict[str, Place]]:
    """The fused model on the meta device, and what transformers calls each of its tensors."""
    with torch.device("meta"):
        whole = Transformer(model.model_copy(update={"fused": True}))
    return whole, named(whole, families.find(family, RECORD))


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
