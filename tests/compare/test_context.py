"""What the reference gains from its length, and which pieces of text are measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ropewalk.compare import measure_tasks, measure_text
from ropewalk.compare.measure_text import Placed, _context, pieces
from ropewalk.data.config import TaskSetData, TextData
from ropewalk.data.drawn.skips import PoSE, Randomised
from ropewalk.evaluate.engines.ours import Ours
from ropewalk.evaluate.passage import Passage
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.positions import Positions


class ByContext:
    """The loss of a token is that of the token itself, which varies much, less what the tokens before it are worth."""

    def __init__(self, worth: float) -> None:
        self.worth = worth

    def nats(self, passage: Passage) -> np.ndarray:
        places = np.arange(len(passage.tokens))[-passage.scored :]
        return 5.0 * (passage.tokens[-passage.scored :] % 7) - self.worth * np.log2(places)


@pytest.mark.parametrize("worth", [0.0, 0.05])
def test_context_is_worth_what_it_is_whatever_the_tokens(worth: float) -> None:
    engine: Any = ByContext(worth)
    text = np.random.default_rng(0).integers(0, 100, 1024)
    # Tokens 192 to 255 with all before them, and with the 16 to 31 that the last one of 32 tokens has.
    want = np.mean([np.log2(place) - np.log2(16 + place % 16) for place in range(192, 256)]) * worth
    assert _context(engine, text, 256) == pytest.approx(want, abs=1e-12)


def test_pieces_are_of_the_whole_split(monkeypatch: pytest.MonkeyPatch) -> None:
    class Held:
        def __init__(self, *_: object) -> None:
            self.documents, self.tokens = 40, 400

        def bounds(self, first: int, last: int) -> np.ndarray:
            return np.arange(first, last + 1) * 10

        def span(self, start: int, stop: int) -> np.ndarray:
            return np.arange(start, stop)

    monkeypatch.setattr(measure_text, "Documents", Held)
    monkeypatch.setattr(measure_text, "describe", lambda folder: {})
    found = pieces(TextData(path="nowhere", length=8, packing="document"), 10, 4)
    assert [int(one.tokens[0]) for one in found] == [0, 100, 200, 300]
    # From the middle of a document: its opening is not like the rest.
    assert [int(one.tokens[0]) for one in pieces(TextData(path="nowhere", length=8, packing="document"), 6, 2)] == [
        2,
        202,
    ]


def test_a_model_of_randomised_positions_is_measured_at_such() -> None:
    config = TransformerConfig(stack="decoder", width=16, layers=1, heads=2, vocabulary=32, encoding="rope")
    model, tokens = Transformer(config), np.random.default_rng(0).integers(0, 32, 50)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    plain = Passage.plain(tokens, 49)
    rng = np.random.default_rng([measure_text.DRAWN, 50, int(plain.digest, 16)])
    at = np.sort(rng.choice(4096, 50, replace=False))
    found = Placed(model, Randomised(reach=4096)).nats(plain)
    assert found == pytest.approx(Ours(model, model="").nats(Passage(tokens, at, 49)))
    assert Placed(model, None).nats(plain) == pytest.approx(Ours(model, model="").nats(plain))
    assert np.abs(found - Ours(model, model="").nats(plain)).max() > 1e-3


def test_every_text_has_positions_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one draw for all, an interval over texts would leave out what the draw does."""
    seen = []
    monkeypatch.setattr(Ours, "nats", lambda self, passage, scaling: seen.append(passage.positions.tolist()))
    config = TransformerConfig(stack="decoder", width=16, layers=1, heads=2, vocabulary=32, encoding="rope")
    engine = Placed(Transformer(config), Randomised(reach=4096))
    for seed in (0, 1, 0):
        engine.nats(Passage.plain(np.random.default_rng(seed).integers(0, 32, 50), 49))
    assert seen[0] == seen[2] != seen[1]


class Recording:
    """A model that answers nothing, and keeps the positions that it is asked at."""

    plan = SimpleNamespace(table=None)

    def __init__(self) -> None:
        self.at: list[Positions] = []

    def __call__(self, tokens: torch.Tensor, at: Positions) -> torch.Tensor:
        self.at.append(at)
        return torch.zeros(*tokens.shape, 32)


def test_a_model_of_randomised_positions_is_asked_tasks_at_drawn_ones() -> None:
    asked = {"lengths": [3, 5], "samples": 4}
    drawn, ordinary = Recording(), Recording()
    data = TaskSetData(of=("copy",), longest=3, length=48, positions={"kind": "random", "reach": 3000})
    found = measure_tasks.measure(drawn, data, asked)
    measure_tasks.measure(ordinary, data.model_copy(update={"positions": PoSE(reach=3000)}), asked)
    assert set(found["exact"]["copy"]) == set(found["constant"]["copy"]) == {3, 5}
    for at, was in zip(drawn.at, ordinary.at, strict=True):
        assert torch.equal(was.index[0], torch.arange(was.shape[1]))
        assert at.shape == was.shape
        assert at.limit == 3000
        assert bool((at.index.diff() > 0).all())
        assert int(at.index.max()) > 1500
        assert len({tuple(row) for row in at.index.tolist()}) == 4
    short = data.model_copy(update={"positions": Randomised(reach=10)})
    assert measure_tasks.measure(drawn, short, asked)["exact"]["copy"][5] == "cannot"


def test_what_one_answer_to_all_questions_gets_right_is_measured() -> None:
    data = TaskSetData(of=("copy", "parity"), longest=12, length=96)
    found = measure_tasks.measure(Recording(), data, {"lengths": [12], "samples": 50})["constant"]
    assert 0.5 <= found["parity"][12] < 0.75
    assert found["copy"][12] < 0.1
