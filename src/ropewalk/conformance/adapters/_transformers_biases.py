"""The part of transformers that adds to scores: ALiBi by BLOOM, Falcon and MPT, a whole BLOOM, and T5's buckets."""

from __future__ import annotations

import copy
import json
import tempfile
from functools import cache as kept
from typing import Any

import torch
from torch import Tensor

from ropewalk.conformance.adapters.peer import (
    TOLD_NONE,
    VOCABULARY,
    Peer,
    counted,
    float32_weights,
    key_form,
    loudly,
    only_padding,
    seeded,
)
from ropewalk.conformance.findings import NotApplicable
from ropewalk.conformance.target import Spec

LIBRARY = "transformers"
HEADS, WIDTH = 4, 32
T5_LONGEST = 16_384
GRAPH = 1024
"""Keys of an ALiBi mask in a compiled graph: more than any check has there."""


def biases() -> list[Peer]:
    return [*_alibis(), _bloom_model(), *_t5()]


def made(config: Any, family: str, dtype: torch.dtype, device: str) -> Any:
    """As the documentation has it: from_pretrained, with a dtype. Every instance is a copy of what was loaded."""
    if device == "meta":
        raise NotApplicable("from_pretrained makes a model on the meta device, and fills it")
    return copy.deepcopy(_loaded(family, config.to_json_string(), dtype, torch.get_default_dtype()))


@kept
def _loaded(family: str, config: str, dtype: torch.dtype, default: torch.dtype) -> Any:
    """Loaded once for each default dtype, since a model may depend on that."""
    import transformers

    model = getattr(transformers, f"{family}ForCausalLM")
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as place, float32_weights():
        seeded(lambda: loudly(model(model.config_class(**json.loads(config))))).save_pretrained(place)
        torch.set_default_dtype(default)
        return model.from_pretrained(place, dtype=dtype).eval()


def _alibis() -> list[Peer]:
    """BLOOM's, Falcon's and MPT's. All hold a bias for each key, which a softmax takes for a relative one."""
    longest, heads = 2**18, 16

    def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        return dtype

    def of(name: str) -> Any:
        def bias(built: torch.dtype, q_positions: Tensor, k_positions: Tensor) -> Tensor:
            from transformers.models.bloom import modeling_bloom
            from transformers.models.falcon import modeling_falcon
            from transformers.models.mpt import modeling_mpt

            # A graph knows no values, so that it cannot be told how long a mask must be.
            compiled = torch.compiler.is_compiling()
            length = GRAPH if compiled else int(max(q_positions.max(), k_positions.max())) + 1
            if length > longest:
                raise NotApplicable(f"a mask of more than {longest:,} tokens is not asked for here")
            if name == "mpt":
                if compiled:  # counted back from the last key, in a graph as in the model
                    length, places = k_positions.shape[0], torch.arange(k_positions.shape[0])
                    q_positions, k_positions = places[length - q_positions.shape[0] :], places
                values = modeling_mpt.build_mpt_alibi_tensor(heads, length)[:, 0]
            else:
                module = modeling_bloom if name == "bloom" else modeling_falcon
                values = module.build_alibi_tensor(torch.ones(1, length, dtype=torch.long), heads, built)
                values = values.view(heads, length)
            return key_form(values, q_positions, k_positions)

        return bias

    def slopes_of(name: str) -> Any:
        def slopes(heads: int) -> list[float]:
            from transformers.models.bloom.modeling_bloom import build_alibi_tensor
            from transformers.models.falcon.modeling_falcon import build_alibi_tensor as of_falcon
            from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

            if name == "mpt":
                return (-build_mpt_alibi_tensor(heads, 2)[:, 0, 0]).tolist()
            make = build_alibi_tensor if name == "bloom" else of_falcon
            return make(torch.ones(1, 2, dtype=torch.long), heads, torch.float32).view(heads, 2)[:, 1].tolist()

        return slopes

    spec = Spec(kind="alibi", heads=heads, head_width=WIDTH, longest=longest)
    return [
        Peer(LIBRARY, f"{name}_alibi", spec, build, f"{title}'s ALiBi bias", bias=of(name), slopes=slopes_of(name))
        for name, title in (("bloom", "BLOOM"), ("falcon", "Falcon"), ("mpt", "MPT"))
    ]


def _bloom_model() -> Peer:
    def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        from transformers import BloomConfig

        sizes = {"vocab_size": VOCABULARY, "hidden_size": 64, "n_layer": 2, "n_head": HEADS}
        return made(BloomConfig(**sizes, tie_word_embeddings=False), "Bloom", dtype, device)

    def forward(
        built: Any, ids: Tensor, positions: Tensor | None = None, cache: Any = None, documents: Tensor | None = None
    ) -> Any:
        from transformers import DynamicCache

        held, mask, due = (DynamicCache(config=built.config), None, None) if cache is None else cache
        if documents is None:
            due = counted(positions, due, ids.shape[1], "BLOOM")
        elif not only_padding(documents):
            raise NotApplicable("BLOOM is told no documents: it counts tokens that the mask lets through")
        if documents is not None:
            mask = documents >= 0 if mask is None else torch.cat([mask, documents >= 0], 1)
        more = {} if mask is None else {"attention_mask": mask.long()}
        out = built(ids, past_key_values=held, use_cache=True, **more)
        return out.logits, (out.past_key_values, mask, due)

    spec = Spec(heads=HEADS, head_width=16, **TOLD_NONE)
    return Peer(LIBRARY, "bloom_model", spec, build, "BLOOM, a whole model", forward=forward)


def _t5() -> list[Peer]:
    def of(bidirectional: bool) -> Any:
        def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
            from transformers import T5Config
            from transformers.models.t5.modeling_t5 import T5Attention

            config = T5Config(d_model=64, d_kv=WIDTH, num_heads=HEADS, is_decoder=not bidirectional)
            with torch.device(device), float32_weights():
                return seeded(lambda: T5Attention(config, has_relative_attention_bias=True)).to(dtype)

        return build

    def bias(built: Any, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        if torch.compiler.is_compiling() or counts_up(q_positions, k_positions):
            queries, keys = q_positions.shape[0], k_positions.shape[0]
            return built.compute_bias(queries, keys, past_seen_tokens=keys - queries)[0]
        keys = int(k_positions.max()) + 1
        if max(keys, int(q_positions.max()) + 1) > T5_LONGEST:
            raise NotApplicable(f"no bias of more than {T5_LONGEST:,} tokens is asked for here")
        rows = [built.compute_bias(1, keys, past_seen_tokens=int(q))[0][..., k_positions] for q in q_positions]
        return torch.cat(rows, dim=1)

    return [
        Peer(
            LIBRARY, name,
            Spec(kind="t5", heads=HEADS, head_width=WIDTH, bidirectional=both, longest=T5_LONGEST), of(both), says,
            bias=bias,
        )
        for name, both, says in (
            ("t5_decoder", False, "T5's relative bias, looking back"),
            ("t5_encoder", True, "T5's relative bias, both ways"),
        )
    ]  # fmt: skip


def counts_up(q_positions: Tensor, k_positions: Tensor) -> bool:
    """Whether keys are 0, 1, ... and queries the last of them: what compute_bias itself is asked for by the model."""
    keys = torch.arange(len(k_positions))
    return torch.equal(k_positions, keys) and torch.equal(q_positions, keys[len(keys) - len(q_positions) :])
