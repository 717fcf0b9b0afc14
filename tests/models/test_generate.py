"""Generation against oracles: whole passes without a cache, exhaustive search, filters in plain Python."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

from ropewalk import encodings
from ropewalk.models import PRESETS, Transformer, TransformerConfig, preset
from ropewalk.models.generate import Beam, Texts, beam_search, chances, complete, generate
from tests.closeness import assert_close
from tests.encodings.rows import ROWS, Row

VOCABULARY = 11
SMALL: dict[str, Any] = {"vocabulary": VOCABULARY, "width": 32, "heads": 4, "key_heads": 2, "layers": 2, "hidden": 48}
TWO_WINDOWS = {"count": 2, "pattern": ["near", "far"], "kinds": {"near": {"window": 3}, "far": {"window": 6}}}
ONE_WINDOW = {"count": 2, "pattern": ["far", "near"], "kinds": {"near": {"window": 3}, "far": {"window": None}}}
GENERATING = [name for name in PRESETS if PRESETS[name].get("stack") != "encoder"]
PROMPTS = [[1, 2, 3, 4, 5, 6, 7], [8], [9, 10, 1, 3]]


def wild(config: TransformerConfig, seed: int = 0) -> Transformer:
    """A model whose weights are large enough that what it says depends on every token and where it stands."""
    torch.manual_seed(seed)
    model = Transformer(config)
    for weight in model.parameters():
        if weight.ndim > 1:
            nn.init.normal_(weight, std=0.25)
    return model.eval()


def small(seed: int = 0, **changes: Any) -> Transformer:
    return wild(TransformerConfig(**{**SMALL, "tie": False, **changes}), seed)


def small_preset(name: str) -> Transformer:
    return wild(preset(name, **SMALL))


def of_row(row: Row, **changes: Any) -> Transformer:
    return small(encoding={"kind": row.kind, **row.settings}, **changes)


def start_of(model: Transformer) -> dict[str, int]:
    return {} if model.encoder is None else {"start": 0}


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with every step that is computed from here on: how many rows it has."""
    rows: list[int] = []
    logits = Texts.logits

    def count(texts: Texts) -> Tensor:
        rows.append(len(texts.unread))
        return logits(texts)

    monkeypatch.setattr(Texts, "logits", count)
    return rows


def assert_cache_changes_nothing(name: str, model: Transformer, **reading: Any) -> None:
    """Both read the same random tokens; then each generates on its own."""
    options = {**start_of(model), **reading}
    plain, cached = (Texts(model, PROMPTS, 12, **options, cached=cached) for cached in (False, True))
    for step in range(12):
        want, got = plain.logits(), cached.logits()
        assert_close(f"{name}, step {step}", want, got, 1e-5)
        assert (want[0] - want[1]).abs().max() > 0.05, "what was said before must matter"
        tokens = torch.randint(VOCABULARY, (3,)).tolist()
        for texts in (plain, cached):
            texts.grow([0, 1, 2], tokens)
    want = complete(model, PROMPTS, max_tokens=12, temperature=0, **options, cached=False)
    assert complete(model, PROMPTS, max_tokens=12, temperature=0, **options) == want


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", GENERATING)
def test_the_cache_changes_nothing_for_every_preset(name: str, side: str) -> None:
    assert_cache_changes_nothing(name, small_preset(name), side=side)


@pytest.mark.parametrize("layers", [2, TWO_WINDOWS, ONE_WINDOW], ids=["full", "windows", "a window and none"])
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_cache_changes_nothing_for_every_encoding(row: Row, layers: Any) -> None:
    assert_cache_changes_nothing(str(row), of_row(row, layers=layers))


BOTH_WAYS = [
    row
    for row in ROWS
    if encodings.build({"kind": row.kind, **row.settings}, width=32, heads=4, head_width=8).claims.bidirectional
]


@pytest.mark.parametrize("row", BOTH_WAYS, ids=str)
def test_the_cache_changes_nothing_in_an_encoder_decoder(row: Row) -> None:
    assert_cache_changes_nothing(str(row), of_row(row, stack="encoder-decoder"), side="right")


