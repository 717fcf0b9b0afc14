"""Models of our own as directories: `config.json`, safetensors, `tokenizer.json`.

A decoder that is a Llama in all but name is written as one, for transformers, vLLM and llama.cpp to load. Anything else
says `model_type: ropewalk`, holds its TransformerConfig under `model`, and is loaded by `ropewalk.load`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import ValidationError

from ropewalk.checkpoints.errors import BadInput, plain
from ropewalk.checkpoints.families.base import Source, sources
from ropewalk.checkpoints.families.llama import ATTENTION, BLOCK, LAYER, NAMES
from ropewalk.checkpoints.left_over import few
from ropewalk.checkpoints.resolved import Resolved
from ropewalk.checkpoints.strict_json import read_json
from ropewalk.checkpoints.weights import common_dtype, narrowed, open_weights
from ropewalk.encodings._find import ALLOWED, NotAllowed
from ropewalk.encodings.rope import RoPE
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.models.config import Side
from ropewalk.plan import Plan
from ropewalk.scaling import to_hf, to_hf_v4

MODEL_TYPE = "ropewalk"
LLAMA: dict[str, Any] = {
    "stack": "decoder",
    "activation": "swiglu",
    "window": None,
    "scale": None,
    "soft_cap": None,
    "sink": False,
    "qk_norm": None,
    "scale_embedding": False,
    "types": 0,
    "embedding_norm": False,
    "scale_output": False,
    "output": True,
    "output_transform": False,
    "output_bias": False,
    "output_cap": None,
}
"""What a config must say to be Llama's."""


def why_not_llama(config: TransformerConfig) -> str | None:
    for key, value in LLAMA.items():
        if getattr(config, key) != value:
            return f"{key} is {getattr(config, key)}"
    norm, encoding = config.norm, config.encoding
    if (norm.kind, norm.placement, norm.shifted) != ("rms", "pre", False):
        return f"the norm is {norm.kind}, {norm.placement}"
    if config.qkv_bias != config.out_bias or config.value_width != config.head_width:
        return "biases or widths differ inside a layer"
    if not isinstance(encoding, RoPE.Config) or not isinstance(config.layers, int):
        return f"positions are {encoding.kind}" if isinstance(config.layers, int) else "layers are of several kinds"
    if encoding.layout != "half" or encoding.rotary_width not in (None, config.head_width):
        return "heads are not turned as Llama's are"
    return None


class Trained(NamedTuple):
    """What a model's training says of its texts."""

    length: int
    """Tokens of the longest sequence."""
    source_length: int | None = None
    """The same of what an encoder-decoder reads."""
    start: int | None = None
    """The token that begins every text; of an encoder-decoder, what it writes."""
    end: int | None = None


def describe(config: TransformerConfig, trained: Trained) -> dict[str, Any]:
    """config.json."""
    start, end = trained.start, trained.end
    ends = {"bos_token_id": start, "eos_token_id": end}
    if why_not_llama(config) is not None or not isinstance(encoding := config.encoding, RoPE.Config):
        if config.stack == "encoder-decoder":
            ends |= {"decoder_start_token_id": start, "trained_source_length": trained.source_length}
        said = {key: value for key, value in ends.items() if value is not None}
        model = config.model_dump(mode="json")
        return {"model_type": MODEL_TYPE, "trained_length": trained.length, **said, "model": model}
    scaling, theta = to_hf_v4(encoding.scaling, encoding.base, config.head_width)
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
        "max_position_embeddings": trained.length,
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


def is_native(path: Path) -> bool:
    config = path / "config.json"
    return config.is_file() and read_json(config).get("model_type") == MODEL_TYPE


def config_in(file: Path, kinds: Collection[str] = ()) -> TransformerConfig:
    """The config in a config.json that says `model_type: ropewalk`. kinds: of other packages, to be imported where it
    names them; it alone has nothing imported."""
    allowed = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    try:
        return TransformerConfig.model_validate(read_json(file).get("model"), context={ALLOWED: allowed})
    except ValidationError as error:
        every = [(detail, detail.get("ctx", {}).get("error")) for detail in error.errors()]
        outside = {cause.kind: None for _, cause in every if isinstance(cause, NotAllowed)}
        first = next((each for each, cause in every if isinstance(cause, NotAllowed)), every[0][0])
        field = ".".join(("model", *map(str, first["loc"])))
        if outside:
            raise _not_allowed(file, field, list(outside), allowed) from None
        raise BadInput(file, field, first["msg"].removeprefix("Value error, "), "correct the config") from None
    except (RuntimeError, OverflowError) as error:  # sizes that torch has no tensor for
        raise BadInput(file, "model", f"cannot be built ({plain(error)})", "correct the config") from None


