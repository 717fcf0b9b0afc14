"""Why positions are needed, from the articles `rope` and `why_positions`: what attention cannot tell without them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ropewalk import positions
from ropewalk.attention import Rule, Score, attend
from ropewalk.encodings import Encoding, Learned, RoPE, Scalar, build
from ropewalk.models import Transformer, TransformerConfig
from tests.articles import formulas
from tests.closeness import assert_close
from tests.encodings.rows import HEAD_WIDTH, HEADS, ROWS, WIDTH, Row

ONE_WAY = ["<cls>", "from", "Beijing", "to", "Shanghai", "of", "ticket"]
OTHER_WAY = ["<cls>", "from", "Shanghai", "to", "Beijing", "of", "ticket"]
WORDS = sorted(ONE_WAY)


def sentence(words: list[str], width: int) -> Tensor:
    """Each word as the same vector wherever it stands."""
    generator = torch.Generator().manual_seed(11)
    vectors = torch.randn(len(WORDS), width, generator=generator, dtype=torch.float64)
    return vectors[[WORDS.index(word) for word in words]][None]


def layer(x: Tensor, encoding: Encoding, rule: Rule, number: int = 0) -> Tensor:
    """Attention with weights of its own and a residual connection."""
    generator = torch.Generator().manual_seed(number)
    weights = torch.randn(3, WIDTH, HEADS * HEAD_WIDTH, generator=generator, dtype=torch.float64) / WIDTH**0.5
    signal = encoding.at(positions.plain(x.shape[1]))
    x = signal.embed(x) if number == 0 else x
    q, k, v = ((x @ w).unflatten(-1, (HEADS, HEAD_WIDTH)).transpose(1, 2) for w in weights)
    q, k = signal.rotate(q, "query"), signal.rotate(k, "key")
    return x + attend(q, k, v, Score(signal, rule)).transpose(1, 2).flatten(-2)


def both(encoding: Encoding, rule: Rule, layers: int = 1) -> tuple[Tensor, Tensor]:
    """The two sentences after so many layers."""
    xs = [sentence(words, encoding.token_width) for words in (ONE_WAY, OTHER_WAY)]
    for number in range(layers):
        xs = [layer(x, encoding, rule, number) for x in xs]
    return xs[0], xs[1]


NONE = build("none", width=WIDTH, heads=HEADS, head_width=HEAD_WIDTH)


@pytest.mark.parametrize("layers", [1, 3])
def test_rope_an_encoder_without_positions_gives_both_sentences_one_cls_vector(layers: int) -> None:
    """rope, why positions are needed: from Beijing to Shanghai and from Shanghai to Beijing get the same cls vector."""
    there, back = both(NONE, Rule(causal=False), layers)
    assert_close("cls", there[0, 0], back[0, 0], 1e-12)
    assert (there[0, 1:] - back[0, 1:]).abs().max() > 0.1  # the sentences are not the same


def test_rope_an_encoder_without_positions_only_reorders_its_outputs() -> None:
    """rope, why positions are needed: it sees no positions, so reordered tokens are reordered outputs."""
    x, order = torch.randn(1, 7, WIDTH, dtype=torch.float64), torch.randperm(7)
    rule = Rule(causal=False)
    assert_close("reordered", layer(x, NONE, rule)[:, order], layer(x[:, order], NONE, rule), 1e-12)


WITH_POSITIONS = [row for row in ROWS if row.kind not in ("none", "temperature")]  # which weighs queries, not places


@pytest.mark.parametrize("row", WITH_POSITIONS, ids=str)
def test_rope_every_encoding_tells_the_sentences_apart(row: Row) -> None:
    """rope, why positions are needed: with positions the vectors differ.

    Read at cls; where an encoding looks back only, at the last word, which sees the same words in both sentences and
    in one layer without positions cannot tell either.
    """
    encoding = row.build()
    looks_back = not encoding.claims.bidirectional
    rule, reader = Rule(causal=looks_back), -1 if looks_back else 0
    there, back = both(encoding, rule)
    without_there, without_back = both(NONE, rule)
    assert_close("without", without_there[0, reader], without_back[0, reader], 1e-12)
    assert (there[0, reader] - back[0, reader]).abs().max() > 1e-3


def test_rope_a_causal_decoder_without_positions_tells_them_apart_from_the_second_layer_on() -> None:
    """rope, why positions are needed: what it says of Transformers holds for encoders; the causal mask shows order.

    The word between the cities has seen one city and not the other, and the last word sees that in the next layer.
    """
    one, two = (both(NONE, Rule(causal=True), layers) for layers in (1, 2))
    assert_close("one layer", one[0][0, -1], one[1][0, -1], 1e-12)
    assert (two[0][0, -1] - two[1][0, -1]).abs().max() > 1e-3


@pytest.mark.parametrize("encoding", ["none", "sinusoidal", "rope", "alibi"])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_rope_whole_models_tell_them_apart_unless_an_encoder_has_no_positions(stack: str, encoding: str) -> None:
    """rope, why positions are needed: of whole models; read at cls in an encoder, at the end in a decoder."""
    config = TransformerConfig(
        stack=stack, encoding=encoding, vocabulary=len(WORDS), width=WIDTH, heads=HEADS, layers=3, std=None
    )
    model = Transformer(config).double().eval()
    tokens = torch.tensor([[WORDS.index(word) for word in words] for words in (ONE_WAY, OTHER_WAY)])
    there, back = model.hidden(tokens)[:, 0 if stack == "encoder" else -1]
    apart = float((there - back).detach().abs().max())
    assert (apart < 1e-12) if (stack, encoding) == ("encoder", "none") else (apart > 1e-3)


def test_why_positions_a_dot_product_is_the_same_however_far_apart_the_vectors_are() -> None:
    """why_positions, self-attention: near or far, q.k does not change; under RoPE it does."""
    q, k = torch.randn(2, 1, 1, 1, HEAD_WIDTH)
    scores: dict[str, list[float]] = {"none": [], "rope": []}
    for kind, found in scores.items():
        for apart in (1, 2, 50, 3000):
            at = build(kind, head_width=HEAD_WIDTH).at(torch.tensor([3000]), torch.tensor([3000 - apart]))
            turned_q, turned_k = at.rotate(q, "query"), at.rotate(k, "key")
            found.append(float((turned_q * turned_k).sum()))
    plain = formulas.dot(q.flatten().tolist(), k.flatten().tolist())
    assert scores["none"] == pytest.approx([plain] * 4, abs=1e-5)
    assert min(abs(a - b) for i, a in enumerate(scores["rope"]) for b in scores["rope"][:i]) > 0.01


def test_why_positions_a_number_between_0_and_1_means_another_distance_at_every_length() -> None:
    """why_positions, the positional encoding: neighbours lie 1/(n - 1) apart, so a step depends on the length."""
    unit = Scalar(width=4, form="unit")
    for length in (2, 5, 50, 1001):
        table = unit.at(positions.plain(length)).q_table
        assert_close("unit", [[[t / (length - 1)] * 4 for t in range(length)]], table, 1e-7)
        assert (table.min(), table.max()) == (0, 1)


def test_why_positions_the_number_itself_grows_without_bound() -> None:
    """why_positions, the positional encoding: counting 1, 2, 3, ... keeps distances and drowns the token's vector."""
    integer, at = Scalar(width=64, form="integer"), torch.tensor([0, 1, 1000, 10**6])
    token = torch.nn.functional.normalize(torch.ones(1, 4, 64), dim=-1)
    embedded = integer.at(at).embed(token)
    assert_close("integer", [[[t + 1 / 8] * 64 for t in at.tolist()]], embedded, 0.13)
    share = [float(token[0, i].norm() / embedded[0, i].norm()) for i in range(4)]
    assert share == pytest.approx([1, 1 / 9, 1 / 8001, 1 / 8000001], rel=1e-4)


