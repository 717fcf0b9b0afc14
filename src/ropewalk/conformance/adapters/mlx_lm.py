"""MLX-LM: the rope modules that `initialize_rope` makes, and a whole Qwen3 with its KV cache, on MLX's CPU backend.

Positions are told by an offset, and tensors cross as arrays, in their dtype. What `rope_parameters` are read as is
asked of Qwen3's file, which reads them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ropewalk.conformance.adapters.peer import TOLD_NONE, VOCABULARY, Peer, by_name, counted, need, runs
from ropewalk.conformance.findings import NotApplicable
from ropewalk.conformance.target import Spec
from ropewalk.scaling import Dynamic, Linear, Llama3, LongRoPE, YaRN

LIBRARY, DISTRIBUTION, PIP = "mlx_lm", "mlx-lm", "mlx-lm mlx[cpu]"
HEADS, WIDTH = 4, 64
TRAINED, LONGEST = 64, 2048
SHORT, LONG = [1.0 + i / 16 for i in range(WIDTH // 2)], [1.0 + i / 2 for i in range(WIDTH // 2)]

ROPES: dict[str, tuple[float, Any, dict[str, Any], int | None, str]] = {
    "rope": (10_000.0, None, {"rope_type": "default"}, None, "plain RoPE"),
    "linear": (10_000.0, Linear(factor=8), {"rope_type": "linear", "factor": 8.0}, None, "linear scaling"),
    "dynamic": (
        10_000.0, Dynamic(factor=4, trained=TRAINED), {"rope_type": "dynamic", "factor": 4.0}, LONGEST,
        "dynamic NTK from 64 to 2,048",
    ),
    "yarn": (
        10_000.0, YaRN(factor=8, trained=2048),
        {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 2048}, None, "YaRN",
    ),
    "longrope": (
        10_000.0, LongRoPE(factor=32, trained=TRAINED, short=tuple(SHORT), long=tuple(LONG)),
        {"rope_type": "longrope", "original_max_position_embeddings": TRAINED, "short_factor": SHORT,
         "long_factor": LONG}, LONGEST, "LongRoPE from 64 to 2,048",
    ),
    "llama3": (
        500_000.0, Llama3(factor=8, trained=8192, low=1, high=4),
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 8192}, None, "the scaling of Llama 3.1",
    ),
}  # fmt: skip
"""Base, what it is checked against, the config's own words, where positions end, what it is."""


