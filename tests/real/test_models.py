"""Real weights through our one Transformer, against transformers' own models of the same files."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from transformers import BertModel, LlamaForCausalLM, MPNetModel

import ropewalk
from ropewalk import positions
from ropewalk.checkpoints.tokens import tokenizer
from ropewalk.models import Transformer
from tests.real.fetch import model as fetched

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800), pytest.mark.no_poison]

SENTENCES = (
    "The cat sits on the mat.",
    "A cat is sitting on a rug.",
    "Rotary position encoding turns queries and keys by angles proportional to their positions, so that a score "
    "depends on the distance alone; the text must be long enough to have distances worth the name.",
    "\u4f4d\u7f6e\u7f16\u7801",
)


class Both(NamedTuple):
    ours: Transformer
    theirs: Any
    tokens: Tensor  # (1, L) of real text
    seconds: tuple[float, float]


def prose(path: Path, count: int) -> Tensor:
    """English of the Python manual, which every Python carries."""
    text = "\n\n".join(topics[name] for name in sorted(topics))[: 12 * count]
    return torch.tensor(tokenizer.of(path).encode(text)[:count])[None]


@pytest.fixture(scope="module", params=["smollm2", "tinyllama"])
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    path = fetched(request.param)
    start = time.perf_counter()
    ours = ropewalk.load(path)
    middle = time.perf_counter()
    theirs = LlamaForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    seconds = middle - start, time.perf_counter() - middle
    count = {"smollm2": 2048, "tinyllama": 512}[request.param]
    yield Both(ours, theirs, prose(path, count), seconds)
    del ours, theirs
    gc.collect()


@torch.no_grad()
def test_logits_are_those_of_transformers(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    want = both.theirs(both.tokens).logits
    exact = (both.ours(both.tokens) - want).abs().max().item()
    (encoding,) = both.ours.get_submodule("decoder.encodings").children()
    length, width = both.tokens.shape[1], both.ours.config.head_width
    table = both.theirs.model.rotary_emb(torch.zeros(1), torch.arange(length)[None])
    injected = tuple(part[:, None, :, : width // 2] for part in table)
    monkeypatch.setattr(encoding, "forward", lambda at: injected)
    same = (both.ours(both.tokens) - want).abs().max().item()
    print(f"{length} tokens: {same:.2g} with transformers' cos and sin, {exact:.2g} with exact angles")
    assert same <= 1e-3
    assert exact <= 2e-2
    assert 2 < want.std().item() < 20  # or the bounds mean nothing


@torch.no_grad()
def test_greedy_text_is_that_of_transformers(both: Both) -> None:
    prompt = both.tokens[:, :64]
    want = both.theirs.generate(
        prompt, max_new_tokens=128, do_sample=False, attention_mask=torch.ones_like(prompt), eos_token_id=None
    )
    got = ropewalk.complete(both.ours, prompt[0], max_tokens=128, temperature=0)
    assert got == want[0, 64:].tolist()


def test_loading_takes_a_third_of_the_time_at_most(both: Both) -> None:
    ours, theirs = both.seconds
    print(f"loaded in {ours / theirs:.2f} of transformers' time")
    # TinyLlama's IQ2_XXS: both spend nearly all of it in the same dequantiser, of the gguf package.
    assert ours <= theirs * (1 / 3 if both.tokens.shape[1] == 2048 else 1)


@pytest.mark.parametrize(("name", "cls"), [("minilm", BertModel), ("mpnet", MPNetModel)])
@torch.no_grad()
def test_sentence_vectors(name: str, cls: Any) -> None:
    path = fetched(name)
    ours, theirs, words = ropewalk.load(path), cls.from_pretrained(path).eval(), tokenizer.of(path)
    rows = [words.encode(sentence) for sentence in SENTENCES]
    lengths = [len(row) for row in rows]
    longest = max(lengths)
    pad = theirs.config.pad_token_id
    tokens = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
    held = torch.arange(longest) < torch.tensor(lengths)[:, None]
    want = theirs(tokens, attention_mask=held.long()).last_hidden_state
    got = ours(tokens, positions.padded(lengths))
    vectors = [(x * held[..., None]).sum(1) / held.sum(1, keepdim=True) for x in (want, got)]
    alike = torch.nn.functional.cosine_similarity(*vectors)
    print(f"{name}: cosine {alike.min().item():.9f}, largest difference {(want - got)[held].abs().max().item():.2g}")
    assert alike.min() >= 0.999999
    near, far = torch.nn.functional.cosine_similarity(vectors[1][:1], vectors[1][1:3])
    assert near > 0.6 > 0.3 > far


def test_flan_t5_translates() -> None:
    path = fetched("flan-t5")
    ours, words = ropewalk.load(path), tokenizer.of(path)
    prompt = words.encode("translate English to German: The house is wonderful.")
    said = ropewalk.complete(ours, prompt, start=0, stop=words.stops, max_tokens=20, temperature=0)
    assert words.decode(said) == "Das Haus ist wunderbar."
