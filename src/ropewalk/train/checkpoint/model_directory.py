"""The trained model as a directory that others load, written by all ranks at once.

PyTorch's distributed writer puts each rank's part into safetensors files and joins them; the directory is put in place
when it is whole, so a run killed meanwhile leaves none.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint import HuggingFaceStorageWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.tensor import DTensor

from ropewalk import crash
from ropewalk.checkpoints.families.base import to_theirs
from ropewalk.checkpoints.load.native import Trained, describe, named
from ropewalk.checkpoints.load.tensors import apart, rows_of
from ropewalk.distributed.world import World
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.train.checkpoint.store import MAKE_ROOM, SaveFailed, sync
from ropewalk.train.start.kept import Kept, kept, places

POINTS = ("export.tensors", "export.config", "export.aside", "export.rename")


def write_model(
    model: Transformer,
    out: Path,
    world: World,
    trained: Trained,
    *,
    tokenizer: Path | None = None,
    run: Path | None = None,
) -> Path:
    """What was at `out` is replaced. run: its folder, which holds what it keeps of a checkpoint that it started from;
    the export then has that one's form and tokenizer."""
    partial = out.with_name(f".{out.name}.partial")
    world.on_first(lambda: _clear(partial))
    form = kept(run, model.config)
    state = in_files(model, get_model_state_dict(model), form)
    scalars = {name: _full(part).detach().cpu() for name, part in state.items() if part.ndim == 0}
    writer = HuggingFaceStorageWriter(
        str(partial), fqn_to_index_mapping=dict.fromkeys(state, 1), save_distributed=True, enable_consolidation=True
    )
    with warnings.catch_warnings():
        # One process is all there is then.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        try:
            dcp.save(state, storage_writer=writer, no_dist=world.size == 1)
        except CheckpointException as error:
            cause = next(cause for cause, _ in error.failures.values())
            raise SaveFailed(f"{out} is not written: {cause}; the checkpoints are whole. {MAKE_ROOM}") from cause
    return world.on_first(lambda: _finish(model.config, partial, out, trained, tokenizer, form, scalars))


def in_files(model: Transformer, held: Mapping[str, Any], form: Kept | None) -> dict[str, Tensor]:
    """The tensors as an export holds them: in a family's form, as a Llama's where the model is one, or as ours."""
    if form is not None and form.family is not None:
        return _in_family(model.config, held, form.family, form.shapes)
    state: dict[str, Tensor] = {}
    for ours, tensor in held.items():
        names = named(model.config, ours).names
        parts = [tensor] if len(names) == 1 else tensor.split(rows_of(model, ours))
        state |= {name: part.contiguous() for name, part in zip(names, parts, strict=True)}
    return state


def _in_family(
    config: TransformerConfig, held: Mapping[str, Any], family: str, shapes: Mapping[str, Any]
) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    whole, found = places(config, family)
    for ours, (names, form) in found.items():
        same = ours in held and held[ours].shape == whole.get_parameter(ours).shape
        own = [held[ours]] if same else [held[name] for name in apart(ours)]
        rows = rows_of(whole, ours) if len(names) > 1 else []
        if form != "rows" or len(names) < len(own):
            own = to_theirs(form, torch.cat([_full(part) for part in own]), rows, config.heads)
        elif len(own) < len(names):
            own = list(own[0].split(rows))
        if (shape := shapes.get(names[0])) is not None:
            own = [_full(own[0]).reshape(shape)]
        state |= {name: part.contiguous() for name, part in zip(names, own, strict=True)}
    return state


def _full(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _clear(partial: Path) -> None:
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)


def _finish(
    config: TransformerConfig,
    partial: Path,
    out: Path,
    trained: Trained,
    tokenizer: Path | None,
    form: Kept | None,
    scalars: dict[str, Tensor],
) -> Path:
    crash.here("export.tensors")
    for part in partial.glob("sharded"):
        shutil.rmtree(part)
    (whole,) = partial.glob("*.safetensors")
    _write_scalars(whole, scalars)
    whole.rename(partial / "model.safetensors")
    (partial / "model.safetensors.index.json").unlink(missing_ok=True)
    _write_json(partial / "config.json", describe(config, trained))
    if form is not None:
        form.copy(partial)
    if tokenizer is not None and not (partial / "tokenizer.json").exists():
        write_tokenizer(tokenizer, partial, config.stack, trained)
    for file in partial.rglob("*"):
        sync(file)
    sync(partial)
    crash.here("export.config")
    # A folder cannot be put over another at once: the one that was there goes when its successor is in place.
    aside = out.with_name(f".{out.name}.replaced")
    shutil.rmtree(aside, ignore_errors=True)
    if out.exists():
        out.rename(aside)
    crash.here("export.aside")
    partial.rename(out)
    sync(out.parent)
    crash.here("export.rename")
    shutil.rmtree(aside, ignore_errors=True)
    return out


def _write_scalars(file: Path, scalars: dict[str, Tensor]) -> None:
    """Torch leaves tensors without dimensions out when it joins the parts: there is room for them, which holds zeros
    (2.13, _consolidate_hf_safetensors.py, `if not tensor_shape or not sub_tensor_shape: return`)."""
    with file.open("r+b") as stream:
        size = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(size))
        for name, value in scalars.items():
            stream.seek(8 + size + header[name]["data_offsets"][0])
            stream.write(value.reshape(1).view(torch.uint8).numpy().tobytes())


def write_tokenizer(file: Path, out: Path, stack: str, trained: Trained) -> None:
    """The tokenizer of the data, which puts around a prompt what went around the texts of training: a decoder's begin
    with the start token; what an encoder-decoder reads ends with the end token; an encoder's have both."""
    from tokenizers import Tokenizer, processors

    words = Tokenizer.from_file(str(file))
    ids = {"bos_token": trained.start, "eos_token": trained.end, "mask_token": trained.mask, "pad_token": trained.pad}
    names = {name: words.id_to_token(number) for name, number in ids.items() if number is not None}
    start = [] if stack == "encoder-decoder" else [name for name in ("bos_token",) if name in names]
    end = [] if stack == "decoder" else [name for name in ("eos_token",) if name in names]
    words.post_processor = processors.TemplateProcessing(
        single=[*(names[name] for name in start), "$A", *(names[name] for name in end)],
        special_tokens=[(names[name], ids[name]) for name in [*start, *end]],
    )
    words.save(str(out / "tokenizer.json"))
    _write_json(out / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names})


def _write_json(file: Path, data: dict[str, Any]) -> None:
    file.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
