"""Small random models of every family, made by transformers, and how far ours are from them.

    python -m tests.checkpoints.family_models --table     writes families.md in both languages, measured afresh

Weights are drawn so that a mistake shows: 2-D ones with spread 1/8, and every norm weight and bias moved by N(0, 0.1).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor
from torch.nn import functional as F

from ropewalk import positions
from ropewalk.checkpoints import families
from ropewalk.checkpoints.families.base import to_ours
from ropewalk.checkpoints.files.weights import open_weights
from ropewalk.checkpoints.load.model import load
from ropewalk.checkpoints.load.tensors import tensors
from ropewalk.positions import PAD, Positions
from tests.checkpoints import family_page

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

LENGTHS = (1, 7, 63, 128)
FAR = 4000
VOCABULARY = 199

SIZES = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
# An eps of 1e-2 where it can be chosen: the usual ones are too small for a wrong one to show.
LLAMA = {**SIZES, **HEADS, **SPECIAL, "max_position_embeddings": 8192, "rms_norm_eps": 1e-2}
EPSILON = {"vocab_size": VOCABULARY, "layer_norm_epsilon": 1e-2}
ENCODER = {**SIZES, "num_attention_heads": 4, "max_position_embeddings": FAR + 200, "layer_norm_eps": 1e-2}
T5 = {**EPSILON, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_heads": 4, "num_layers": 2}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0 + 0.1 * i for i in range(8)],
    "long_factor": [1.0 + 2.0 * i for i in range(8)],
    "original_max_position_embeddings": 64,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}
LOCAL_GLOBAL = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}
MARIAN = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    **{f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in (("layers", 2), ("ffn_dim", 96))},
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "activation_function": "swish",
    "scale_embedding": True,
    "max_position_embeddings": FAR + 200,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
    "eos_token_id": 1,
    "forced_eos_token_id": 1,
}


class Case(NamedTuple):
    """One family, or one of its spellings, as transformers builds it."""

    name: str
    positions: str
    model: str
    config: str
    settings: dict[str, Any]
    given: str = "position_ids"
    """How transformers is told positions: position_ids; table (they are rows of a table it looks up by place); or
    relative (only distances matter, so that nothing is told and a shift must change nothing)."""
    first_row: int = 0


def _rope(name: str, positions: str, kind: str, **settings: Any) -> Case:
    return Case(name, positions, f"{kind}ForCausalLM", f"{kind}Config", {**LLAMA, **settings})


CASES = (
    _rope("Llama 2", "RoPE", "Llama", num_key_value_heads=4),
    _rope("Llama 3.1, 3.2", "RoPE, llama3", "Llama", rope_parameters=LLAMA3, tie_word_embeddings=True),
    _rope("Llama with biases and wide heads", "RoPE", "Llama", attention_bias=True, mlp_bias=True, head_dim=24),
    _rope("Mistral", "RoPE, window", "Mistral", sliding_window=16, head_dim=24),
    _rope("Qwen2", "RoPE", "Qwen2", rope_theta=1e6),
    _rope(
        "Qwen2 with windows",
        "RoPE, window on the later layers",
        "Qwen2",
        num_hidden_layers=3,
        use_sliding_window=True,
        sliding_window=16,
        max_window_layers=1,
    ),
    _rope("Qwen3", "RoPE", "Qwen3", head_dim=24, tie_word_embeddings=True),
    _rope(
        "Gemma 2",
        "RoPE, window on every other layer",
        "Gemma2",
        num_hidden_layers=3,
        head_dim=24,
        sliding_window=16,
        query_pre_attn_scalar=20,
        attn_logit_softcapping=3.0,
        final_logit_softcapping=2.0,
    ),
    Case(
        "Gemma 3",
        "RoPE, window on local layers, linear on global ones",
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        {
            **LLAMA,
            "num_hidden_layers": 4,
            "head_dim": 24,
            "sliding_window": 16,
            "query_pre_attn_scalar": 20,
            "sliding_window_pattern": 3,
            "rope_parameters": LOCAL_GLOBAL,
        },
    ),
    _rope(
        "SmolLM2",
        "RoPE",
        "Llama",
        rope_theta=100_000.0,
        tie_word_embeddings=True,
        hidden_size=96,
        num_attention_heads=6,
    ),
    _rope("SmolLM3", "RoPE, none on every n-th layer", "SmolLM3", num_hidden_layers=4, no_rope_layer_interval=2),
    _rope("Phi-3", "RoPE, window", "Phi3", sliding_window=16, original_max_position_embeddings=8192),
    _rope("Phi-3 long", "RoPE, longrope", "Phi3", rope_parameters=LONG, original_max_position_embeddings=64),
    _rope(
        "Phi-4-mini",
        "RoPE on a part of each head, longrope",
        "Phi3",
        original_max_position_embeddings=64,
        rope_parameters={
            **LONG,
            "short_factor": LONG["short_factor"][:6],
            "long_factor": LONG["long_factor"][:6],
            "partial_rotary_factor": 0.75,
        },
        tie_word_embeddings=True,
    ),
    _rope("GPT-NeoX, Pythia", "RoPE on a part of each head", "GPTNeoX", rotary_pct=0.25, layer_norm_eps=1e-2),
    _rope(
        "GPT-NeoX, one after the other",
        "RoPE on a part of each head",
        "GPTNeoX",
        use_parallel_residual=False,
        rotary_pct=0.5,
    ),
    _rope("OLMo 2", "RoPE", "Olmo2", rope_theta=500_000.0),
    Case(
        "GPT-2",
        "learned",
        "GPT2LMHeadModel",
        "GPT2Config",
        {**EPSILON, "n_embd": 64, "n_head": 4, "n_layer": 2, "n_inner": 96, "n_positions": FAR + 200},
    ),
    Case("BERT", "learned", "BertForMaskedLM", "BertConfig", ENCODER),
    Case("BERT, MiniLM without output map", "learned", "BertModel", "BertConfig", ENCODER),
    Case("MPNet", "learned and T5 buckets", "MPNetForMaskedLM", "MPNetConfig", ENCODER, first_row=2),
    Case("MPNet without output map", "learned and T5 buckets", "MPNetModel", "MPNetConfig", ENCODER, first_row=2),
    Case("T5", "T5 buckets", "T5ForConditionalGeneration", "T5Config", {**T5, "num_decoder_layers": 3}, "relative"),
    Case(
        "T5 1.1, Flan-T5",
        "T5 buckets",
        "T5ForConditionalGeneration",
        "T5Config",
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        "relative",
    ),
    Case("mT5", "T5 buckets", "MT5ForConditionalGeneration", "MT5Config", T5, "relative"),
    Case(
        "BLOOM",
        "ALiBi",
        "BloomForCausalLM",
        "BloomConfig",
        {**EPSILON, "hidden_size": 64, "n_layer": 2, "n_head": 8},
        "relative",
    ),
    Case(
        "BLOOM, 6 heads",
        "ALiBi",
        "BloomForCausalLM",
        "BloomConfig",
        {**EPSILON, "hidden_size": 48, "n_layer": 2, "n_head": 6},
        "relative",
    ),
    Case(
        "MPT",
        "ALiBi",
        "MptForCausalLM",
        "MptConfig",
        {**EPSILON, "d_model": 64, "n_heads": 8, "n_layers": 2},
        "relative",
    ),
    Case(
        "MPT, 6 heads",
        "ALiBi",
        "MptForCausalLM",
        "MptConfig",
        {**EPSILON, "d_model": 48, "n_heads": 6, "n_layers": 2},
        "relative",
    ),
    Case("Marian", "sinusoidal, halves", "MarianMTModel", "MarianConfig", MARIAN, "table"),
)
BY_NAME = {case.name: case for case in CASES}


class Pair:
    """One model of transformers and ours, read from the directory it saved."""

    def __init__(self, case: Case, folder: Path, seed: int = 0) -> None:
        self.case, self.path = case, folder
        self.theirs = made(case, seed)
        self.theirs.save_pretrained(folder)
        self.ours = load(folder)
        self.two_sided = self.ours.config.stack == "encoder-decoder"
        self.draw = torch.Generator().manual_seed(seed + 1)

    def tokens(self, length: int, batch: int = 2) -> Tensor:
        # The first ids are padding and the like, to some of which transformers gives no gradient.
        return torch.randint(5, VOCABULARY, (batch, length), generator=self.draw)

    def inputs(self, at: Positions) -> dict[str, Any]:
        """Tokens for each side at these positions; the text an encoder-decoder reads lies at the same ones."""
        found: dict[str, Any] = {"tokens": self.tokens(at.shape[1]), "at": at}
        if self.two_sided:
            found |= {"source": self.tokens(at.shape[1]), "source_at": at}
        if self.ours.config.types:
            found["types"] = torch.randint(2, (2, at.shape[1]), generator=self.draw)
        return found

    def their_answer(self, tokens: Tensor, at: Positions, **rest: Any) -> Tensor:
        seen = None if at.is_plain else (at.segment != PAD).long()
        asked: dict[str, Any] = {"attention_mask": seen}
        if self.two_sided:
            asked |= {"input_ids": rest["source"], "decoder_input_ids": tokens, "decoder_attention_mask": seen}
        else:
            asked["input_ids"] = tokens
        if self.case.given == "position_ids":
            asked["position_ids"] = at.index + self.case.first_row
        if "types" in rest:
            asked["token_type_ids"] = rest["types"]
        with _looked_up(self.theirs, at) if self.case.given == "table" else _nothing():
            answer = self.theirs(**asked, use_cache=False) if "Bert" not in self.case.model else self.theirs(**asked)
        return answer.logits if hasattr(answer, "logits") else answer.last_hidden_state

    @torch.no_grad()
    def apart(self, at: Positions, *, told: Positions | None = None) -> float:
        """The largest difference of logits where there is a token. told: positions transformers is given instead."""
        asked = self.inputs(at)
        want = self.their_answer(**asked | ({"at": told} if told is not None else {}))
        return largest(want, self.ours(**asked), at)

    def at_length(self, length: int) -> float:
        return self.apart(positions.plain(length, batch=2))

    def padded(self) -> float:
        return self.apart(positions.padded((63, 40), side="left"))

    def far(self, *, exact: bool = True) -> float:
        """At 4,000 and more. transformers multiplies position and frequency in float32, which there turns a pair up to
        2e-4 rad too far; exact: its angles are taken in float64 from its own frequencies. Where only distances matter
        it is told no positions, and its logits at 0 must be ours."""
        at = positions.plain(128, batch=2, start=FAR)
        told = positions.plain(128, batch=2) if self.case.given == "relative" else None
        with _angles(self.theirs) if exact else _nothing():
            return self.apart(at, told=told)

    @torch.no_grad()
    def decoded(self, at: Positions) -> float:
        """A prompt of 100, 20 tokens at once, then one at a time, against their whole pass."""
        asked = self.inputs(at)
        want = self.their_answer(**asked)
        memory = self.ours.encode(asked["source"], at) if self.two_sided else None
        cache = self.ours.cache(2, at.shape[1], limit=at.limit, memory=memory)
        cuts = [0, 100, 120, *range(121, at.shape[1] + 1)]
        parts = []
        for first, last in pairwise(cuts):
            here = slice(first, last)
            parts.append(self.ours(asked["tokens"][:, here], at.take(here), cache=cache))
        return largest(want, torch.cat(parts, dim=1), at)

    def gradients(self) -> dict[str, float]:
        """For each of our tensors, the difference of one step's gradients over the largest of theirs."""
        at = positions.plain(63, batch=2)
        asked = self.inputs(at)
        targets = torch.randint(VOCABULARY, (2, 63), generator=self.draw)
        for model, answer in ((self.theirs, self.their_answer(**asked)), (self.ours, self.ours(**asked))):
            model.zero_grad()
            wide = answer if self.ours.config.output else answer @ torch.eye(64, VOCABULARY)
            F.cross_entropy(wide.flatten(0, 1), targets.flatten()).backward()
        weights = open_weights(self.path)
        family = families.find(self.theirs.config.model_type, "config.json")
        theirs = {name: p.grad for name, p in self.theirs.named_parameters() if p.requires_grad}
        apart = {}
        for name, source in tensors(self.ours, weights, family).items():
            if source.names[0] not in theirs:
                continue  # a buffer of theirs, which does not learn
            parts = to_ours(source.form, [theirs[one] for one in source.names], self.ours.config.heads)
            want, got = torch.cat(parts), self.ours.get_parameter(name).grad
            apart[name] = float((want - got.view_as(want)).abs().max() / want.abs().max())
        return apart


