"""llama.cpp, through xllamacpp: whole small models as GGUF files, asked for the logarithms of its probabilities.

It tells those of the last token alone. A full pass asks for each prefix anew, in a slot that keeps nothing. After a
cache the last token of a piece is asked for in another slot, which keeps its prompt.
"""

from __future__ import annotations

import json
import tempfile
from functools import cache as kept
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ropewalk.conformance.adapters.peer import Peer, by_name, counted, need
from ropewalk.conformance.findings import NotApplicable
from ropewalk.conformance.target import Spec
from ropewalk.scaling import Linear, Llama3, YaRN

LIBRARY, DISTRIBUTION, PIP = "llama_cpp", "xllamacpp", "xllamacpp gguf"
TOKENS, USED = 320, 256
"""Tokens of the file, and those that are text: others are not asked for."""
HEADS, KEY_HEADS, WIDTH, HEAD, LAYERS = 4, 2, 64, 16, 2
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}  # fmt: skip

MODELS: dict[str, tuple[dict[str, Any], Any, str]] = {
    "llama": ({"rope_type": "default"}, None, "Llama, plain RoPE"),
    "llama_linear": ({"rope_type": "linear", "factor": 4.0}, Linear(factor=4), "Llama, linear scaling"),
    "llama_yarn": (YARN, YaRN(factor=8, trained=64), "Llama, YaRN"),
    "llama_llama3": (LLAMA3, Llama3(factor=8, trained=64, low=1, high=4), "Llama, the scaling of Llama 3.1"),
}
"""The words of its config.json, what they mean, what it is."""


def targets() -> list[Peer]:
    need("xllamacpp", PIP)
    return [_decoder(short, *settings) for short, settings in MODELS.items()]


__getattr__ = by_name(__name__)


def _decoder(short: str, words: dict[str, Any], scaling: Any, says: str) -> Peer:
    def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        return server(json.dumps(words))

    def forward(built: Any, ids: Tensor, positions: Tensor | None = None, cache: Any = None) -> Any:
        if len(ids) > 1:
            raise NotApplicable("one text is asked for at a time")
        before, due = ([], None) if cache is None else cache
        due = counted(positions, due, ids.shape[1], "llama.cpp's server")
        tokens = [*before, *ids[0].tolist()]
        rows = [ask(built, tokens[: n + 1], slot=1) for n in range(len(before), len(tokens))]
        last = ask(built, tokens, slot=0)
        if cache is not None:
            rows[-1] = last
        return torch.tensor([rows]), (tokens, due)

    spec = Spec(kind="other", relative=False, heads=HEADS, head_width=HEAD, vocabulary=USED, scaling=scaling)
    return Peer(LIBRARY, short, spec, build, says, forward=forward)


def ask(built: Any, tokens: list[int], slot: int) -> list[float]:
    asked = {
        "prompt": tokens, "max_tokens": 1, "logprobs": TOKENS, "cache_prompt": slot == 0, "id_slot": slot,
        # What it then says must be a whole character, or it tells nothing; probabilities are those before the bias.
        "logit_bias": [[64, 1000.0]],
    }  # fmt: skip
    answer = built.handle_completions(asked)
    if "choices" not in answer:
        raise RuntimeError(f"the server says: {answer}")
    (choice,) = answer["choices"]
    (place,) = choice["logprobs"]["content"]
    found = {one["id"]: one["logprob"] for one in place["top_logprobs"]}
    return [found[token] for token in range(USED)]


@kept
def server(words: str) -> Any:
    """One for each file: it keeps no state that a text of its own does not bring."""
    engine = need("xllamacpp", PIP)
    with tempfile.TemporaryDirectory() as place:
        path = write(Path(place), json.loads(words))
        settings = engine.CommonParams()
        settings.model.path = str(path)
        settings.n_ctx, settings.n_parallel, settings.warmup = 1024, 2, False
        settings.verbosity = -1
        # Half floats for keys, or a fused kernel, would round what is to be compared.
        settings.cache_type_k = settings.cache_type_v = engine.ggml_type.GGML_TYPE_F32
        settings.flash_attn_type = engine.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
        return engine.Server(settings)


def write(place: Path, words: dict[str, Any]) -> Path:
    """A Llama with random weights as a directory, and that as GGUF by our own export."""
    from safetensors.torch import save_file

    from ropewalk.checkpoints.export.convert import export

    source = place / "source"
    source.mkdir()
    save_file(weights(), source / "model.safetensors", metadata={"format": "pt"})
    (source / "config.json").write_text(json.dumps(config(words)), encoding="utf-8")
    (source / "tokenizer.json").write_text(json.dumps(tokenizer()), encoding="utf-8")
    export(source, place / "model.gguf", format="gguf")
    return place / "model.gguf"


def config(words: dict[str, Any]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": TOKENS, "hidden_size": WIDTH,
        "intermediate_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_HEADS, "head_dim": HEAD, "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "max_position_embeddings": 512, "tie_word_embeddings": False, "bos_token_id": 300, "eos_token_id": 301,
        "torch_dtype": "float32", "rope_parameters": {"rope_theta": 10_000.0, **words},
    }  # fmt: skip


def weights() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator) * 0.35

    found = {"model.embed_tokens.weight": some(TOKENS, WIDTH), "lm_head.weight": some(TOKENS, WIDTH)}
    found["model.norm.weight"] = 1 + some(WIDTH)
    for n in range(LAYERS):
        at = f"model.layers.{n}"
        for name, rows in (("q", HEADS * HEAD), ("k", KEY_HEADS * HEAD), ("v", KEY_HEADS * HEAD)):
            found[f"{at}.self_attn.{name}_proj.weight"] = some(rows, WIDTH)
        found[f"{at}.self_attn.o_proj.weight"] = some(WIDTH, HEADS * HEAD)
        for name in ("gate", "up", "down"):
            found[f"{at}.mlp.{name}_proj.weight"] = some(WIDTH, WIDTH)
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{at}.{name}.weight"] = 1 + some(WIDTH)
    return found


def tokenizer() -> dict[str, Any]:
    """Byte-level BPE of the 256 bytes, one merge, and two special tokens."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = sorted([*map(chr, plain), *(chr(256 + n) for n in range(256 - len(plain)))])
    words = {token: n for n, token in enumerate([*letters, "th"])}
    unused = [f"<unused{n}>" for n in range(300 - len(words))]
    rest = [*unused, "<|begin|>", "<|end|>", *(f"<unused{n}>" for n in range(len(unused), len(unused) + 18))]
    common = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": len(words) + n, "content": token, "special": token.startswith("<|"), **common}
        for n, token in enumerate(rest)
    ]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": words, "merges": [["t", "h"]]}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level, "model": model,
    }  # fmt: skip