def test_rope_a_learned_table_ends_where_training_did() -> None:
    """rope, learned vectors: there is none for a position past the longest; ours says so instead of guessing."""
    learned = Learned(width=8, longest=16)
    assert learned.at(torch.arange(16), limit=16).q_table.shape == (1, 16, 8)
    with pytest.raises(ValueError, match="ends at 16 positions"):
        learned.at(torch.arange(17), limit=17)


def test_rope_positions_enter_by_changing_x_or_by_changing_attention() -> None:
    """rope, how positions are added: either X + P before the projections, or the scores; the values never turn."""
    x = torch.randn(1, 5, 8)
    for kind, changes_x in (("sinusoidal", True), ("rope", False), ("alibi", False)):
        encoding = build(kind, width=8, heads=1, head_width=8)
        assert torch.equal(encoding.at(torch.arange(5)).embed(x), x) is not changes_x
        assert bool(encoding.sites & {"rotate", "bias"}) is not changes_x
    zero = torch.zeros(1, 1, 5, 8)  # queries and keys of zeros score 0 at any rotation: what is left is the values
    mean = x.mean(1).expand(1, 1, 5, 8)
    score = Score(RoPE(head_width=8).at(torch.arange(5)), Rule(causal=False))
    assert_close("values", mean, attend(zero, zero, x[None], score), 1e-6)
