"""What llama.cpp's code says of each `general.architecture` and a GGUF file does not.

Read from llama.cpp of August 2026: llama_model_rope_type for the layout (NORM turns neighbours: pairs; NEOX turns i and
i + n/2: half), and each architecture's load_arch_hparams for windows. The converter has permuted queries and keys of
NORM architectures, so one checkpoint is `half` as a transformers directory and `pairs` as GGUF.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ropewalk.checkpoints.resolved import Stack
from ropewalk.plan import Layout


@dataclass(frozen=True, kw_only=True)
class GGUFArchitecture:
    model_type: str
    """transformers' name of it."""
    kind: Literal["rope", "learned", "alibi", "t5"] = "rope"
    stack: Stack = "decoder"
    layout: Layout = "half"
    every: int = 0
    """n, where every n-th layer is full and the rest slides by attention.sliding_window; 0: no windows."""
    full_first: bool = False
    """Whether the first of n is the full one, and windows look both ways (ModernBERT)."""
    window: int | None = None
    """attention.sliding_window where the file does not say."""
    local_base: float | None = None
    """The base of sliding layers where rope.freq_base_swa is absent; None: the same base."""
    scales_local: bool = True
    rotates: Literal["all", "sliding", "three of four"] = "all"
    experts: bool = False
    latent: bool = False
    sections: Literal["blocks", "interleaved"] | None = None
    temperature: bool = False


_LLAMA = GGUFArchitecture(model_type="llama", layout="pairs")
_EVERY = GGUFArchitecture(model_type="gemma2", every=2, window=4096)

TABLE: dict[str, GGUFArchitecture] = {
    "apertus": GGUFArchitecture(model_type="apertus"),
    "arcee": replace(_LLAMA, model_type="arcee"),
    "bert": GGUFArchitecture(model_type="bert", kind="learned", stack="encoder"),
    "bloom": GGUFArchitecture(model_type="bloom", kind="alibi"),
    "cohere2": replace(_EVERY, model_type="cohere2", layout="pairs", every=4, window=None, rotates="sliding"),
    "command-r": replace(_LLAMA, model_type="cohere"),
    "deepseek2": GGUFArchitecture(model_type="deepseek_v3", layout="pairs", experts=True, latent=True),
    "ernie4_5": replace(_LLAMA, model_type="ernie4_5"),
    "falcon": GGUFArchitecture(model_type="falcon"),
    "gemma": GGUFArchitecture(model_type="gemma"),
    "gemma2": _EVERY,
    "gemma3": replace(_EVERY, model_type="gemma3_text", every=6, window=None, local_base=10_000.0, scales_local=False),
    "glm4": replace(_LLAMA, model_type="glm4"),
    "glm4moe": GGUFArchitecture(model_type="glm4_moe", experts=True),
    "gpt-oss": replace(_EVERY, model_type="gpt_oss", window=None, experts=True),
    "gpt2": GGUFArchitecture(model_type="gpt2", kind="learned"),
    "gptneox": GGUFArchitecture(model_type="gpt_neox"),
    "granite": replace(_LLAMA, model_type="granite"),
    "internlm2": replace(_LLAMA, model_type="internlm2"),
    "llama": _LLAMA,
    "minimax-m2": GGUFArchitecture(model_type="minimax_m2", experts=True),
    "mistral3": replace(_LLAMA, model_type="ministral3", temperature=True),
    "modern-bert": GGUFArchitecture(
        model_type="modernbert", stack="encoder", every=3, full_first=True, local_base=10_000.0
    ),
    "mpt": GGUFArchitecture(model_type="mpt", kind="alibi"),
    "nemotron": GGUFArchitecture(model_type="nemotron"),
    "olmo": replace(_LLAMA, model_type="olmo"),
    "olmo2": replace(_EVERY, model_type="olmo2", every=4, window=None, scales_local=False),
    "olmoe": GGUFArchitecture(model_type="olmoe", experts=True),
    "phi2": GGUFArchitecture(model_type="phi"),
    "phi3": GGUFArchitecture(model_type="phi3"),
    "qwen2": GGUFArchitecture(model_type="qwen2"),
    "qwen2moe": GGUFArchitecture(model_type="qwen2_moe", experts=True),
    "qwen2vl": GGUFArchitecture(model_type="qwen2_vl_text", sections="blocks"),
    "qwen3": GGUFArchitecture(model_type="qwen3"),
    "qwen3moe": GGUFArchitecture(model_type="qwen3_moe", experts=True),
    "qwen3vl": GGUFArchitecture(model_type="qwen3_vl_text", sections="interleaved"),
    "seed_oss": GGUFArchitecture(model_type="seed_oss"),
    "smollm3": replace(_LLAMA, model_type="smollm3", rotates="three of four"),
    "stablelm": GGUFArchitecture(model_type="stablelm"),
    "starcoder2": GGUFArchitecture(model_type="starcoder2"),
    "t5": GGUFArchitecture(model_type="t5", kind="t5", stack="encoder-decoder"),
}
