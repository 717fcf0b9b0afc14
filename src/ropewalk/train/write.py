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
from torch.distributed.checkpoint.state_dict import get_model_state_dict

from ropewalk import crash
from ropewalk.checkpoints.load import rows_of
from ropewalk.checkpoints.native import Trained, describe, named
from ropewalk.distributed.world import World
from ropewalk.models import Transformer

POINTS = ("export.tensors", "export.config", "export.rename")


def write_model(
    model: Transformer, out: Path, world: World, trained: Trained, *, tokenizer: Path | None = None
) -> Path:
    """What was at `out` is replaced."""
    partial = out.with_name(f".{out.name}.partial")
    if world.rank == 0:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    world.agree(False)  # all are here
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
        dcp.save(state, storage_writer=writer, no_dist=world.size == 1)
    if world.rank == 0:
        crash.here("export.tensors")
        for part in partial.glob("sharded"):
            shutil.rmtree(part)
        (whole,) = partial.glob("*.safetensors")
        whole.rename(partial / "model.safetensors")
        (partial / "model.safetensors.index.json").unlink(missing_ok=True)
        _write_json(partial / "config.json", describe(model.config, trained))
        if tokenizer is not None:
            write_tokenizer(tokenizer, partial, model.config.stack, trained)
        crash.here("export.config")
        shutil.rmtree(out, ignore_errors=True)
        partial.rename(out)
        crash.here("export.rename")
    world.agree(False)  # all are here
    return out


def write_tokenizer(file: Path, out: Path, stack: str, trained: Trained) -> None:
    """The tokenizer of the data, which puts around a prompt what went around the texts of training: a decoder's begin
    with the start token; what an encoder-decoder reads ends with the end token; an encoder's have both."""
    from tokenizers import Tokenizer, processors

    words = Tokenizer.from_file(str(file))
    ids = {"bos_token": trained.start, "eos_token": trained.end}
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
