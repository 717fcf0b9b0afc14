"""What transformers 5 computes from the same parameters: float32 bit for bit, exact within float32's rounding."""

from __future__ import annotations

import math
import struct
from itertools import product

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from ropewalk.scaling import (
    NTK,
    Dynamic,
    Linear,
    Llama3,
    LongRoPE,
    Proportional,
    YaRN,
    from_hf,
    ladder,
    ladder32,
    to_hf,
)
from tests.scaling.rows import divisors

BASES = (10_000.0, 500_000.0, 1e6, 5e7)
HEADS = ((64, 1.0), (80, 0.4), (96, 1.0), (128, 1.0), (128, 0.5), (256, 0.25), (192, 1.0))


def config(parameters, head, fraction=1.0, longest=131_072):
    if fraction != 1:
        parameters = {**parameters, "partial_rotary_factor": fraction}
    return LlamaConfig(
        hidden_size=2 * head,
        num_attention_heads=2,
        head_dim=head,
        max_position_embeddings=longest,
        rope_parameters=parameters,
    )


def static():
    found = [Linear(factor=factor) for factor in (1, 1.7, 8)]
    for factor, trained, truncate in product((1, 4, 40, 2048), (512, 4096, 131_072), (True, False)):
        found.append(YaRN(factor=factor, trained=trained, truncate=truncate))
    found += [
        YaRN(factor=4, trained=64),
        YaRN(factor=16, trained=4096, beta_fast=16, beta_slow=2.5),
        YaRN(factor=16, trained=4096, attention_factor=1.0),
        YaRN(factor=16, trained=4096, mscale=0.707),
        YaRN(factor=16, trained=4096, mscale=1.0, mscale_all_dim=0.8),
        YaRN(factor=16, trained=4096, dialect="deepseek", mscale=0.707),
        YaRN(factor=16, trained=4096, dialect="deepseek", mscale_all_dim=0.707),
    ]
    found += [Llama3(factor=factor, trained=8192) for factor in (1, 8, 32)]
    found.append(Llama3(factor=3.3, trained=4096, low=0.5, high=9.1))
    found.append(Llama3(factor=16, trained=8192, low=1, high=1))  # Llama 4 Scout
    found.append(YaRN(factor=32, trained=4096, beta_fast=1, beta_slow=1))  # Kimi K2
    return found


def agree(scaling, base, width, theirs):
    """The exact frequencies differ from float32 ones by float32's rounding alone: 3e-7, and ln(base) times half an ulp
    of the exponent where 2i/width is no binary fraction. A blend rounds its share of one, so it is held against the
    plain frequency: float32 YaRN x2048 is off by 4e-5 of its own."""
    plain = ladder(base, width)
    exact = plain if scaling is None else scaling.frequencies(base, width)
    assert len(exact) == len(theirs)
    bound = 3e-7 if width & (width - 1) == 0 else 3e-7 + math.log(base) * 2**-25
    for omega, ours, other in zip(map(float, plain), map(float, exact), theirs, strict=True):
        blended = isinstance(scaling, YaRN | Llama3) and omega / scaling.factor * 1.000001 < ours < omega
        assert abs(ours - other) <= bound * (omega if blended else ours), scaling


def bits(floats):
    return [struct.pack("f", x).hex() for x in floats]


@pytest.mark.parametrize(("head", "fraction"), HEADS)
@pytest.mark.parametrize("base", BASES)
def test_static_scalings(base, head, fraction):
    width = int(head * fraction)
    for scaling in static():
        parameters = scaling.to_hf(base)
        theirs, gain = ROPE_INIT_FUNCTIONS[scaling.hf_type](config(parameters, head, fraction), "cpu")
        theirs = theirs.tolist()
        assert bits(scaling.frequencies32(base, width)) == bits(theirs), scaling
        agree(scaling, base, width, theirs)
        assert scaling.rotary_gain == gain, scaling


@pytest.mark.parametrize("truncate", [True, False])
def test_a_ramp_that_would_end_past_the_last_feature(truncate):
    """A base so small that even the slowest pair turns more than once in the trained length, and a ramp that begins
    before the last pair."""
    scaling, base, width = YaRN(factor=4, trained=800, truncate=truncate), 10.0, 64
    theirs, _ = ROPE_INIT_FUNCTIONS["yarn"](config(scaling.to_hf(base), width), "cpu")
    assert bits(scaling.frequencies32(base, width)) == bits(theirs.tolist())
    agree(scaling, base, width, theirs.tolist())