def test_the_oracle_is_the_model_itself() -> None:
    """Without a cache the logits are those of plain passes over one text, without padding."""
    model = small(encoding="alibi")
    texts = Texts(model, PROMPTS, 3, cached=False)
    for row, got in zip(PROMPTS, texts.logits(), strict=True):
        assert_close(f"{row}", model(torch.tensor([row]))[0, -1], got, 1e-5)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 0.05), (torch.float16, 0.005)])
@pytest.mark.parametrize("stack", ["decoder", "encoder-decoder"])
def test_the_cache_has_the_precision_of_the_pass(stack: str, dtype: torch.dtype, bound: float) -> None:
    """Keys kept in bfloat16 under an autocast to float16 would lose three bits: 0.04 on these logits."""
    model = small(stack=stack)
    with torch.autocast("cpu", dtype=dtype):
        plain, cached = (Texts(model, PROMPTS, 6, **start_of(model), cached=cached) for cached in (False, True))
        for step in range(6):
            assert_close(f"{dtype}, step {step}", plain.logits(), cached.logits(), bound)
            for texts in (plain, cached):
                texts.grow([0, 1, 2], [step, step + 1, step + 2])


def test_a_step_reads_one_token_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    model, read = small(), []
    hidden = model.hidden

    def watched(tokens: Tensor, *positional: Any, **named: Any) -> Tensor:
        read.append(tuple(tokens.shape))
        return hidden(tokens, *positional, **named)

    monkeypatch.setattr(model, "hidden", watched)
    complete(model, PROMPTS, max_tokens=4)
    assert read == [(3, 7), (3, 1), (3, 1), (3, 1)]


class TestBatches:
    """What a row says depends neither on its batch mates nor on the side of the padding."""

    SAMPLED = {"temperature": 1.3, "top_k": 9, "top_p": 0.95, "min_p": 0.01}  # noqa: RUF012

    @pytest.mark.parametrize("how", [{"temperature": 0}, SAMPLED], ids=["greedy", "sampled"])
    @pytest.mark.parametrize("row", ROWS, ids=str)
    def test_a_decoder(self, row: Row, how: dict[str, Any]) -> None:
        self.compare(of_row(row, layers=ONE_WINDOW), seed=50, **how)

    @pytest.mark.parametrize("how", [{"temperature": 0}, SAMPLED], ids=["greedy", "sampled"])
    @pytest.mark.parametrize("name", ["vaswani2017", "t5"])
    def test_an_encoder_decoder(self, name: str, how: dict[str, Any]) -> None:
        self.compare(small_preset(name), seed=50, **how)

    @pytest.mark.parametrize("name", ["gpt2", "bloom", "llama", "t5"])
    def test_beams(self, name: str) -> None:
        self.compare(small_preset(name), beams=3)

    def compare(self, model: Transformer, seed: int | None = None, **how: Any) -> None:
        # Rows end at different steps, and those that are left move up in the cache.
        options = {"max_tokens": 10, "stop": [0, 4], "limit": 20, **start_of(model), **how}
        seeds = [{} if seed is None else {"seed": seed + b} for b in range(len(PROMPTS))]
        alone = [complete(model, prompt, **its, **options) for prompt, its in zip(PROMPTS, seeds, strict=True)]
        for side in ("left", "right"):
            assert complete(model, PROMPTS, side=side, **seeds[0], **options) == alone
        back = {} if seed is None else {"seed": [seed + 2, seed + 1, seed]}
        assert complete(model, PROMPTS[::-1], **back, **options) == alone[::-1]

    def test_rows_end_on_their_own(self) -> None:
        """The comparison above is of rows that really end at different steps."""
        lengths = [len(row) for row in complete(small(), PROMPTS, seed=50, max_tokens=10, stop=[0, 4])]
        assert len(set(lengths)) > 1

    def test_the_limit_is_shared_unless_given(self) -> None:
        """A dynamic scaling reads it, so that a row in a longer batch has other frequencies."""
        model = small(encoding={"kind": "rope", "scaling": {"kind": "dynamic", "factor": 2, "trained": 4}})
        assert (Texts(model, PROMPTS, 5).limit, Texts(model, PROMPTS[1], 5).limit) == (12, 6)
        assert Texts(model, PROMPTS[1], 5, limit=12).limit == 12


