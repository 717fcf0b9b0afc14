"""Whether transformers chooses the same tokens with a cache as without one, across the old length.

Keys in a cache keep the angles of the pass that made them. Where a model's frequencies depend on the length of a pass,
they are mixed with others as soon as a text grows past the trained length, and the answers change.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ropewalk.evaluate.passage import Nats, Numbers
from ropewalk.scaling import LongRoPE, Scaling

TOKENS = 64
BEFORE = 32
"""Tokens that are left to the trained length when the choosing begins."""


@torch.inference_mode()
def shortfalls(model: Any, prompt: Numbers, trained: int, scaling: Scaling | None) -> Nats:
    """(TOKENS,) by how many nats each token chosen with a cache falls short of the best without one; 0 where it is the
    best. One pass without a cache stands for all shorter ones of the same frequencies: what follows a token does not
    reach it."""
    whole = np.concatenate([prompt, _chosen(model, prompt)])
    last = len(whole) - 1
    if isinstance(scaling, LongRoPE):
        ends = [trained, last]  # two lists, by whether a pass is longer than that
    elif scaling is not None and scaling.length_dependent:
        ends = list(range(len(prompt), len(whole)))
    else:
        ends = [last]
    found: list[float] = []
    for end in ends:
        first = len(prompt) + len(found)
        # A pass of n tokens chooses token n.
        picked = torch.from_numpy(whole[first : end + 1]).to(model.device)
        given = torch.from_numpy(whole[:end])[None].to(model.device)
        nats = -model(given, use_cache=False, logits_to_keep=len(picked)).logits[0].double().log_softmax(-1)
        found += (nats.gather(-1, picked[:, None])[:, 0] - nats.min(-1).values).tolist()
    return np.array(found)


def _chosen(model: Any, prompt: Numbers) -> Numbers:
    import transformers

    cache = transformers.DynamicCache(config=model.config)
    given = torch.from_numpy(prompt.copy())[None].to(model.device)
    found: list[int] = []
    while len(found) < TOKENS:
        best = model(given, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[0, -1].argmax()
        found.append(int(best))
        given = best[None, None]
    return np.array(found)
