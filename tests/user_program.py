"""A program of someone who uses ropewalk, for type checkers to read; test_typing.py says what they must make of it."""

from __future__ import annotations

from typing import assert_type

import torch
from torch import Tensor

import ropewalk as rw
from ropewalk.encodings.rope import RoPE
from ropewalk.models import Beam, beam_search
from ropewalk.scaling.yarn import YaRN

yarn = rw.scaling.YaRN(factor=4, trained=8192)
assert_type(yarn, YaRN)
assert_type(yarn.rotary_gain, float)

rope = rw.encodings.RoPE(head_width=64, base=500_000, scaling=yarn)
assert_type(rope, RoPE)
signal = rope.at(torch.arange(3))
assert_type(signal, rw.Signal)
assert_type(signal.rotate(torch.randn(3, 64), "query"), Tensor)

config = rw.TransformerConfig(width=64, heads=4, layers=2, encoding="alibi", norm="rms")
assert_type(config.width, int)
model = rw.Transformer(config)
assert_type(model, rw.Transformer)
assert_type(model.plan, rw.Plan)
assert_type(rw.load("SmolLM2-135M"), rw.Transformer)
assert_type(rw.inspect("SmolLM2-135M").agree, bool)
assert_type(rw.positions.packed([[5, 7]]), rw.Positions)

cache = model.cache(1, 64, limit=64)
assert_type(cache, rw.Cache)
rw.complete(model, [1, 2, 3], max_tokens=4, stop=[0], side="left", limit=64, seed=1)
rw.complete(model, [1, 2, 3], beams=2, length_penalty=0.6)
beam_search(model, [1, 2, 3], start=None, cached=False)
assert_type(Beam(0.0, [1]).tokens, list[int])

rw.Transfomer(config)  # wrong: no such name
rw.encodings.Rope(head_width=64)  # wrong: no such name
rw.scaling.Yarn(factor=4)  # wrong: no such name
rw.TransformerConfig(dim=64)  # wrong: no such key
rw.complete(model, [1, 2, 3], num_beams=2)  # wrong: no such argument
signal.rotate(torch.randn(3, 64), "value")  # wrong: no such role