class TestBeams:
    PROMPT = [1, 2, 3]  # noqa: RUF012

    def every_text(
        self, model: Transformer, length: int, stop: int | None, alpha: float
    ) -> dict[tuple[int, ...], float]:
        """All texts there are with their scores, each from a whole pass."""
        whole = torch.tensor(list(itertools.product(range(model.config.vocabulary), repeat=length)))
        prompt = torch.tensor(self.PROMPT).expand(len(whole), -1)
        logits = model(torch.cat([prompt, whole[:, :-1]], dim=1))[:, len(self.PROMPT) - 1 :]
        log_p = logits.log_softmax(dim=-1).double().gather(2, whole[..., None])[..., 0].cumsum(dim=1)
        found = {}
        for text, sums in zip(whole.tolist(), log_p.tolist(), strict=True):
            end = text.index(stop) + 1 if stop in text else length
            found[tuple(text[:end])] = sums[end - 1] / ((5 + end) / 6) ** alpha
        return found

    @pytest.mark.parametrize(("stop", "alpha"), [(None, 0.0), (None, 0.6), (0, 0.0), (0, 0.6), (0, 2.0), (3, -0.5)])
    def test_wide_enough_it_is_an_exhaustive_search(self, stop: int | None, alpha: float) -> None:
        model = small(vocabulary=5)
        with torch.no_grad():
            every = self.every_text(model, 4, stop, alpha)
        options: dict[str, Any] = {"length_penalty": alpha, "max_tokens": 4, "stop": () if stop is None else stop}
        found = beam_search(model, self.PROMPT, beams=5**4, **options)
        assert len(found) == len(every)
        assert [text.score for text in found] == sorted((text.score for text in found), reverse=True)
        want = torch.tensor([every[tuple(text.tokens)] for text in found], dtype=torch.float64)
        assert_close(f"{stop} {alpha}", want, torch.tensor([text.score for text in found]), 1e-5)
        likeliest = max(every, key=lambda text: every[text])
        assert tuple(found[0].tokens) == likeliest
        assert complete(model, self.PROMPT, beams=5**3, **options) == list(likeliest)

    @pytest.mark.parametrize(("beams", "alpha"), [(3, 0.0), (3, 0.6), (1, 0.6), (1, 3.0)])
    @pytest.mark.parametrize("stop", [(0,), (0, 4)])
    def test_ending_early_changes_nothing(
        self, stop: tuple[int, ...], beams: int, alpha: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        steps = counted(monkeypatch)
        for seed in range(6):
            model = small(seed)
            found = beam_search(model, self.PROMPT, beams=beams, length_penalty=alpha, max_tokens=20, stop=stop)
            with torch.no_grad():
                want = self.patient(model, beams, alpha, 20, stop)
            assert [text.tokens for text in found] == [text.tokens for text in want]
            assert_close("scores", [text.score for text in want], torch.tensor([text.score for text in found]), 1e-5)
        assert len(steps) < 6 * 20 or alpha > 1, "some did end early"

    def patient(self, model: Transformer, beams: int, alpha: float, length: int, stop: tuple[int, ...]) -> list[Beam]:
        """The same search in plain Python, which always goes on to the last step and reads whole texts."""
        live, ended = [Beam(0.0, [])], []
        for _ in range(length):
            every = []
            for text in live:
                logits = model(torch.tensor([[*self.PROMPT, *text.tokens]]))[0, -1].log_softmax(dim=-1).tolist()
                every += [Beam(text.score + more, [*text.tokens, token]) for token, more in enumerate(logits)]
            every.sort(reverse=True)
            ended += [text for text in every[:beams] if text.tokens[-1] in stop]
            live = [text for text in every if text.tokens[-1] not in stop][:beams]
        penalised = [Beam(text.score / ((5 + len(text.tokens)) / 6) ** alpha, text.tokens) for text in ended + live]
        return sorted(penalised, reverse=True)[:beams]

    @pytest.mark.parametrize("row", ROWS, ids=str)
    def test_the_cache_changes_nothing(self, row: Row) -> None:
        self.compare(of_row(row, layers=ONE_WINDOW))

    @pytest.mark.parametrize("name", GENERATING)
    def test_the_cache_changes_nothing_for_every_preset(self, name: str) -> None:
        self.compare(small_preset(name))

    def compare(self, model: Transformer) -> None:
        options = {"beams": 4, "max_tokens": 8, "stop": 0, **start_of(model)}
        cached, plain = (beam_search(model, PROMPTS, **options, cached=cached) for cached in (True, False))
        for got, want in zip(cached, plain, strict=True):
            assert [text.tokens for text in got] == [text.tokens for text in want]
            assert_close("scores", [text.score for text in want], torch.tensor([text.score for text in got]), 1e-5)

    def test_one_beam_is_greedy(self) -> None:
        for seed in range(5):
            model = small(seed)
            options = {"max_tokens": 12, "stop": [0, 4]}
            want = complete(model, PROMPTS, temperature=0, **options)
            assert complete(model, PROMPTS, beams=1, length_penalty=0.0, **options) == want

    def test_a_wider_beam_finds_no_worse(self) -> None:
        scores = [
            beam_search(small(), self.PROMPT, beams=n, max_tokens=4, length_penalty=0)[0].score for n in (1, 11**3)
        ]
        assert scores[1] >= scores[0]

    def test_the_penalty_favours_length(self) -> None:
        model = small(3)
        lengths = [
            len(beam_search(model, self.PROMPT, beams=8, max_tokens=12, stop=[0, 1, 2], length_penalty=alpha)[0].tokens)
            for alpha in (-2.0, 0.0, 3.0)
        ]
        assert lengths == sorted(lengths)
        assert lengths[0] < lengths[-1]


def cut(
    logits: list[float], temperature: float, top_k: int | None, top_p: float | None, min_p: float | None
) -> list[float]:
    """The filters one after the other, on (probability, token) pairs."""
    largest = max(logits)
    weights = [(math.exp((x - largest) / temperature), token) for token, x in enumerate(logits)]
    left = sorted(weights, key=lambda pair: (-pair[0], pair[1]))
    if top_k is not None:
        left = left[:top_k]
    if top_p is not None and top_p < 1:
        total, share, count = sum(p for p, _ in left), 0.0, 0
        while share < top_p * total and count < len(left):
            share += left[count][0]
            count += 1
        left = left[:count]
    if min_p is not None:
        left = [(p, token) for p, token in left if p >= min_p * left[0][0]]
    total = sum(p for p, _ in left)
    kept = {token: p / total for p, token in left}
    return [kept.get(token, 0.0) for token in range(len(logits))]


class TestChances:
    @pytest.mark.parametrize("temperature", [0.2, 1.0, 2.5])
    @pytest.mark.parametrize("top_k", [None, 1, 3, 50])
    @pytest.mark.parametrize("top_p", [None, 0.05, 0.5, 0.9, 1.0])
    @pytest.mark.parametrize("min_p", [None, 0.0, 0.1, 0.7, 1.0])
    def test_against_plain_python(
        self, temperature: float, top_k: int | None, top_p: float | None, min_p: float | None
    ) -> None:
        logits = torch.randn(20, 17, generator=torch.Generator().manual_seed(1)) * 3
        got = chances(logits, temperature, top_k, top_p, min_p)
        want = [cut(row, temperature, top_k, top_p, min_p) for row in logits.tolist()]
        assert_close("probabilities", want, got, 2e-6)
        assert torch.equal(got > 0, torch.tensor(want) > 0) or (top_k, top_p, min_p) == (None, None, None)

    def test_temperature_zero_is_the_largest(self) -> None:
        assert chances(torch.tensor([[1.0, 3.0, 2.0], [5.0, 1.0, 5.5]]), 0).tolist() == [[0, 1, 0], [0, 0, 1]]

    def test_a_tiny_temperature_does_not_overflow(self) -> None:
        assert chances(torch.tensor([900.0, 1000.0, -1000.0]), 1e-38).tolist() == [0, 1, 0]

    def test_the_order_of_the_cuts(self) -> None:
        """Top-p is of what top-k left: half of two equal tokens is one, half of four is two."""
        even = torch.zeros(4)
        assert sorted(chances(even, 1.0, top_k=2, top_p=0.5).tolist()) == [0, 0, 0, 1]
        assert sorted(chances(even, 1.0, top_p=0.5).tolist()) == [0, 0, 0.5, 0.5]

    def test_top_p_keeps_one_at_least(self) -> None:
        assert chances(torch.tensor([0.0, 2.0, 1.0]), 1.0, top_p=1e-9).tolist() == [0, 1, 0]

    def test_of_equal_tokens_no_more_than_k_are_left(self) -> None:
        assert sorted(chances(torch.zeros(5), 1.0, top_k=2).tolist()) == [0, 0, 0, 0.5, 0.5]

    def test_what_is_drawn_has_these_chances(self) -> None:
        model, count = small(), 4000
        options: dict[str, Any] = {"temperature": 1.5, "top_k": 8, "top_p": 0.9}
        p = chances(Texts(model, [3, 1, 4], 1).logits()[0], **options)
        drawn = complete(model, [[3, 1, 4]] * count, max_tokens=1, seed=0, **options)
        share = torch.bincount(torch.tensor(drawn).flatten(), minlength=VOCABULARY) / count
        assert bool(((share - p).abs() <= 4 * (p * (1 - p) / count).sqrt()).all())
        assert not share[p == 0].any()
        assert int((p > 0).sum()) > 3


class TestStreaming:
    def test_one_prompt_gives_ints(self) -> None:
        model = small()
        said = list(generate(model, PROMPTS[0], max_tokens=9, seed=3))
        assert all(isinstance(token, int) for token in said)
        assert len(said) == 9
        assert complete(model, PROMPTS[0], max_tokens=9, seed=3) == said

    def test_several_give_a_list_a_step(self) -> None:
        model, options = small(), {"max_tokens": 10, "stop": [0, 4], "seed": 50}
        steps = list(generate(model, PROMPTS, **options))
        texts = complete(model, PROMPTS, **options)
        assert [[token for token in row if token is not None] for row in zip(*steps, strict=True)] == texts
        for row, text in zip(zip(*steps, strict=True), texts, strict=True):
            assert list(row) == text + [None] * (len(steps) - len(text)), "None from the end on"
        assert any(None in step for step in steps)
        assert any(token is not None for token in steps[-1]), "no step after the last row has ended"

    def test_each_step_comes_before_the_next_is_computed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        computed = counted(monkeypatch)
        for number, _ in enumerate(generate(small(), PROMPTS[0], max_tokens=5), start=1):
            assert len(computed) == number

    def test_gradients_stay_on_for_the_caller(self) -> None:
        for _ in generate(small(), [1], max_tokens=2):
            assert torch.is_grad_enabled()

    @pytest.mark.parametrize("form", [torch.tensor, np.array, tuple])
    def test_prompts_in_other_forms(self, form: Any) -> None:
        model = small()
        options: dict[str, Any] = {"max_tokens": 3, "temperature": 0}
        assert complete(model, form(PROMPTS[0]), **options) == complete(model, PROMPTS[0], **options)
        assert complete(model, [form(row) for row in PROMPTS], **options) == complete(model, PROMPTS, **options)
        square = [[1, 2], [3, 4]]
        assert complete(model, form(square), **options) == complete(model, square, **options)

    def test_one_prompt_in_a_batch_stays_a_batch(self) -> None:
        model = small()
        one = complete(model, PROMPTS[0], max_tokens=3, seed=1)
        assert complete(model, PROMPTS[:1], max_tokens=3, seed=1) == [one]
        assert complete(model, PROMPTS[:1], max_tokens=3, beams=2) == [
            complete(model, PROMPTS[0], max_tokens=3, beams=2)
        ]


class TestStop:
    def test_the_stop_token_is_the_last(self) -> None:
        model = small()
        free = complete(model, PROMPTS[0], max_tokens=20, temperature=0)
        for stop in set(free):
            stopped = complete(model, PROMPTS[0], max_tokens=20, temperature=0, stop=stop)
            assert stopped == free[: free.index(stop) + 1]
        assert complete(model, PROMPTS[0], max_tokens=20, temperature=0, stop=tuple(set(free))) == free[:1]

    def test_a_row_that_ended_is_not_computed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rows = counted(monkeypatch)
        steps = list(generate(small(), PROMPTS, max_tokens=10, stop=[0, 4], seed=50))
        assert rows == [sum(token is not None for token in step) for step in steps]
        assert rows[-1] < 3

    def test_stopping_does_not_move_the_other_rows(self) -> None:
        model = small()
        free = complete(model, PROMPTS, max_tokens=12, seed=7)
        for stop in range(VOCABULARY):
            ends = [row.index(stop) + 1 if stop in row else 12 for row in free]
            want = [row[:end] for row, end in zip(free, ends, strict=True)]
            assert complete(model, PROMPTS, max_tokens=12, seed=7, stop=stop) == want


class TestSeeds:
    def test_a_seed_repeats_itself(self) -> None:
        model = small()
        said = [complete(model, [PROMPTS[0]] * 4, max_tokens=12, seed=seed) for seed in (5, 5, 6)]
        assert said[0] == said[1]
        assert said[2][:3] == said[0][1:], "row b draws from seed + b"
        assert len({tuple(row) for row in said[0]}) == 4

    def test_without_one_torch_decides(self) -> None:
        model = small()
        said = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            said.append(complete(model, PROMPTS, max_tokens=12))
        assert said[0] == said[1] != said[2]

    def test_drawing_leaves_torchs_generator_alone(self) -> None:
        model = small()
        before = torch.get_rng_state()
        complete(model, PROMPTS, max_tokens=3, seed=1)
        assert torch.equal(torch.get_rng_state(), before)


class TestErrors:
    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"temperature": -1}, "temperature=-1 is neither 0"),
            ({"temperature": math.nan}, "temperature=nan"),
            ({"top_k": 0}, "top_k=0 leaves no token"),
            ({"top_p": 0.0}, "top_p=0.0 is not a share"),
            ({"top_p": 1.5}, "top_p=1.5 is not a share"),
            ({"min_p": 2}, "min_p=2 is not a share"),
            ({"max_tokens": 0}, "max_tokens=0 leaves nothing"),
            ({"seed": [1, 2]}, "2 seeds for 3 prompts"),
            ({"stop": 11}, r"stop has \[11\]; tokens are integers from 0 to 10"),
            ({"side": "middle"}, "side is 'left' or 'right', got 'middle'"),
            ({"start": 0}, "put `start` in front"),
            ({"limit": 10}, "limit 10 must lie between 263"),
            ({"beams": 0}, "beams=0 keeps no text"),
        ],
    )
    def test_options(self, options: dict[str, Any], says: str) -> None:
        with pytest.raises(ValueError, match=says):
            complete(small(), PROMPTS, **options)

    @pytest.mark.parametrize(
        ("prompts", "says"),
        [
            ([], "prompt 0 has no tokens"),
            ([[1], []], "prompt 1 has no tokens"),
            ([[1], [3, 11]], r"prompt 1 has \[11\]; tokens are integers from 0 to 10"),
            ([-1], r"prompt 0 has \[-1\]"),
            ([0.5], r"prompt 0 has \[0.5\]"),
            ("text", r"prompt 0 has \['t'\]"),
            (["text"], r"prompt 0 has \['text'\]"),
        ],
    )
    def test_prompts(self, prompts: Any, says: str) -> None:
        with pytest.raises(ValueError, match=says):
            generate(small(), prompts)

    def test_they_come_with_the_call(self) -> None:
        """Not with the first token, which may be asked for elsewhere."""
        with pytest.raises(ValueError, match="top_k"):
            generate(small(), [1], top_k=0)

    def test_options_of_another_search_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"leave out top_k=3, temperature=0\.5"):
            complete(small(), [1], beams=2, temperature=0.5, top_k=3)
        with pytest.raises(ValueError, match="give beams too"):
            complete(small(), [1], length_penalty=1.0)

    def test_an_encoder(self) -> None:
        with pytest.raises(ValueError, match="an encoder does not say what comes next"):
            generate(small(stack="encoder"), [1])

    def test_an_encoder_decoder_needs_a_start(self) -> None:
        model = small(stack="encoder-decoder")
        with pytest.raises(ValueError, match="needs start"):
            generate(model, [1])
        with pytest.raises(ValueError, match=r"start has \[12\]"):
            generate(model, [1], start=12)

    def test_training_mode(self) -> None:
        dropped = small(dropout={"residual": 0.1}).train()
        with pytest.raises(ValueError, match=r"call model\.eval\(\) first"):
            generate(dropped, [1])
        assert complete(dropped.eval(), [1], max_tokens=2)
        assert complete(small().train(), [1], max_tokens=2), "without dropout there is nothing to switch off"

    def test_past_a_learned_table(self) -> None:
        model = small(encoding={"kind": "learned", "longest": 12})
        assert len(complete(model, PROMPTS, max_tokens=5)[0]) == 5
        says = r"7 tokens and 6 new ones \(limit 13\) pass the table of 12 positions"
        with pytest.raises(ValueError, match=says):
            generate(model, PROMPTS, max_tokens=6)
        with pytest.raises(ValueError, match=says):
            beam_search(model, PROMPTS, max_tokens=6)
        with pytest.raises(ValueError, match=r"\(limit 20\) pass the table of 12 positions"):
            generate(model, PROMPTS, max_tokens=5, limit=20)

    def test_a_source_past_a_learned_table(self) -> None:
        model = small(stack="encoder-decoder", encoding={"kind": "learned", "longest": 6})
        with pytest.raises(ValueError, match="table ends at 6 positions"):
            generate(model, PROMPTS, max_tokens=2, start=0)

    def test_numbers_that_are_none(self) -> None:
        model = small()
        nn.init.constant_(model.tokens.weight, math.nan)
        with pytest.raises(ValueError, match="logits are NaN"):
            complete(model, [1])