def _not_allowed(file: Path, field: str, outside: list[str], allowed: tuple[str, ...]) -> BadInput:
    problem = f"{few(map(repr, outside))} is code of another package, and a checkpoint does not decide what is imported"
    # Told to type are only names of modules, so that no file puts other words into somebody's shell.
    names = [*allowed, *(kind for kind in outside if all(part.isidentifier() for part in kind.split(".")))]
    options = " ".join(f"--allow-kind {name}" for name in names)
    remedy = f"if you trust that package: {options}, or in Python ropewalk.load(path, kinds={names!r})"
    return BadInput(file, field, problem, remedy if len(names) > len(allowed) else "correct the config")


def resolve_native(file: Path, name: str, kinds: Collection[str] = ()) -> Resolved:
    """What positions a model of our own uses: its config is the plan."""
    config, said = config_in(file, kinds), read_json(file)
    why = why_not_llama(config)
    shape = "it could be a Llama's, and was not written as one" if why is None else f"no Llama: {why}"
    return Resolved(
        name=name,
        where=file.name,
        model_type=MODEL_TYPE,
        stack=config.stack,
        plans={**_plans(config, said, file)},
        config=said,
        notes=(f"the model is ropewalk's own ({shape}), in a form that ropewalk alone reads",),
    )


def _plans(config: TransformerConfig, said: dict[str, Any], file: Path) -> dict[Side, Plan]:
    plans: dict[Side, Plan] = {}
    for side in config.sides:
        # What an encoder-decoder reads has a length of its own.
        key = "trained_source_length" if (config.stack, side) == ("encoder-decoder", "encoder") else "trained_length"
        length = said.get(key)
        if length is not None and (type(length) is not int or not 0 < length <= 2**40):
            raise BadInput(file, key, f"{length!r} is no number of tokens", "correct the config, or remove it")
        sources = () if length is None else (("trained", f"{file.name}:{key}"),)
        plans[side] = replace(config.plan(side), trained=length, sources=sources)
    return plans


def not_exported(path: Path, kinds: Collection[str]) -> BadInput:
    """Why a model of our own is not written in another form."""
    why = why_not_llama(config_in(path / "config.json", kinds))
    problem = f"it is no Llama ({why}), and ropewalk writes models of its own for other engines only as Llamas"
    if why is None:
        problem = "its tensors have ropewalk's own names, and `ropewalk train` writes a Llama as such from the start"
    return BadInput(path / "config.json", "model_type", problem, "ropewalk.load and ropewalk generate read it as it is")


def load_native(
    path: Path, *, dtype: torch.dtype | None, device: torch.device, kinds: Collection[str] = ()
) -> Transformer:
    """A model that says `model_type: ropewalk`."""
    file = path / "config.json"
    config = config_in(file, kinds)
    plans = _plans(config, read_json(file), file)
    weights = open_weights(path)
    deep = max(len(plan.layers) for plan in plans.values())
    if deep > len(weights.names):
        raise BadInput(
            file, "layers", f"{deep:,} layers and {len(weights.names):,} tensors", "the config is not theirs"
        )
    with torch.device("meta"):
        model = Transformer(config)
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    missing = [name for name in wanted if name not in weights.names]
    spare = [name for name in weights.names if name not in wanted]
    if missing or spare:
        problem = f"{few(missing)} is missing" if missing else f"{few(spare)} belongs to no part of the model"
        raise BadInput(path, "tensors", problem, "the files are not this model's")
    state = {}
    chosen = dtype or common_dtype(weights, wanted)
    for name, shape in wanted.items():
        if weights.shape(name) != shape:
            raise BadInput(path, name, f"has shape {weights.shape(name)}, the config says {shape}", "one is wrong")
        stored = weights.read(name)
        if not stored.is_floating_point():
            problem = f"holds {str(stored.dtype).removeprefix('torch.')}, and weights are floats"
            raise BadInput(path, name, problem, "the files are not this model's")
        state[name] = narrowed(stored, chosen, path, name).to(device)
    model.load_state_dict(state, assign=True)
    model.plans = plans
    return model.eval()
