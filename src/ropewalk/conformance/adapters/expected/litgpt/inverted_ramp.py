"""YaRN: the ramp is upside down. Fast frequencies are divided by the factor, slow ones are kept.

Expected by arXiv 2309.00071 section 3.2: a pair that turns more than beta_fast times within the trained length is kept,
one that turns less than beta_slow times is divided by the factor.
"""

from __future__ import annotations

import math

import torch
from litgpt.model import build_rope_cache

base, width, factor, trained = 10_000, 64, 8.0, 2048
extra = {"factor": factor, "beta_fast": 32.0, "beta_slow": 1.0, "original_max_seq_len": trained, "mscale": 1.0}
cos, sin = build_rope_cache(seq_len=2, n_elem=width, base=base, extra_config=extra)
got = torch.atan2(sin[1], cos[1])[: width // 2]
plain = [base ** (-2 * i / width) for i in range(width // 2)]
print("expected: the fastest frequency", plain[0], "and the slowest", plain[-1] / factor)
print("got:     ", float(got[0]), "and", float(got[-1]))
print("turns within the trained length:", trained * plain[0] / (2 * math.pi), trained * plain[-1] / (2 * math.pi))