def made(case: Case, seed: int = 0) -> Any:
    """transformers' model with weights that hide nothing."""
    torch.manual_seed(seed)
    config = getattr(transformers, case.config)(**case.settings)
    config._attn_implementation = "eager"
    model = getattr(transformers, case.model)(config).eval()
    if case.settings.get("tie_word_embeddings") is False and model.config.model_type == "t5":
        # transformers 5 ties these when it makes them, and not when it reads a file that holds both.
        model.lm_head.weight = torch.nn.Parameter(torch.empty(VOCABULARY, config.d_model))
    scaled = getattr(config, "scale_decoder_outputs", False)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if not weight.requires_grad:
                continue
            if weight.ndim == 1:
                weight.add_(torch.randn_like(weight), alpha=0.1)
            else:
                weight.normal_(std=_spread(name, scaled))
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(std=0.1)
    return model


def _spread(name: str, scaled: bool) -> float:
    if "relative_attention_bias" in name:
        return 0.5  # to count beside scores
    if "Attention.q." in name:
        return 0.125 / 4  # T5's queries hold the 1/sqrt(K) of others' scores
    return 1.0 if scaled and name == "shared.weight" else 0.125  # T5 divides its tied table by sqrt(D)


def largest(want: Tensor, got: Tensor, at: Positions) -> float:
    where = (at.segment != PAD).expand(want.shape[:2])
    assert want.shape == got.shape, (want.shape, got.shape)
    assert float(want[where].std()) > 0.2, "logits too small to tell a mistake"
    apart = (want - got)[where].abs().max()
    return float(apart) if bool(torch.isfinite(apart)) else torch.inf


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _looked_up(model: Any, at: Positions) -> Iterator[None]:
    """Tables that transformers reads by place, read at these positions instead."""
    sides = [side.embed_positions for side in (model.model.encoder, model.model.decoder)]
    for table in sides:
        table.forward = partial(_rows, table, at.index)
    yield
    for table in sides:
        del table.forward


