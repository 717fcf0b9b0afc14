"""Small random models, written by transformers, and a tokenizer for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

VOCABULARY = 320
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "bos_token_id": 300,
    "eos_token_id": 301,
}


def rope(kind: str, **settings: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10_000.0, **settings}}


LLAMA3 = rope("llama3", factor=8.0, original_max_position_embeddings=128, low_freq_factor=1.0, high_freq_factor=4.0)
YARN = rope("yarn", factor=4.0, original_max_position_embeddings=64)
LONGROPE = rope(
    "longrope",
    factor=4.0,
    original_max_position_embeddings=64,
    short_factor=[1.0 + 0.125 * i for i in range(8)],
    long_factor=[1.0 + i for i in range(8)],
)

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama tied": ("Llama", {"tie_word_embeddings": True}),
    "llama biases": ("Llama", {"attention_bias": True}),
    "llama linear": ("Llama", rope("linear", factor=2.0)),
    "llama yarn": ("Llama", YARN),
    "llama yarn gain": ("Llama", rope("yarn", factor=4.0, original_max_position_embeddings=64, attention_factor=1.3)),
    "llama llama3": ("Llama", LLAMA3),
    "llama dynamic": ("Llama", rope("dynamic", factor=2.0)),
    "llama longrope": ("Llama", LONGROPE),
    "mistral window": ("Mistral", {"sliding_window": 24}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 24}),
    "qwen3 yarn": ("Qwen3", {"head_dim": 24, **YARN}),
    "smollm3": ("SmolLM3", {"num_hidden_layers": 4, "pad_token_id": 302}),
    "gpt neox": ("GPTNeoX", {"num_attention_heads": 4, "rotary_pct": 0.25}),
}
"""By name: transformers' class without ForCausalLM, and what its config has beside the sizes."""


def make(name: str, directory: Path, *, dtype: torch.dtype = torch.float32, tokenizer: bool = True) -> Any:
    """The model, in evaluation, after it was saved."""
    family, settings = MODELS[name]
    torch.manual_seed(5)
    kind = "Gemma3Text" if family == "Gemma3" else family
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **settings})
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms of 1 and biases of 0 would hide a mistake
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model = model.to(dtype)
    model.save_pretrained(directory)
    if tokenizer:
        write_tokenizer(directory)
    return model


def write_tokenizer(directory: Path) -> None:
    """Byte-level BPE of 256 bytes, some merges, and two special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("i", "n"), ("a", "n"), ("o", "n"), ("\u0120", "the"), ("e", "r")]
    every = [*letters, *("".join(merge) for merge in merges)]
    inner = Tokenizer(models.BPE({token: n for n, token in enumerate(every)}, merges))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_tokens([f"<unused{n}>" for n in range(300 - len(every))])
    inner.add_special_tokens(["<|begin|>", "<|end|>"])
    assert inner.token_to_id("<|begin|>") == 300
    inner.save(str(directory / "tokenizer.json"))


def tokens(count: int, batch: int = 1) -> torch.Tensor:
    return torch.randint(0, 256, (batch, count), generator=torch.Generator().manual_seed(1))


def make_gguf(name: str, folder: Path) -> Path:
    """The same as a directory, folder/source, and as the file that is returned."""
    from ropewalk.checkpoints.export.convert import export

    make(name, folder / "source")
    write_tokenizer(folder / "source")
    export(folder / "source", folder / "model.gguf", format="gguf")
    return folder / "model.gguf"
