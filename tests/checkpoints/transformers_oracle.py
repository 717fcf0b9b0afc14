"""What transformers itself makes of a config: its own rotation module, layer types and windows."""

from __future__ import annotations

import copy
import importlib
from types import ModuleType
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import CONFIG_MAPPING

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.plan import LayerPlan, Plan

transformers.logging.set_verbosity_error()


class Theirs:
    """The text part of a config as transformers reads it, with the rotation it would use."""

    def __init__(self, config: dict[str, Any]) -> None:
        whole = CONFIG_MAPPING[config["model_type"]].from_dict(copy.deepcopy(config))
        self.config = whole.get_text_config()
        self.modeling: ModuleType = importlib.import_module(
            type(self.config).__module__.replace("configuration_", "modeling_")
        )
        self.rotary = self._rotary()

    def _rotary(self) -> nn.Module | None:
        classes = [
            found
            for name, found in vars(self.modeling).items()
            if name.endswith("RotaryEmbedding") and not any(part in name for part in ("Vision", "Audio"))
        ]
        return classes[0](config=self.config) if classes else None

    def types(self, count: int) -> list[str]:
        """Of each layer, in transformers' words."""
        listed = getattr(self.config, "layer_types", None)
        if listed is not None:
            return list(listed)
        return ["full_attention" if self.window() is None else "sliding_attention"] * count

    def window(self) -> int | None:
        """Tokens a query sees on a layer that is not full."""
        if (chunk := getattr(self.config, "attention_chunk_size", None)) is not None:
            return chunk
        width = getattr(self.config, "sliding_window", None) or None
        # Between tokens of an encoder transformers counts the distance, which leaves out the token itself.
        return width if width is None or self.config.model_type != "modernbert" else width + 1

    def rotates(self, layer: int, kind: str) -> bool:
        if self.rotary is None:
            return False
        if (bases := getattr(self.config, "layer_rope_theta", None)) is not None:
            return bool(bases[layer])
        if self.config.model_type == "cohere2_moe":
            forced = self.config.prefix_dense_sliding_window_pattern == 1
            return kind == "sliding_attention" or (forced and self.config.mlp_layer_types[layer] == "dense")
        if layer in (getattr(self.config, "cross_attention_layers", None) or ()):
            return False
        marks = getattr(self.config, "no_rope_layers", None)
        if marks is not None:
            return bool(marks[layer])
        if self.config.model_type in ("afmoe", "cohere2", "exaone4", "exaone_moe") and self.window() is not None:
            return kind == "sliding_attention"
        return kind not in ("linear_attention", "conv")

    def _label(self, kind: str) -> str:
        """DeepSeek V4 has other names for its rotations than for its layers."""
        if "main" not in (getattr(self.config, "rope_parameters", None) or {}):
            return kind
        return "main" if kind == "sliding_attention" else "compress"

    def frequencies(self, kind: str) -> tuple[list[float], float]:
        """The inverse frequencies in use, and the gain on cos and sin."""
        assert self.rotary is not None
        buffers, kind = dict(self.rotary.named_buffers()), self._label(kind)
        if f"{kind}_inv_freq" in buffers:
            return buffers[f"{kind}_inv_freq"].tolist(), getattr(self.rotary, f"{kind}_attention_scaling")
        return buffers["inv_freq"].tolist(), self.rotary.attention_scaling

    def scores(self, q: Tensor, k: Tensor, positions: Tensor, kind: str, axes: int = 1) -> Tensor:
        """Products of queries and keys (1, 1, L, R), rotated by transformers' own functions."""
        assert self.rotary is not None
        kind = self._label(kind)
        at = positions[None] if axes == 1 else positions[None, None].expand(axes, 1, -1)
        nested = f"{kind}_inv_freq" in dict(self.rotary.named_buffers())
        table = self.rotary(q, at, kind) if nested else self.rotary(q, at)
        apply = getattr(self.modeling, "apply_rotary_pos_emb", None)
        # Beside it, the other one is for models whose config says so, or for an indexer.
        if getattr(self.config, "rope_interleave", True):
            apply = getattr(self.modeling, "apply_rotary_pos_emb_interleave", apply)
        if apply is None:
            # Complex numbers: Llama 4 has heads after positions, DeepSeek V2 before.
            heads_last = self.config.model_type == "llama4_text"
            turned = self.modeling.apply_rotary_emb(*((x.transpose(1, 2) if heads_last else x) for x in (q, k)), table)
            q, k = (x.transpose(1, 2) if heads_last else x for x in turned)
        elif self.config.model_type.startswith(("gemma3n", "gemma4", "deepseek_v4")):
            q, k = (apply(x, *table, unsqueeze_dim=1) for x in (q, k))
        else:
            q, k = apply(q, k, *table)
        return q[0, 0] @ k[0, 0].T


def small(config: dict[str, Any], keys: Architecture) -> dict[str, Any]:
    """The smallest config of an architecture: sizes and a base, and all else by default."""
    found = {
        keys.layer_key: 12,
        keys.width_key: 256,
        keys.heads_key: 4,
        keys.longest_key: 4096,
        **config,
    }
    if keys.theta_key is not None and "rope_parameters" not in keys.defaults:
        found.setdefault(keys.theta_key, 12_345.0)
    return found


def compare(plan: Plan, theirs: Theirs) -> None:
    """Layer by layer: type, window, whether it rotates, and bit for bit by what."""
    types = theirs.types(len(plan.layers))
    assert len(types) == len(plan.layers)
    seen: dict[tuple[LayerPlan, str], None] = {}
    for number, (layer, kind) in enumerate(zip(plan.layers, types, strict=True)):
        assert layer.window == (theirs.window() if kind in ("sliding_attention", "chunked_attention") else None), number
        assert (layer.kind == "rope") == theirs.rotates(number, kind), (number, kind)
        if layer.kind == "rope":
            seen[layer, kind] = None
    for layer, kind in seen:
        frequencies, gain = theirs.frequencies(kind)
        assert list(layer.frequencies) == frequencies, kind
        assert layer.rotary_gain == gain, kind


def rotated(x: Tensor, layer: LayerPlan, positions: Tensor) -> Tensor:
    """x (1, 1, L, R) rotated by the plan, in float64."""
    angles = positions[:, None].double() * torch.tensor(layer.frequencies, dtype=torch.float64)
    cos, sin = angles.cos() * layer.rotary_gain, angles.sin() * layer.rotary_gain
    half = x.shape[-1] // 2
    if layer.layout == "half":
        first, second = x[..., :half].double(), x[..., half:].double()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    first, second = x[..., 0::2].double(), x[..., 1::2].double()
    return torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1).flatten(-2)
