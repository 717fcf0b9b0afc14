"""Every way to write theta and a scaling, and small models with windows: what a version of transformers makes of them.

python -m tests.checkpoints.engines.spellings PYTHON        writes transformers4.json by an interpreter that has 4.57.1
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("transformers4.json")
RUNNERS = Path(__file__).parents[3] / "campaigns" / "engine_runners.py"

THETA = 50_000.0
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 8192,
    "pad_token_id": 0,
}
LISTS = {"short_factor": [1.0 + 0.1 * i for i in range(8)], "long_factor": [2.0 + 0.5 * i for i in range(8)]}
TRAINED = {"original_max_position_embeddings": 2048}
TYPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, **TRAINED},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **TRAINED},
    "longrope": {"rope_type": "longrope", "factor": 4.0, **TRAINED, **LISTS},
}


def spellings() -> dict[str, dict[str, Any]]:
    """Of a Llama: theta at the top or inside, each block absent, null or given; and of models with nested blocks."""
    found = {}
    for (kind, block), theta, old, new in product(
        TYPES.items(), ("top", "inside", "both"), ("absent", "null", "given"), ("absent", "null", "given")
    ):
        if theta == "inside" and "given" not in (old, new):
            continue
        inside = block if theta == "top" else {**block, "rope_theta": THETA}
        config = {"model_type": "llama", **SIZES, "num_hidden_layers": 1} | (
            {} if theta == "inside" else {"rope_theta": THETA}
        )
        config |= {"null": {"rope_scaling": None}, "given": {"rope_scaling": inside}}.get(old, {})
        config |= {"null": {"rope_parameters": None}, "given": {"rope_parameters": inside}}.get(new, {})
        found[f"{kind}: theta {theta}, rope_scaling {old}, rope_parameters {new}"] = config
    return found | nested()


def nested() -> dict[str, dict[str, Any]]:
    layers = {"sliding_window": 64, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}
    gemma = {"model_type": "gemma3_text", **SIZES, **layers}
    olmo = {"model_type": "olmo3", **SIZES, **layers}
    oss = {"model_type": "gpt_oss", **SIZES, **layers, "num_local_experts": 2, "num_experts_per_tok": 1}
    oss["layer_types"] = ["sliding_attention", "full_attention"] * 2
    phi = {"model_type": "phi3", **SIZES, "sliding_window": None, **TRAINED}
    local, linear, yarn = {"rope_type": "default", "rope_theta": 2e4}, TYPES["linear"], TYPES["yarn"]
    return {
        "gemma 3, old": {**gemma, "rope_theta": 3e5, "rope_local_base_freq": 2e4, "rope_scaling": linear},
        "gemma 3, nested": {**gemma, "rope_parameters": _both({**linear, "rope_theta": 3e5}, local)},
        "gemma 3, nested, theta at the top": {
            **gemma,
            "rope_theta": 3e5,
            "rope_parameters": _both({**linear, "rope_theta": 3e5}, local),
        },
        "olmo 3, old": {**olmo, "rope_theta": 3e5, "rope_scaling": yarn},
        "olmo 3, nested": {
            **olmo,
            "rope_parameters": _both({**yarn, "rope_theta": 3e5}, {"rope_type": "default", "rope_theta": 3e5}),
        },
        "gpt-oss, old": {**oss, "rope_theta": 3e5, "rope_scaling": {**yarn, "truncate": False}},
        "gpt-oss, new": {**oss, "rope_parameters": {**yarn, "truncate": False, "rope_theta": 3e5}},
        "gpt-oss, the class's own": {**oss, "rope_theta": 150_000.0},
        "phi 3, old": {**phi, "rope_theta": 3e5, "rope_scaling": {"type": "longrope", **LISTS}},
        "phi 3, new": {**phi, "rope_parameters": {"rope_type": "longrope", **LISTS, "rope_theta": 3e5, **TRAINED}},
    }


def _both(full: dict[str, Any], sliding: dict[str, Any]) -> dict[str, Any]:
    return {"full_attention": full, "sliding_attention": sliding}


TOKENS, WINDOW = 40, 6
_MOE = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16}
_LOCAL = {"num_local_experts": 2, "num_experts_per_tok": 1}
_LATE = {"use_sliding_window": True, "max_window_layers": 2}
_LLAMA4 = {"attention_chunk_size": 8, "intermediate_size_mlp": 32, "num_local_experts": 1, "num_experts_per_tok": 1}
_MINISTRAL = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 16.0, "original_max_position_embeddings": 16_384,
    "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
}  # fmt: skip
_VL = {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}


def windowed() -> dict[str, dict[str, Any]]:
    """Small models of every architecture that has windows or layers without rotation."""
    grouped = {"n_group": 1, "topk_group": 1, "first_k_dense_replace": 4}
    kinds: dict[str, dict[str, Any]] = {
        **{name: {} for name in ("mistral", "ministral", "phi3", "starcoder2", "gemma2", "vaultgemma")},
        "ministral3": {"rope_parameters": _MINISTRAL},
        **{name: {} for name in ("olmo3", "smollm3")},
        "mixtral": _LOCAL,
        "qwen2": _LATE,
        "qwen2, off": {"use_sliding_window": False},
        "qwen2_moe": {**_LATE, "max_window_layers": 3, **_MOE, "shared_expert_intermediate_size": 16},
        "qwen3": _LATE,
        "qwen3_moe": {**_LATE, **_MOE},
        "qwen2_vl_text": {**_LATE, **_VL},
        "qwen2_5_vl_text": {**_LATE, **_VL},
        "dots1": {**_LATE, **_MOE, "n_routed_experts": 2, **grouped},
        "gemma3_text": {"sliding_window_pattern": 3},
        "gemma3_text, both ways": {"use_bidirectional_attention": True},
        "gemma4_text": {"global_head_dim": 16, "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0},
        "cohere2": {"sliding_window_pattern": 4},
        "exaone4": {"sliding_window_pattern": 4},
        "exaone_moe": {**_MOE, **grouped},
        "gpt_oss": _LOCAL,
        "smollm3, listed": {"use_sliding_window": True, "no_rope_layers": [1, 0, 1, 1]},
        "llama4_text": _LLAMA4,
        "llama4_text, listed": {**_LLAMA4, "no_rope_layers": [1, 0, 1, 1]},
        "modernbert": {"local_attention": 6, "global_attn_every_n_layers": 3},
    }
    found = {}
    for name, settings in kinds.items():
        model_type = name.partition(",")[0]
        config = {"model_type": model_type, **SIZES, "max_position_embeddings": 256, **settings}
        config |= {} if model_type in ("llama4_text", "modernbert") else {"sliding_window": WINDOW}
        config |= {} if model_type in ("gemma4_text", "modernbert") else {"rope_theta": 10_000.0}
        found[name] = config
    return found


def ask(python: str) -> dict[str, Any]:
    """What the transformers of another interpreter makes of all of them."""
    answers = {}
    for what, cases in (("rotations", spellings()), ("masks", windowed())):
        with tempfile.TemporaryDirectory() as folder:
            job, answer = Path(folder) / "job.json", Path(folder) / "answer.json"
            job.write_text(json.dumps({"configs": list(cases.values()), "tokens": TOKENS}))
            subprocess.run([python, str(RUNNERS), what, str(job), str(answer)], check=True, capture_output=True)
            answers[what] = dict(zip(cases, json.loads(answer.read_text()), strict=True))
    return answers


def brief(answers: dict[str, Any]) -> dict[str, Any]:
    """Of the frequencies the second, the fifth and the last: any other theta or scaling changes one of them."""
    shortened = {
        name: found
        if isinstance(found, str)
        else {place: [*(float(f"{values[i]:.7g}") for i in (1, 4, 7)), gain] for place, (values, gain) in found.items()}
        for name, found in answers["rotations"].items()
    }
    return {**answers, "rotations": shortened}


if __name__ == "__main__":
    lines = {
        what: "{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(found)}" for name, found in cases.items()) + "\n }"
        for what, cases in brief(ask(sys.argv[1])).items()
    }
    TABLE.write_text(
        "{\n" + ",\n".join(f' "{what}": {text}' for what, text in lines.items()) + "\n}\n", encoding="utf-8"
    )
