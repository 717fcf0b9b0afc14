"""config.json of an exported model: the source's with positions in both spellings, or one made from GGUF's keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ropewalk.checkpoints.architectures.generated import engine_names
from ropewalk.checkpoints.architectures.table import TABLE
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.load.stream import Checkpoint, rotation
from ropewalk.scaling import Dynamic, LongRoPE, Proportional, to_hf, to_hf_v4

POSITION_KEYS = ("rope_parameters", "rope_theta", "rope_scaling")


def config_of(source: Checkpoint, dtypes: Mapping[str, torch.dtype]) -> dict[str, Any]:
    """config.json of what is written."""
    kinds = [str(dtype).removeprefix("torch.") for dtype in dtypes.values()]
    # By the number of tensors: norms kept in float32 do not make it a float32 model.
    stored = {"dtype": max(dict.fromkeys(kinds), key=kinds.count)}
    stored["torch_dtype"] = stored["dtype"]
    if not source.gguf:
        # auto_map names Python files beside the config, which are neither run nor copied.
        given = {key: value for key, value in source.resolved.config.items() if key != "auto_map"}
        if not source.row.one_rotation or _beyond(source) is not None:
            return {**given, **stored}
        kept = {key: value for key, value in given.items() if key not in POSITION_KEYS}
        return {**kept, **_positions(source, given), **stored}
    if source.row.gguf is None or source.row.gguf.to_config is None:
        known = ", ".join(name for name, row in TABLE.items() if row.gguf and row.gguf.to_config is not None)
        problem = f"{source.model_type} from GGUF is not written as a directory"
        raise BadInput(source.resolved.where, "general.architecture", problem, f"these are: {known}")
    return {**_composed(source, source.row.gguf.to_config), **stored}


def _composed(source: Checkpoint, stated: tuple[str, ...]) -> dict[str, Any]:
    """The config of a model that came without one."""
    config = source.model.config
    arch, metadata = source.resolved.config["general.architecture"], source.resolved.config
    found: dict[str, Any] = {
        "architectures": [engine_names("transformers5")["types"][source.model_type]],
        "model_type": source.model_type,
        "vocab_size": config.vocabulary,
        "hidden_size": config.width,
        "intermediate_size": config.hidden,
        "num_hidden_layers": len(source.resolved.plan.layers),
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_heads,
        "head_dim": config.head_width,
        "hidden_act": "silu",
        "rms_norm_eps": _short(config.norm.eps),
        "tie_word_embeddings": config.tie,
        "max_position_embeddings": metadata[f"{arch}.context_length"],
        "initializer_range": 0.02,
        "use_cache": True,
    }
    besides = {
        "attention_bias": {"attention_bias": config.qkv_bias},
        "mlp_bias": {"mlp_bias": config.mlp_bias},
        "use_sliding_window": {"use_sliding_window": False, "sliding_window": None},
        "no_rope_layers": {"no_rope_layers": [int(layer.kind == "rope") for layer in source.resolved.plan.layers]},
    }
    for key in stated:
        found |= besides[key]
    tokens = (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
    # Said even where it is none: transformers has defaults of its own, past the end of a small vocabulary.
    ends = {f"{end}_token_id": metadata.get(f"tokenizer.ggml.{name}_token_id") for end, name in tokens}
    positions = _positions(source, found) if source.row.one_rotation else _by_type(source)
    return {**found, **ends, **positions}


def _positions(source: Checkpoint, config: Mapping[str, Any]) -> dict[str, Any]:
    """Both spellings of the one rotation, and the length that goes with it."""
    if (why := _beyond(source)) is not None:
        raise BadInput(source.resolved.where, "rope", why, "use the directory the file was made from")
    layer = next(layer for layer in source.resolved.plan.layers if layer.kind == "rope")
    scaling, (base, width, _) = layer.scaling, rotation(layer)
    if source.gguf:
        base = _short(base)
    theta = to_hf_v4(scaling, base, width)
    found: dict[str, Any] = {"rope_parameters": to_hf(scaling, base, width), "rope_theta": theta[1]}
    if theta[0] is not None:
        found["rope_scaling"] = theta[0]
    if isinstance(scaling, LongRoPE):
        found["original_max_position_embeddings"] = scaling.trained
    if isinstance(scaling, Dynamic) and config.get("max_position_embeddings") != scaling.trained:
        found["max_position_embeddings"] = scaling.trained
    return found


def _by_type(source: Checkpoint) -> dict[str, Any]:
    """Full and sliding layers rotate by bases of their own, as Gemma 3's; and what else is Gemma's."""
    config, layers = source.model.config, source.resolved.plan.layers
    kinds = ["full_attention" if layer.window is None else "sliding_attention" for layer in layers]
    of_kind = dict(zip(kinds, layers, strict=True))
    if len(of_kind) != 2:
        raise BadInput(
            source.resolved.where, "attention.sliding_window", "Gemma 3 has full and sliding layers", "fix it"
        )
    local, full = of_kind["sliding_attention"], of_kind["full_attention"]
    turns = {kind: rotation(layer) for kind, layer in of_kind.items()}
    spelled = {kind: to_hf(of_kind[kind].scaling, _short(base), width) for kind, (base, width, _) in turns.items()}
    scaling, theta = to_hf_v4(full.scaling, spelled["full_attention"]["rope_theta"], turns["full_attention"].width)
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": source.keys.config["query_pre_attn_scalar"],
        "attn_logit_softcapping": config.soft_cap,
        "final_logit_softcapping": config.output_cap,
        "sliding_window": local.window,
        "layer_types": kinds,
        "rope_parameters": spelled,
        "rope_theta": theta,
        "rope_local_base_freq": spelled["sliding_attention"]["rope_theta"],
        **({} if scaling is None else {"rope_scaling": scaling}),
    }


def _beyond(source: Checkpoint) -> str | None:
    """Why the positions are not Llama's one rotation of whole heads; None: they are."""
    layers = {layer for layer in source.resolved.plan.layers if layer.kind == "rope"}
    rotations = {(layer.base, layer.rotary_width, layer.head_width, layer.scaling) for layer in layers}
    if len(rotations) != 1:
        return f"{len(rotations)} different rotations are not Llama's"
    ((_, width, head, scaling),) = rotations
    if width != head:
        return f"{width} of {head} features rotate, and transformers' {source.model_type} turns all"
    if isinstance(scaling, Proportional):
        return "proportional scaling has no key in transformers 4"
    if isinstance(scaling, LongRoPE) and scaling.length is not None:
        return "divisors baked into the file are no rope type of transformers"
    return None


def _short(value: float) -> float:
    """A number that was float32 in its file, as a person would write it: 1e-05, not 9.999999747378752e-06."""
    short = np.float32(value)
    return float(str(short)) if float(short) == value else value
