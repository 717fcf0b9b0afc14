"""What `ropewalk init target` writes: ten lines to fill in, and the comments that say with what."""

from __future__ import annotations

TEXT = '''"""What {module} claims to be, for `ropewalk verify {module}:target`. Fill in (1), (2) and (3)."""

import torch

from ropewalk.conformance import Spec


class target:
    # (1) What your code claims to be, and is checked against. layout: "half" pairs feature i with i + head_width / 2,
    #     "pairs" pairs 2i with 2i + 1. longest: no position reaches it; leave it out if there is no end.
    #     angles="float32" or "float64": the precision of position times frequency, which it is then judged by.
    #     Also: rotary_width=32 (partial rotary), scaling={{"kind": "yarn", "factor": 4, "trained": 8192}}, window=4096.
    #     Asked for only if declared: sections=(8, 12, 12), of positions (batch, length, 3), arrangement="interleaved";
    #     temperature={{"form": "llama4", "trained": 8192, "strength": 0.1}}; indexer=Spec(...), of rotate_indexer.
    spec = Spec(kind="rope", head_width=64, heads=8, base=10_000, layout="half", longest=131_072)

    # (2) A new instance, anything you like; it is handed back to you below. Called often.
    def build(dtype=torch.float32, device="cpu"):
        raise NotImplementedError("fill in (2) of {file}: return MyRotary(...).to(device, dtype)")

    # (3) x (batch, heads, length, head_width) at positions (batch, length), an int64 tensor, rotated.
    def rotate(built, x, positions):
        return built(x, positions)

    # Offer more and more is checked; leave out what you do not have:
    #   cos_sin(built, positions) -> (cos, sin)            each (batch, length, rotary_width / 2)
    #   bias(built, q_positions, k_positions) -> Tensor    (heads, queries, keys), with kind="alibi" or "t5"
    #   attend(built, q, k, v, q_positions, k_positions)   your own causal attention, q and k not yet rotated
    #   forward(built, ids, positions=None, cache=None) -> (logits, cache)       a whole model
    #   move(built, k, delta) -> Tensor                    rotated keys, moved by delta (batch, keys) positions
    #   rotate_indexer(built, x, positions) -> Tensor      a second rotation of the layer, with indexer=Spec(...)
    #   frequencies(config) -> floats                      from a transformers-style rope_parameters
'''
