"""The checkpoint that a run starts from: a model directory, a GGUF file or a model of our own, by one set of names.

Nothing in it is imported or run. Weights become float32, one tensor at a time, into whatever shards there are. A GGUF
file's rotating features are put into transformers' layout, so that what is trained can be written for transformers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.export.hf import as_half
from ropewalk.checkpoints.files.sniff import kind_of, meant
from ropewalk.checkpoints.files.strict_json import read_json
from ropewalk.checkpoints.files.weights import Weights
from ropewalk.checkpoints.load.native import open_native, read_native
from ropewalk.checkpoints.load.stream import Checkpoint, open_checkpoint, shards
from ropewalk.checkpoints.load.tensors import apart, rows_of
from ropewalk.checkpoints.resolve.native import is_native
from ropewalk.checkpoints.tokens import tokenizer
from ropewalk.checkpoints.tokens.ends import answer_start
from ropewalk.checkpoints.tokens.tokenizer import Tokenizer
from ropewalk.data.layout import file_hash
from ropewalk.distributed.start import copy_shard
from ropewalk.models import Transformer, TransformerConfig


@dataclass(frozen=True)
class Source:
    path: Path
    model: Transformer
    """On the meta device: its config is what is trained, unless the recipe changes it."""
    checkpoint: Checkpoint | None
    """None: a model of our own, whose tensors are `weights`."""
    weights: Weights

    @property
    def config(self) -> TransformerConfig:
        return self.model.config

    def read(self, name: str) -> Tensor:
        """One tensor of the model, float32."""
        if self.checkpoint is None:
            return read_native(self.weights, name, torch.float32, self.path)
        return self.checkpoint.parameter(name, as_half(self.checkpoint) if self.checkpoint.gguf else None)

    def fingerprint(self) -> str:
        """Of the config and of every byte of the weights."""
        one = kind_of(self.path) == "gguf"
        files = [self.path] if one else [self.path / "config.json", *shards(self.path)]
        listed = "\n".join(f"{file_hash(file)} {file.name}" for file in files)
        return hashlib.sha256(listed.encode()).hexdigest()

    def answer_start(self) -> int | None:
        """The token that an encoder-decoder's answers begin with, where the checkpoint says so."""
        if self.config.stack != "encoder-decoder":
            return None
        if self.checkpoint is not None:
            return answer_start(self.checkpoint.resolved.config)
        return answer_start(read_json(self.path / "config.json"))

    def tokenizer(self) -> Tokenizer | None:
        if kind_of(self.path) != "gguf" and not (self.path / "tokenizer.json").is_file():
            return None
        return tokenizer.of(self.path)


def open_source(path: str | Path, kinds: Collection[str] = ()) -> Source:
    """kinds: encodings of other packages to import where the checkpoint names them."""
    if not Path(path).exists():
        raise BadInput(path, "path", "does not exist", "give a model directory, a .gguf file or a run: --from SRC")
    place = meant(path)
    place = place.parent if kind_of(place) == "json" else place
    if is_native(place):
        model, weights = open_native(place, kinds)
        checkpoint = None
    else:
        checkpoint = open_checkpoint(place)
        model, weights = checkpoint.model, checkpoint.weights
        if checkpoint.gguf:
            with torch.device("meta"):
                model = Transformer(TransformerConfig.model_validate(_half(model.config.model_dump())))
    if not model.config.output:
        problem = "the model has no output map: its answer is vectors, and training here predicts tokens"
        raise BadInput(place, "output", problem, "start from a checkpoint with its language modelling head")
    return Source(place, model, checkpoint, weights)


def _half(config: Any) -> Any:
    if isinstance(config, dict):
        return {key: "half" if (key, value) == ("layout", "pairs") else _half(value) for key, value in config.items()}
    return config


def fill(model: Transformer, source: Source, made: Callable[[], None] = lambda: None) -> None:
    """The checkpoint's weights into the parameters, sharded or not. made: called after each tensor."""
    targets = dict(model.named_parameters())
    for name in source.model.state_dict():
        whole = source.read(name)
        names = [name] if name in targets and targets[name].shape == whole.shape else apart(name)
        parts = whole.split(rows_of(source.model, name)) if len(names) > 1 else [whole]
        for own, part in zip(names, parts, strict=True):
            copy_shard(targets.pop(own), part)
        made()
    if targets:
        raise AssertionError(f"not in the checkpoint: {', '.join(targets)}")