@contextmanager
def _angles(model: Any) -> Iterator[None]:
    """Rotations of transformers by exact angles: its own frequencies and gain, the product in float64."""
    rotary = getattr(model.base_model, "rotary_emb", None)
    if rotary is None:
        yield
        return
    usual = rotary.forward

    def forward(x: Tensor, position_ids: Tensor, *kind: str) -> tuple[Tensor, Tensor]:
        usual(x, position_ids, *kind)  # a scaling that depends on the length chooses its frequencies here
        prefix = f"{kind[0]}_" if kind else ""
        angle = position_ids[..., None].double() * getattr(rotary, f"{prefix}inv_freq").double()
        gain = getattr(rotary, f"{prefix}attention_scaling")
        angle = torch.cat([angle, angle], dim=-1)
        return (angle.cos() * gain).to(x.dtype), (angle.sin() * gain).to(x.dtype)

    rotary.forward = forward
    yield
    del rotary.forward


def _rows(table: Any, index: Tensor, *_: Any, **__: Any) -> Tensor:
    return F.embedding(index, table.weight)


class Measured(NamedTuple):
    """Largest differences of one case; None where there is nothing to compare."""

    case: Case
    file: str
    lengths: float
    padded: float
    far: float
    far_float32: float | None
    decoded: float | None
    gradient: float