@pytest.mark.parametrize(("head", "fraction"), HEADS)
@pytest.mark.parametrize("base", BASES)
def test_longrope_on_both_sides_of_its_switch(base, head, fraction):
    width = int(head * fraction)
    settings = {"short": divisors(width, 0.97, 0.013), "long": divisors(width, 1.1, 0.73), "trained": 4096}
    for extra in ({"factor": 32}, {"extended": 131_072}, {"attention_factor": 1.19}, {"extended": 4096}):
        phi = LongRoPE(**settings, **extra)
        longest = phi.extended or 131_072
        for length in (1, 4096, 4097, 100_000):
            resolved = phi.for_length(length)
            c = config(phi.to_hf(base), head, fraction, longest)
            theirs, gain = ROPE_INIT_FUNCTIONS["longrope"](c, "cpu", seq_len=length)
            assert bits(resolved.frequencies32(base, width)) == bits(theirs.tolist())
            agree(resolved, base, width, theirs.tolist())
            assert resolved.rotary_gain == gain


@pytest.mark.parametrize(("head", "fraction"), [(64, 1.0), (80, 0.4), (128, 0.5), (128, 1.0)])
@pytest.mark.parametrize("base", [10_000.0, 500_000.0, 1e6])
def test_dynamic_as_a_forward_pass_computes_it(base, head, fraction):
    width = int(head * fraction)
    for factor, length in product((1, 1.7, 2, 8), (5, 2047, 2048, 2049, 3000, 9999, 131_072)):
        scaling = Dynamic(factor=factor, trained=2048).for_length(length)
        c = config(scaling.to_hf(base), head, fraction, longest=2048)
        module = LlamaRotaryEmbedding(c)
        module(torch.zeros(1), torch.tensor([[0, length - 1]]))
        theirs = module.inv_freq.tolist()
        assert bits(scaling.frequencies32(base, width)) == bits(theirs)
        agree(scaling, base, width, theirs)
        assert module.attention_scaling == scaling.rotary_gain == 1


@pytest.mark.parametrize("head", [64, 80, 128, 256, 512])
@pytest.mark.parametrize("base", BASES)
def test_proportional(base, head):
    for fraction, factor in product((0.1, 0.25, 0.3, 0.5, 1.0), (1, 8)):
        scaling = Proportional(fraction=fraction, factor=factor)
        theirs, gain = ROPE_INIT_FUNCTIONS["proportional"](config(scaling.to_hf(base), head), "cpu")
        assert bits(scaling.frequencies32(base, head)) == bits(theirs.tolist())
        agree(scaling, base, head, theirs.tolist())
        assert scaling.rotary_gain == gain == 1


@pytest.mark.parametrize("head", [32, 64, 80, 96, 128, 192, 256])
@pytest.mark.parametrize("base", [10_000, *BASES])
def test_plain_and_ntk(base, head):
    theirs = LlamaRotaryEmbedding(config(to_hf(None, base), head)).inv_freq.tolist()
    assert bits(ladder32(base, head)) == bits(theirs)
    agree(None, base, head, theirs)
    scaling = NTK(factor=4)
    theirs = LlamaRotaryEmbedding(config(scaling.to_hf(base, head), head)).inv_freq.tolist()
    assert bits(scaling.frequencies32(base, head)) == bits(theirs)
    agree(scaling, base, head, theirs)


def test_transformers_reads_and_we_read_back_what_it_keeps():
    """Through a config of transformers, which adds defaults and reorders, and back."""
    for scaling in (*static(), Dynamic(factor=2, trained=2048), Proportional(fraction=0.25, factor=2)):
        c = config(scaling.to_hf(500_000.0), 64, longest=scaling.longest or 131_072)
        read = from_hf(c.to_dict()["rope_parameters"], c.max_position_embeddings)
        assert read.base == 500_000.0
        assert read.scaling.rotary_gain == scaling.rotary_gain
        # The length is no part of a file, and transformers' own dialect is the one a file is read in.
        again = read.scaling.for_length(5000).frequencies(500_000.0, 64)
        assert again == scaling.for_length(5000).frequencies(500_000.0, 64)


def test_immune_to_torch_defaults():
    scalings = (
        Linear(factor=3),
        NTK(factor=3),
        Dynamic(factor=3, trained=64, length=1000),
        YaRN(factor=3, trained=4096),
        Llama3(factor=3, trained=4096),
        LongRoPE(short=(1.1,) * 32, long=(2.3,) * 32, trained=64, factor=2, length=100),
        Proportional(fraction=0.5, factor=3),
    )
    expected = [ladder32(1e6, 64), *(scaling.frequencies32(1e6, 64) for scaling in scalings)]
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with torch.device("meta"), torch.autocast("cpu", torch.bfloat16):
                found = [ladder32(1e6, 64), *(scaling.frequencies32(1e6, 64) for scaling in scalings)]
        finally:
            torch.set_default_dtype(before)
        assert found == expected
    # All of them are float32 numbers.
    assert all(x == struct.unpack("f", struct.pack("f", x))[0] for row in expected for x in row)


def test_the_paper_ramp_has_no_float32_form():
    with pytest.raises(ValueError, match="only the code ramp"):
        YaRN(factor=4, trained=4096, ramp="paper").frequencies32(1e4, 64)
