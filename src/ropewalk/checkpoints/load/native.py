"""Models of our own as directories: `config.json`, safetensors, `tokenizer.json`.

A decoder that is a Llama in all but name is written as one, for transformers, vLLM and llama.cpp to load. Anything else
says `model_type: ropewalk`, holds its TransformerConfig under `model`, and is loaded by `ropewalk.load`.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropewalk.checkpoints.errors import BadInput, few
from ropewalk.checkpoints.families.base import Source, sources
from ropewalk.checkpoints.families.llama import ATTENTION, BLOCK, LAYER, NAMES
from ropewalk.checkpoints.files.strict_json import read_json
from ropewalk.checkpoints.files.weights import Weights, common_dtype, narrowed, open_weights
from ropewalk.checkpoints.resolve.native import MODEL_TYPE, config_in, plans_of, why_not_llama
from ropewalk.encodings.rope import RoPE
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.scaling import to_hf, to_hf_v4

NOT_A_LLAMA = "it is not a Llama ({}), and ropewalk writes models of its own for other engines only as Llamas"


class Trained(NamedTuple):
    """What a model's training says of its texts."""

    length: int
    """Tokens of the longest sequence."""
    source_length: int | None = None
    """The same of what an encoder-decoder reads."""
    start: int | None = None
    """The token that begins every text; of an encoder-decoder, what it writes."""
    end: int | None = None
    mask: int | None = None
    """What an encoder reads in place of a token that is asked for."""
    pad: int | None = None
    """What fills a sequence up, where no attention goes."""


def describe(config: TransformerConfig, trained: Trained) -> dict[str, Any]:
    """config.json."""
    start, end = trained.start, trained.end
    ends = {"bos_token_id": start, "eos_token_id": end}
    if why_not_llama(config) is not None or not isinstance(encoding := config.encoding, RoPE.Config):
        ends |= {"mask_token_id": trained.mask, "pad_token_id": trained.pad}
        if config.stack == "encoder-decoder":
            ends |= {"decoder_start_token_id": start, "trained_source_length": trained.source_length}
        said = {key: value for key, value in ends.items() if value is not None}
        model = config.model_dump(mode="json")
        return {"model_type": MODEL_TYPE, "trained_length": trained.length, **said, "model": model}
    scaling, theta = to_hf_v4(encoding.scaling, encoding.base, config.head_width)
    # Dynamic NTK starts from the number that stands there, whatever the model was trained on.
    longest = None if encoding.scaling is None else encoding.scaling.longest
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocabulary,
        "hidden_size": config.width,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_heads,
        "head_dim": config.head_width,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm.eps,
        "attention_bias": config.qkv_bias,
        "mlp_bias": config.mlp_bias,
        "tie_word_embeddings": config.tie,
        "max_position_embeddings": longest or trained.length,
        "rope_parameters": to_hf(encoding.scaling, encoding.base, config.head_width),
        "rope_theta": theta,
        **({} if scaling is None else {"rope_scaling": scaling}),
        **ends,
        "dtype": "float32",
        "torch_dtype": "float32",
    }


def named(config: TransformerConfig, ours: str) -> Source:
    """What a tensor of ours is called in the files, in several parts where they hold it so."""
    if why_not_llama(config) is not None:
        return Source((ours,))
    apart = {f"{BLOCK}.attention.{letter}": f"{LAYER}.self_attn.{letter}_proj" for letter in "qkv"}
    apart |= {f"{BLOCK}.mlp.gate": f"{LAYER}.mlp.gate_proj", f"{BLOCK}.mlp.up": f"{LAYER}.mlp.up_proj"}
    return sources(NAMES if config.fused else {**NAMES, **ATTENTION, **apart}, {}, ours)


def not_exported(path: Path, kinds: Collection[str]) -> BadInput:
    """Why a model of our own is not written in another form."""
    why = why_not_llama(config_in(path / "config.json", kinds))
    problem = NOT_A_LLAMA.format(why)
    if why is None:
        problem = "its tensors have ropewalk's own names, and `ropewalk train` writes a Llama as such from the start"
    return BadInput(path / "config.json", "model_type", problem, "ropewalk.load and ropewalk generate read it as it is")


def open_native(path: Path, kinds: Collection[str] = ()) -> tuple[Transformer, Weights]:
    """A model that says `model_type: ropewalk`, on the meta device, and its tensors, each found with its shape."""
    file = path / "config.json"
    config = config_in(file, kinds)
    plans = plans_of(config, read_json(file), file)
    weights = open_weights(path)
    deep = max(len(plan.layers) for plan in plans.values())
    if deep > len(weights.names):
        raise BadInput(
            file,
            "layers",
            f"{deep:,} layers and {len(weights.names):,} tensors",
            "the config does not belong to these files",
        )
    with torch.device("meta"):
        model = Transformer(config)
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    missing = [name for name in wanted if name not in weights.names]
    spare = [name for name in weights.names if name not in wanted]
    if missing or spare:
        problem = f"{few(missing)} is missing" if missing else f"{few(spare)} belongs to no part of the model"
        raise BadInput(path, "tensors", problem, "the files are not this model's")
    for name, shape in wanted.items():
        if weights.shape(name) != shape:
            raise BadInput(path, name, f"has shape {weights.shape(name)}, the config says {shape}", "one is wrong")
    model.plans = plans
    return model, weights


def read_native(weights: Weights, name: str, dtype: torch.dtype, path: Path) -> Tensor:
    """One tensor of a model of our own."""
    stored = weights.read(name)
    if not stored.is_floating_point():
        problem = f"holds {str(stored.dtype).removeprefix('torch.')}, and weights are floats"
        raise BadInput(path, name, problem, "the files are not this model's")
    return narrowed(stored, dtype, path, name)


def load_native(
    path: Path, *, dtype: torch.dtype | None, device: torch.device, kinds: Collection[str] = ()
) -> Transformer:
    """A model that says `model_type: ropewalk`."""
    model, weights = open_native(path, kinds)
    wanted = list(model.state_dict())
    chosen = dtype or common_dtype(weights, wanted)
    state = {name: read_native(weights, name, chosen, path).to(device) for name in wanted}
    model.load_state_dict(state, assign=True)
    return model.eval()