def targets() -> list[Peer]:
    need("mlx_lm.models.rope_utils", PIP)
    plain = {"rope_type": "default"}
    return [
        *(_rope(short, *settings) for short, settings in ROPES.items()),
        _rope("traditional", 10_000.0, None, plain, None, "plain RoPE, traditional=True", layout="pairs"),
        _rope("partial", 10_000.0, None, plain, None, "plain RoPE on half of a head", rotary_width=WIDTH // 2),
        _decoder("decoder", "rope"),
        _decoder("decoder_yarn", "yarn"),
    ]


__getattr__ = by_name(__name__)


def _rope(
    short: str, base: float, scaling: Any, words: dict[str, Any], longest: int | None, says: str, **more: Any
) -> Peer:
    # Dynamic scaling takes max_position_embeddings for the trained length.
    reach = TRAINED if words["rope_type"] == "dynamic" else longest or 8 * (getattr(scaling, "trained", None) or 2048)
    spec = Spec(
        head_width=WIDTH, heads=HEADS, base=base, scaling=scaling, longest=longest or reach, angles="float32",
        per_call=longest is not None, **more,
    )  # fmt: skip

    def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        make = need("mlx_lm.models.rope_utils", PIP).initialize_rope
        return make(spec.rotary, base, spec.layout == "pairs", scaling_config=words, max_position_embeddings=reach)

    offers: dict[str, Any] = {"rotate": rotate, "cast": cast, "outside_torch": True}
    if longest is None and not more:
        offers["frequencies"] = frequencies
    return Peer(LIBRARY, short, spec, build, says, **offers)


def rotate(built: Any, x: Tensor, positions: Tensor) -> Tensor:
    """A stretch that counts up is one call with its offset."""
    rows = positions.expand(x.shape[0], -1)
    if type(built).__name__.startswith("Dynamic") and any(len(runs(row)) > 1 for row in rows):
        raise NotApplicable("the length of a call sets the base, and an offset tells one stretch of positions a call")
    parts = [
        torch.cat([_Rotation.apply(x[b : b + 1, :, i:j], built, p) for i, j, p in runs(row)], dim=2)
        for b, row in enumerate(rows)
    ]
    return torch.cat(parts)


class _Rotation(torch.autograd.Function):
    """One call of a module, and its gradient as MLX has it."""

    @staticmethod
    def forward(*given: Any, **_: Any) -> Tensor:
        ctx, x, built, offset = given
        ctx.built, ctx.offset = built, offset
        ctx.save_for_backward(x)
        return from_mlx(built(to_mlx(x), offset=offset), x.dtype)

    @staticmethod
    def backward(ctx: Any, *given: Any) -> Any:
        (x,), (gradient,) = ctx.saved_tensors, given

        def turned(x: Any) -> Any:
            return ctx.built(x, offset=ctx.offset)

        _, found = need("mlx.core", PIP).vjp(turned, [to_mlx(x)], [to_mlx(gradient)])
        return from_mlx(found[0], x.dtype), None, None


def to_mlx(x: Tensor) -> Any:
    mx = need("mlx.core", PIP)
    name = str(x.dtype).removeprefix("torch.")
    if name not in ("float32", "float16", "bfloat16"):
        raise NotApplicable(f"its models are not run in {name}")
    return mx.array(x.detach().float().contiguous().numpy()).astype(getattr(mx, name))  # exact: numpy has no bfloat16


def from_mlx(array: Any, dtype: torch.dtype) -> Tensor:
    import numpy as np

    return torch.from_numpy(np.array(array.astype(need("mlx.core", PIP).float32))).to(dtype)


def cast(built: Any, dtype: torch.dtype) -> Any:
    built.set_dtype(getattr(need("mlx.core", PIP), str(dtype).removeprefix("torch.")))
    return built


def frequencies(given: dict[str, Any]) -> tuple[list[float], float]:
    """What a Qwen3 with these rope_parameters turns position 1 by."""
    mx = need("mlx.core", PIP)
    width, longest = given.pop("head_dim", WIDTH), given.pop("max_position_embeddings", 16_384)
    rope = qwen3(given, head_dim=width, max_position_embeddings=longest).layers[0].self_attn.rope
    half = width // 2
    ones = mx.array([[[[1.0] * half + [0.0] * half]]])
    row = rope(ones, offset=1)[0, 0, 0].tolist()
    gain = math.hypot(row[0], row[half])
    return [math.atan2(row[half + i], row[i]) for i in range(half)], gain


def qwen3(parameters: dict[str, Any], **more: Any) -> Any:
    library = need("mlx_lm.models.qwen3", PIP)
    config = {
        "model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 64, "rms_norm_eps": 1e-6,
        "num_attention_heads": HEADS, "num_key_value_heads": 2, "vocab_size": VOCABULARY, "head_dim": WIDTH,
        "tie_word_embeddings": False, "max_position_embeddings": 16_384, "rope_parameters": parameters, **more,
    }  # fmt: skip
    return library.Model(library.ModelArgs.from_dict(config))


def _decoder(short: str, rope: str) -> Peer:
    base, scaling, words, _, says = ROPES[rope]

    def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        mx, tree = need("mlx.core", PIP), need("mlx.utils", PIP)
        built = qwen3({"rope_theta": base, **words})
        generator = torch.Generator().manual_seed(3)
        drawn = [
            (name, to_mlx(torch.randn(old.shape, generator=generator) * 0.35) if old.ndim > 1 else mx.ones(old.shape))
            for name, old in tree.tree_flatten(built.parameters())
        ]
        built.load_weights(drawn)
        return cast(built, dtype)

    def forward(built: Any, ids: Tensor, positions: Tensor | None = None, cache: Any = None) -> Any:
        made = need("mlx_lm.models.cache", PIP).make_prompt_cache
        held, due = (made(built), None) if cache is None else cache
        due = counted(positions, due, ids.shape[1], "the KV cache of MLX-LM")
        logits = built(need("mlx.core", PIP).array(ids.numpy()), cache=held)
        return from_mlx(logits, torch.float32), (held, due)

    spec = Spec(heads=HEADS, head_width=WIDTH, scaling=scaling, **TOLD_NONE)
    return Peer(LIBRARY, short, spec, build, f"a whole Qwen3, {says}", forward=forward, cast=cast, outside_torch=True)
