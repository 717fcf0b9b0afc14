"""Models of several parts, whose positions are those of their text part; and models that only Python code describes."""

from __future__ import annotations

from ropewalk.checkpoints.architectures.architecture import SeveralParts

ROWS = {
    "aya_vision": SeveralParts(text="cohere2"),
    "cohere2_vision": SeveralParts(text="cohere2"),
    "exaone4_5": SeveralParts(text="exaone4", renamed=("exaone4_5_text",)),
    "gemma3": SeveralParts(text="gemma3_text"),
    "gemma3n": SeveralParts(text="gemma3n_text"),
    "gemma4": SeveralParts(text="gemma4_text"),
    "kimi_k25": SeveralParts(text="deepseek_v3"),
    "llama4": SeveralParts(text="llama4_text"),
    "llava": SeveralParts(text="llama"),
    "mistral3": SeveralParts(text="mistral"),
    "qwen2_5_vl": SeveralParts(text="qwen2_5_vl_text", keys_at_top=True),
    "qwen2_vl": SeveralParts(text="qwen2_vl_text", keys_at_top=True),
    "qwen3_5": SeveralParts(text="qwen3_5_text"),
    "qwen3_5_moe": SeveralParts(text="qwen3_5_moe_text"),
    "qwen3_vl": SeveralParts(text="qwen3_vl_text"),
    "qwen3_vl_moe": SeveralParts(text="qwen3_vl_moe_text"),
}

REMOTE = {
    "baichuan": "Baichuan's positions (RoPE in the 7B models, ALiBi in the 13B ones) are chosen by its own code",
    "chatglm": "ChatGLM's positions are in its own code; the GLM-4 checkpoints whose names end in -hf state them",
    "qwen": "the first Qwen's dynamic NTK and log-n scaling are in its own code; Qwen1.5 and later state theirs",
    "minicpm": "MiniCPM's positions are in its own code",
    "phi3small": "Phi-3-small's block-sparse layers are in its own code",
}
"""Known by name, and refused: nothing but Python code says what they are, and that is not run."""
