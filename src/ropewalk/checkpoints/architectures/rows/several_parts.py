"""Models of several parts, whose positions are those of their text part; and models that only Python code describes."""

from __future__ import annotations

from ropewalk.checkpoints.architectures.architecture import SeveralParts

ROWS = {
    "audioflamingo3": SeveralParts(text="qwen2"),
    "aya_vision": SeveralParts(text="cohere2"),
    "cohere2_vision": SeveralParts(text="cohere2"),
    "deepseek_vl": SeveralParts(text="llama"),
    "exaone4_5": SeveralParts(text="exaone4", renamed=("exaone4_5_text",)),
    "fast_vlm": SeveralParts(text="qwen2"),
    "gemma3": SeveralParts(text="gemma3_text"),
    "gemma3n": SeveralParts(text="gemma3n_text"),
    "gemma4": SeveralParts(text="gemma4_text"),
    "gemma4_unified": SeveralParts(text="gemma4_unified_text"),
    "glm46v": SeveralParts(text="glm4v_text"),
    "glm4v": SeveralParts(text="glm4v_text"),
    "glm4v_moe": SeveralParts(text="glm4v_moe_text"),
    "glm5_next": SeveralParts(text="glm5_next_text", keys_at_top=True),
    "glm_ocr": SeveralParts(text="glm_ocr_text"),
    "glmasr": SeveralParts(text="llama"),
    "got_ocr2": SeveralParts(text="qwen2"),
    "granite_speech": SeveralParts(text="granite"),
    "idefics2": SeveralParts(text="mistral"),
    "idefics3": SeveralParts(text="llama"),
    "internvl": SeveralParts(text="qwen2"),
    "janus": SeveralParts(text="llama"),
    "kimi_k25": SeveralParts(text="deepseek_v3"),
    "lfm2_vl": SeveralParts(text="lfm2"),
    "lighton_ocr": SeveralParts(text="qwen3"),
    "llama4": SeveralParts(text="llama4_text"),
    "llava": SeveralParts(text="llama"),
    "llava_next": SeveralParts(text="llama"),
    "llava_next_video": SeveralParts(text="llama"),
    "llava_onevision": SeveralParts(text="qwen2"),
    "minicpmv4_6": SeveralParts(text="qwen3_5_text"),
    "minimax_m3_vl": SeveralParts(text="minimax_m3_vl_text"),
    "mistral3": SeveralParts(text="mistral"),
    "mllama": SeveralParts(text="mllama_text_model"),
    "muse_glimmer": SeveralParts(text="muse_glimmer_text"),
    "ovis2": SeveralParts(text="qwen2"),
    "paddleocr_vl": SeveralParts(text="paddleocr_vl_text", keys_at_top=True),
    "perception_lm": SeveralParts(text="llama"),
    "qwen2_5_vl": SeveralParts(text="qwen2_5_vl_text", keys_at_top=True),
    "qwen2_audio": SeveralParts(text="qwen2"),
    "qwen2_vl": SeveralParts(text="qwen2_vl_text", keys_at_top=True),
    "qwen3_5": SeveralParts(text="qwen3_5_text"),
    "qwen3_5_moe": SeveralParts(text="qwen3_5_moe_text"),
    "qwen3_asr": SeveralParts(text="qwen3"),
    "qwen3_vl": SeveralParts(text="qwen3_vl_text"),
    "qwen3_vl_moe": SeveralParts(text="qwen3_vl_moe_text"),
    "qwen4_exp": SeveralParts(text="qwen4_exp_text"),
    "shieldgemma2": SeveralParts(text="gemma3_text"),
    "smolvlm": SeveralParts(text="llama"),
    "step3p7": SeveralParts(text="step3p5"),
    "video_llava": SeveralParts(text="llama"),
    "vipllava": SeveralParts(text="llama"),
    "voxtral": SeveralParts(text="llama"),
}

REMOTE = {
    "baichuan": "Baichuan's positions (RoPE in the 7B models, ALiBi in the 13B ones) are chosen by its own code",
    "chatglm": "ChatGLM's positions are in its own code; the GLM-4 checkpoints whose names end in -hf state them",
    "qwen": "the first Qwen's dynamic NTK and log-n scaling are in its own code; Qwen1.5 and later state theirs",
    "minicpm": "MiniCPM's positions are in its own code",
    "new": "the NTK that gte's first models state is a formula of their own code, with another exponent than others'",
    "phi3small": "Phi-3-small's block-sparse layers are in its own code",
}
"""Known by name, and refused: nothing but Python code says what they are, and that is not run."""

_DISENTANGLED = "its scores add products of each token with the other's relative position, which no encoding here has"
UNREADABLE = {"deberta": _DISENTANGLED, "deberta-v2": _DISENTANGLED}
"""Known by name, and refused: what their code does with positions is none of the encodings of a plan."""