def test_random_schedules_of_growth() -> None:
    """Rows repeated, dropped and put in another order at every step, as beams and ended rows do, without the cache."""
    chance = random.Random(0)
    for model in (small(layers=TWO_WINDOWS), small(stack="encoder-decoder", encoding="sinusoidal")):
        texts = [Texts(model, PROMPTS, 12, **start_of(model), cached=cached) for cached in (False, True)]
        for step in range(12):
            want, got = (each.logits() for each in texts)
            assert_close(f"step {step}", want, got, 1e-5)
            parents = [chance.randrange(len(want)) for _ in range(chance.randint(1, 6))]
            tokens = [chance.randrange(VOCABULARY) for _ in parents]
            for each in texts:
                each.grow(parents, tokens)


@pytest.mark.parametrize("window", [None, 8])
def test_a_compiled_step_says_the_same_and_is_compiled_once_for_any_length_and_cache(
    window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Captured whole, run as it is: what the compiler makes of it is its own affair and takes minutes."""
    model = small(window=window)
    counter = CompileCounter()
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f: real(f, backend=counter, fullgraph=True))
    torch._dynamo.reset()
    prompts = PROMPTS[:2]
    want = complete(model, prompts, max_tokens=24, temperature=0)
    for _ in range(3):
        assert complete(model, prompts, max_tokens=24, temperature=0, compiled=True) == want
    assert counter.frame_count <= 3
    torch._dynamo.reset()


def test_a_step_that_is_compiled_to_machine_code_says_the_same() -> None:
    """Four layers that share their slots, at least: where their host integers were compared, inductor (torch 2.13)
    wrote a program with a name that it does not define; it does not with fewer."""
    kinds = {"local": {"window": 8}, "global": {}}
    model = small(layers={"count": 8, "pattern": ["local", "global"], "kinds": kinds})
    torch._dynamo.reset()
    want = complete(model, PROMPTS[:2], max_tokens=24, temperature=0)
    assert complete(model, PROMPTS[:2], max_tokens=24, temperature=0, compiled=True) == want
    torch._dynamo.reset()
