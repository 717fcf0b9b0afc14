"""The trained model as a directory that others load, written by all ranks at once.

PyTorch's distributed writer puts each rank's part into safetensors files and joins them; the directory is put in place
when it is whole, so a run killed meanwhile leaves none.
"""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_model_state_dict

from ropewalk import crash
from ropewalk.checkpoints.load.native import Trained, describe, named
from ropewalk.checkpoints.load.tensors import rows_of
from ropewalk.distributed.world import World
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.train.checkpoint.store import MAKE_ROOM, SaveFailed, sync

POINTS = ("export.tensors", "export.config", "export.aside", "export.rename")


def write_model(
    model: Transformer, out: Path, world: World, trained: Trained, *, tokenizer: Path | None = None
) -> Path:
    """What was at `out` is replaced."""
    partial = out.with_name(f".{out.name}.partial")
    world.on_first(lambda: _clear(partial))
    state: dict[str, Any] = {}
    held: dict[str, Any] = get_model_state_dict(model)
    for ours, tensor in held.items():
        names = named(model.config, ours).names
        parts = [tensor] if len(names) == 1 else tensor.split(rows_of(model, ours))
        state |= {name: part.contiguous() for name, part in zip(names, parts, strict=True)}
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
    return world.on_first(lambda: _finish(model.config, partial, out, trained, tokenizer))


def _clear(partial: Path) -> None:
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)


def _finish(config: TransformerConfig, partial: Path, out: Path, trained: Trained, tokenizer: Path | None) -> Path:
    crash.here("export.tensors")
    for part in partial.glob("sharded"):
        shutil.rmtree(part)
    (whole,) = partial.glob("*.safetensors")
    whole.rename(partial / "model.safetensors")
    (partial / "model.safetensors.index.json").unlink(missing_ok=True)
    _write_json(partial / "config.json", describe(config, trained))
    if tokenizer is not None:
        write_tokenizer(tokenizer, partial, config.stack, trained)
    for file in partial.iterdir():
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
