"""SmolLM2 out of its GGUF file, as a directory into transformers and as float32 GGUF into llama.cpp: the same model."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import transformers

from ropewalk.checkpoints.export.convert import export
from ropewalk.checkpoints.export.prove import Proof, compare_plans
from ropewalk.checkpoints.load.model import load
from ropewalk.checkpoints.resolve.read import read
from ropewalk.checkpoints.tokens.tokenizer import of
from tests.checkpoints.llama_cpp import LlamaCpp
from tests.real.conftest import Tokenize
from tests.real.fetch import model
from tests.real.lines import lines

pytestmark = [pytest.mark.real, pytest.mark.no_poison]

TEXT = Path(__file__).parents[2].joinpath("LICENSE").read_text(encoding="utf-8")
TOKENS = 320


class Exported(NamedTuple):
    source: Path
    directory: Path
    to_hf: Proof
    file: Path
    to_gguf: Proof


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """GGUF -> directory -> float32 GGUF."""
    place = tmp_path_factory.mktemp("roundtrip")
    source = model("smollm2")
    to_hf = export(source, place / "hf", format="hf")
    to_gguf = export(place / "hf", place / "float32.gguf", format="gguf")
    return Exported(source, place / "hf", to_hf, place / "float32.gguf", to_gguf)


@pytest.fixture(scope="module")
def text(exported: Exported) -> list[int]:
    return of(exported.source).encode(TEXT)[:TOKENS]


@pytest.fixture(scope="module")
def ours(exported: Exported, text: list[int]) -> torch.Tensor:
    """Our log-probabilities of the source, (L, vocabulary)."""
    with torch.no_grad():
        return load(exported.source)(torch.tensor([text]))[0].log_softmax(-1)


def perplexity(logprobs: torch.Tensor, text: list[int]) -> float:
    said = logprobs[:-1].gather(1, torch.tensor(text[1:])[:, None])
    return math.exp(-said.double().mean().item())


def top_difference(one: torch.Tensor, two: torch.Tensor, count: int = 20) -> float:
    likeliest = one.topk(count, dim=-1).indices
    return float((one.gather(-1, likeliest) - two.gather(-1, likeliest)).abs().max())


def test_the_plan_is_the_same_to_1_ulp(exported: Exported) -> None:
    for arithmetic in ("exact", "float32"):
        plans = [
            read(path, arithmetic=arithmetic).plans for path in (exported.source, exported.directory, exported.file)
        ]
        assert compare_plans(plans[0], plans[1]) == (0.0, ())
        assert compare_plans(plans[0], plans[2]) == (0.0, ())
    assert exported.to_hf.layouts == ("pairs", "half")
    assert exported.to_gguf.layouts == ("half", "pairs")


def test_there_and_back_gives_every_weight_bit_for_bit(exported: Exported) -> None:
    before, after = load(exported.source).state_dict(), load(exported.file).state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_transformers_reads_the_directory(exported: Exported, ours: torch.Tensor, text: list[int]) -> None:
    theirs = transformers.AutoModelForCausalLM.from_pretrained(exported.directory)
    assert type(theirs).__name__ == "LlamaForCausalLM"
    with torch.no_grad():
        logprobs = theirs(torch.tensor([text])).logits[0].log_softmax(-1)
    assert top_difference(ours, logprobs) <= 5e-4
    assert perplexity(logprobs, text) == pytest.approx(perplexity(ours, text), rel=1e-3)
    fast = transformers.AutoTokenizer.from_pretrained(exported.directory)
    assert fast(TEXT)["input_ids"][:TOKENS] == text


def test_llama_cpp_cuts_text_alike(exported: Exported, llama_cpp: Callable[[Path], Tokenize]) -> None:
    """The vocabulary went through tokenizer.json and back."""
    ours, theirs = of(exported.source), llama_cpp(exported.file)
    for line in (TEXT, *lines()):
        assert theirs(line, True) == ours.encode(line)


def test_llama_cpp_reads_the_file(exported: Exported, ours: torch.Tensor, text: list[int]) -> None:
    """Every token of the text is asked for; where it is not among the 2,000 likeliest, all of them are."""
    engine = LlamaCpp(exported.file, context=512)
    total = 0.0
    for length in range(1, TOKENS):
        said = engine.next(text[:length], 2000)
        top = sorted(said, key=said.__getitem__, reverse=True)[:20]
        assert max(abs(said[number] - ours[length - 1, number].item()) for number in top) <= 5e-4
        if text[length] not in said:
            said = engine.next(text[:length], ours.shape[1])
        total += said[text[length]]
    assert math.exp(-total / (TOKENS - 1)) == pytest.approx(perplexity(ours, text), rel=1e-3)


TALK = [
    {"role": "user", "content": "What is a ropewalk?"},
    {"role": "assistant", "content": "A long building for laying rope."},
    {"role": "user", "content": "How long?"},
]


def test_a_chat_is_the_same_text_everywhere(exported: Exported) -> None:
    """transformers' own reader of the GGUF file, the directory, and llama.cpp on what was made from that."""
    tokenizers = [
        transformers.AutoTokenizer.from_pretrained(exported.source.parent, gguf_file=exported.source.name),
        transformers.AutoTokenizer.from_pretrained(exported.directory),
    ]
    said = {one.apply_chat_template(TALK, tokenize=False, add_generation_prompt=True) for one in tokenizers}
    said.add(LlamaCpp(exported.file, context=256).chat(TALK))
    (text,) = said
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert text.endswith("How long?<|im_end|>\n<|im_start|>assistant\n")
    assert [(one.unk_token_id, one.pad_token_id) for one in tokenizers] == [(0, 2), (0, 2)]
    for proof in (exported.to_hf, exported.to_gguf):
        assert proof.metadata == (
            "chat template; unk, pad; name, organization, finetune, basename, size_label, license, languages"
        )
    assert exported.to_hf.left_out == ()
    assert exported.to_gguf.left_out == ("the text of README.md",)
