"""llama.cpp, through xllamacpp: what it makes of a GGUF file, in float32 throughout."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest


class LlamaCpp:
    """Log-probabilities of what comes after tokens. Float32 keys and no flash attention: else it rounds to 16 bits."""

    def __init__(self, path: Path, context: int = 512, **rope: Any) -> None:
        engine: Any = pytest.importorskip("xllamacpp")
        settings = engine.CommonParams()
        settings.model.path = str(path)
        settings.n_ctx, settings.n_parallel, settings.warmup = context, 1, False
        settings.cache_type_k = settings.cache_type_v = engine.ggml_type.GGML_TYPE_F32
        settings.flash_attn_type = engine.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
        for name, value in rope.items():
            setattr(settings, name, value)
        self.server = engine.Server(settings)

    def next(self, tokens: Sequence[int], most: int = 20) -> dict[int, float]:
        """The likeliest next tokens."""
        # What it then says must be a whole character, or it tells nothing; the probabilities are those before the bias.
        asked = {
            "prompt": list(tokens),
            "max_tokens": 1,
            "logprobs": most,
            "cache_prompt": True,
            "logit_bias": [[64, 1000.0]],
        }
        (choice,) = self.server.handle_completions(asked)["choices"]
        (place,) = choice["logprobs"]["content"]
        return {one["id"]: one["logprob"] for one in place["top_logprobs"]}

    def chat(self, messages: Sequence[dict[str, str]]) -> str:
        """The text that its own template engine makes of a conversation, ready for the answer."""
        connection = HTTPConnection(self.server.listening_address.partition("//")[2], timeout=60)
        try:
            asked = json.dumps({"messages": messages})
            connection.request("POST", "/apply-template", asked, {"Content-Type": "application/json"})
            return json.loads(connection.getresponse().read())["prompt"]
        finally:
            connection.close()