def measured(case: Case) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(case, Path(folder))
        ways = (positions.plain(128, batch=2), positions.padded((128, 90), side="left"))
        encoder = pair.ours.config.stack == "encoder"
        return Measured(
            case,
            family_file(pair.theirs.config.model_type),
            max(pair.at_length(length) for length in LENGTHS),
            pair.padded(),
            pair.far(),
            pair.far(exact=False) if hasattr(pair.theirs.base_model, "rotary_emb") else None,
            None if encoder else max(map(pair.decoded, ways)),
            max(pair.gradients().values()),
        )


def family_file(model_type: str) -> str:
    return families.find(model_type, "config.json").__name__.rpartition(".")[2]


def cells(row: Measured) -> list[str]:
    """A row of the table."""
    case = row.case
    own = "" if row.far_float32 is None else f" ({row.far_float32:.1e})"
    return [
        case.name,
        f"`{getattr(transformers, case.config).model_type}`",
        f"{row.file}.py",
        case.positions,
        *(f"{number:.1e}" for number in (row.lengths, row.padded)),
        f"{row.far:.1e}{own}",
        "-" if row.decoded is None else f"{row.decoded:.1e}",
        f"{row.gradient:.1e}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="write families.md; without it, print it")
    torch.set_num_threads(1)
    writes = parser.parse_args().table
    facts = {"version": transformers.__version__, "lengths": LENGTHS, "far": FAR}
    rows = [cells(measured(case)) for case in CASES]
    for language, file in family_page.FILES.items():
        text = family_page.page(rows, language, **facts)
        if writes:
            file.write_text(text, encoding="utf-8")
        else:
            print(text)


if __name__ == "__main__":
    main()
