"""The protocols on engines whose answers are known: uniform, one that copies, one that secretly crops."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

import numpy as np
import pytest

from ropewalk.data.prepare import inputs
from ropewalk.evaluate import battery, store
from ropewalk.evaluate.documents import far_places, read, texts
from ropewalk.evaluate.measures import needles, perplexity, tail
from ropewalk.evaluate.passage import Passage
from ropewalk.evaluate.store import Stored
from ropewalk.scaling import YaRN
from tests.evaluate.toys import Copier, Toy, document

DOCUMENTS = [document(number, 400) for number in range(10)]


def encode(text: str) -> list[int]:
    """Characters, each a token."""
    return [ord(sign) % 128 for sign in text]


def test_a_uniform_model_scores_the_logarithm_of_its_vocabulary() -> None:
    found = tail.measure(Toy(), DOCUMENTS, near=100, lengths=(100, 200, 400), tail=50)
    for losses in (*found.crop.values(), *found.loss.values(), found.foreign):
        assert losses == pytest.approx([math.log(50)] * 10, abs=1e-12)
    for stride in (None, 25, 1):
        assert perplexity.measure(Toy(), DOCUMENTS[:2], 64, stride=stride).mean == pytest.approx(math.log(50))


def test_a_model_that_reads_far_gains_and_one_that_crops_does_not() -> None:
    far = tail.measure(Copier(400), DOCUMENTS, near=100, lengths=(100, 400), tail=50)
    assert far.gain().verdict == "better"
    assert far.benefit.mean > 0.5
    assert far.far_gain is not None
    assert far.far_gain.mean > far.gain().mean
    # From the first token of the tail, 50 back is within the trained length.
    near = tail.measure(Copier(50), DOCUMENTS, near=100, lengths=(100, 400), tail=50)
    assert near.benefit.mean == 0
    assert near.gain().verdict == "no difference"


def test_within_the_trained_length_a_context_is_compared_with_a_shorter_one() -> None:
    """Not with itself: a model that copies from 400 back would be no better than cropping."""
    reads = battery.evaluate(Copier(400), DOCUMENTS, None, trained=1000, lengths=(100, 200, 400), tail_tokens=50)
    assert reads.tail.crop_lengths == (100, 200)
    assert reads.tail.benefit.mean > 0.3
    assert "uses its context: better than cropping" in reads.verdict
    assert "past 200 tokens" in reads.rule
    crops = battery.evaluate(Copier(50), DOCUMENTS, None, trained=1000, lengths=(200, 400), tail_tokens=50)
    assert "no better than cropping" in crops.verdict
    with pytest.raises(ValueError, match="give a shorter one too"):
        battery.evaluate(Toy(), DOCUMENTS, None, trained=1000, lengths=(400,), tail_tokens=50)


def test_the_crop_to_the_trained_length_is_always_measured() -> None:
    """A shorter one alone would be easier to beat: this model has nothing from past 50 tokens."""
    found = battery.evaluate(Copier(50), DOCUMENTS, None, trained=100, lengths=(60, 400), tail_tokens=50)
    assert found.tail.crop_lengths == (60, 100)
    assert "no better than cropping" in found.verdict


def test_gain_is_benefit_less_harm() -> None:
    found = tail.measure(Copier(250), DOCUMENTS, near=100, lengths=(100, 200, 400), tail=50)
    assert found.gain().mean == pytest.approx(found.benefit.mean - found.harm.mean, abs=1e-12)


def test_a_planted_crop_is_never_called_better() -> None:
    """A candidate that throws far text away, drawn 20 times: equal to cropping to the last bit."""

    class Crops(Copier):
        def nats(self, passage: Passage, scaling: object = None) -> np.ndarray:
            cropped = len(passage.tokens) > 60 and passage.scored < 60
            return super().nats(Passage.plain(passage.tokens[-60:], passage.scored) if cropped else passage, scaling)

    for seed in range(20):
        documents = [document(100 * seed + number, 160) for number in range(8)]
        report = battery.evaluate(Crops(160), documents, None, trained=60, lengths=(60, 160), tail_tokens=40)
        assert abs(report.tail.gain().mean) < 1e-6
        assert "no better than cropping" in report.verdict


def test_the_same_tokens_are_scored_at_every_length_from_position_0() -> None:
    engine = Toy()
    tail.measure(engine, DOCUMENTS[:2], near=100, lengths=(100, 200, 400), scaling=YaRN(factor=4, trained=100), tail=50)
    own = [passage for passage, _ in engine.asked if (passage.tokens[-50:] == DOCUMENTS[0].tokens[-50:]).all()]
    assert {len(passage.tokens) for passage in own} == {100, 200, 400}
    assert all(passage.positions[0] == 0 and passage.scored == 50 for passage, _ in engine.asked)
    assert {scaling is None for passage, scaling in engine.asked if len(passage.tokens) > 100} == {False}


@pytest.mark.parametrize(("length", "step"), [(64, 64), (64, 16), (7, 1), (400, 100), (3, 3), (64, 63)])
def test_every_token_is_scored_once(length: int, step: int) -> None:
    tokens = np.arange(400)
    scored = [token for passage in perplexity.cut(tokens, length, step) for token in passage.tokens[-passage.scored :]]
    assert scored == list(range(1, 400))
    assert all(len(passage.tokens) <= length for passage in perplexity.cut(tokens, length, step))
    if step < length:
        later = perplexity.cut(tokens, length, step)[1:]
        assert all(len(passage.tokens) - passage.scored >= length - step for passage in later)


def test_window_means_weigh_the_first_window_less() -> None:
    class Early(Toy):
        """The first 64 tokens of a passage from the start of a text are hard."""

        def likelihoods(self, passage: Passage, place: int) -> np.ndarray:
            hard = len(passage.tokens) == passage.scored + 1
            return np.full(50, 1 / 50) if hard else np.full(50, 0.5)

    found = perplexity.measure(Early(), DOCUMENTS[:1], 64, stride=16)
    assert found.mean != pytest.approx(found.window_mean, rel=0.05)
    assert found.tokens == 399


def test_far_tokens_are_pairs_seen_far_back_and_not_nearer() -> None:
    tokens = np.array([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 5, 6])
    assert far_places(tokens, tail=4, farther=7).tolist() == [1]
    assert far_places(tokens, tail=4, farther=5).tolist() == [1, 3]
    assert far_places(tokens, tail=4, farther=8).tolist() == []


class Finder(Toy):
    """Answers a question by the needle it read, if that is at most `reach` tokens back."""

    def __init__(self, reach: int) -> None:
        super().__init__(128)
        self.reach = reach

    def likelihoods(self, passage: Passage, place: int) -> np.ndarray:
        text = "".join(map(chr, passage.tokens[:place]))
        question = text[text.rfind(" The code of") :]
        before = text.rfind(question, 0, place - len(question))
        found = np.full(128, 0.1 / 128)
        if before >= 0 and place - before - len(question) <= self.reach:
            found[ord(text[before + len(question)])] += 0.9
        return found


def test_needles_of_a_tokenizer_that_puts_a_space_in_front() -> None:
    """SentencePiece as Llama 2 has it: digits one by one, a space before every text."""
    known: dict[str, int] = {}

    def encode(text: str) -> list[int]:
        pieces = re.findall("\u2581[A-Za-z]+|\u2581|[0-9]|[A-Za-z]+|[.]", "\u2581" + text.replace(" ", "\u2581"))
        return [known.setdefault(piece, len(known)) for piece in pieces]

    assert encode(" 12")[0] == encode(" ab")[0]
    assert needles.refusal(encode, 10_000) is None
    filler = np.zeros(4000, dtype=np.int64)
    tokens, places, order, values = needles._text(filler, encode, 3000, random.Random(0))
    assert len(tokens) == 3000
    assert len(set(values.tolist())) == needles.COUNT
    assert [tokens[place] for place in places] == [values[which] for which in order]


def test_where_needles_cannot_be_asked_for_it_is_said() -> None:
    def by_byte(text: str) -> list[int]:
        return list(text.encode())

    def by_word(text: str) -> list[int]:
        return [hash_of(word) for word in text.split()]

    assert "begin differently" in str(needles.refusal(by_byte, 10_000))
    assert needles.refusal(by_word, 10_000) is None
    least = needles.control(by_word)
    assert needles.refusal(by_word, least) is None
    assert f"take {least} tokens, and the longest text has {least - 1}" in str(needles.refusal(by_word, least - 1))


def test_needles_are_found_as_far_as_a_model_reaches() -> None:
    # One sign tells the values apart only if the first one does: letters and digits do.
    def words(text: str) -> list[int]:
        return [(hash_of(text[:3]) % 90) + 33] if len(text) <= 4 and text != "." else encode(text)

    fillers = [np.asarray(encode("the sea is wide and the sky is grey. " * 100)) for _ in range(3)]
    whole = needles.measure(Finder(10_000), fillers, words, 2000)
    assert whole.share == 1.0
    some = needles.measure(Finder(1000), fillers, words, 2000)
    depth = some.to_dict()["by_depth"]
    assert 0.1 < some.share < 0.9
    assert depth[0] < depth[-1] == 1.0
    blind = needles.measure(Toy(128), fillers, words, 2000)
    assert blind.share == pytest.approx(1 / needles.COUNT), "it says the same of every value: chance"


def test_a_tie_counts_as_its_share() -> None:
    """Half of the values are as likely as the right one, as logits in bfloat16 make them; or one is more likely."""

    class Rounded(Toy):
        def __init__(self, ahead: float) -> None:
            super().__init__(500)
            self.ahead = ahead

        def choices(self, passage: Passage, candidates: np.ndarray, scaling: object = None) -> np.ndarray:
            nats = np.full((passage.scored, len(candidates)), 2.0)
            nats[:, :8] = 1.0
            nats[:, 0] = self.ahead
            return nats

    def by_word(text: str) -> list[int]:
        return [known.setdefault(word, len(known)) for word in text.split()]

    known: dict[str, int] = {}
    fillers = [np.zeros(2000, dtype=np.int64)] * 2
    tied, ahead = (needles.measure(Rounded(value), fillers, by_word, 1000) for value in (1.0, 0.5))
    assert tied.found == [[1 / 8] * 8 + [0.0] * 8] * 2
    assert tied.share == pytest.approx(1 / 16)
    assert ahead.found == [[1.0] + [0.0] * 15] * 2


def test_needles_found_alike_in_every_pass_have_an_interval() -> None:
    """Wilson's over all of them, computed by hand: 64 of 64, and 4 of 64."""
    every, one = needles.Needles(10, [[1.0] * 16] * 4, []), needles.Needles(10, [[1.0] + [0.0] * 15] * 4, [])
    assert every.interval == pytest.approx((64 / (64 + 1.959964**2), 1.0), abs=1e-6)
    assert one.interval == pytest.approx((0.0246, 0.1500), abs=1e-4)
    apart = needles.Needles(10, [[1.0] * 16, [0.0] * 16], [])
    assert apart.interval == (0.0, 1.0)


def test_no_value_of_a_needle_is_a_bare_space() -> None:
    """Which a model may find likely whatever it was told. As GPT-2's with single digits has it: " 12" is " ", 1, 2."""

    def encode(text: str) -> list[int]:
        return [hash_of(piece) for piece in re.findall(" ?[a-z]+| |[0-9A-Z.]", text)]

    assert encode(" 12")[0] == encode(" ")[0]
    for seed in range(5):
        values = needles._values(encode, random.Random(seed))
        assert encode(" ")[0] not in [encode(value)[0] for value in values]


def test_no_needle_stands_where_a_text_begins() -> None:
    """Special tokens may take the place of the first two: BOS, or [gMASK] and <sop>."""

    class Low(random.Random):
        def random(self) -> float:
            return 0.0

    def by_word(text: str) -> list[int]:
        return [hash_of(word) for word in text.split()]

    tokens, *_ = needles._text(np.full(4000, 7), by_word, 2000, Low(0))
    assert tokens[:2].tolist() == [7, 7]


def hash_of(text: str) -> int:
    return sum((place + 3) * ord(sign) for place, sign in enumerate(text))


def test_what_was_measured_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "store.jsonl"
    first = Stored(Copier(100), file)
    passage = Passage.plain(DOCUMENTS[0].tokens, 50)
    own = first.nats(passage)
    yarn = first.nats(passage, YaRN(factor=2, trained=100))
    assert first.computed == 2
    file.write_text(file.read_text() + '{"key": "cut by a k')
    again = Stored(Copier(100), file)
    assert np.array_equal(again.nats(passage), own)
    assert np.array_equal(again.nats(passage, YaRN(factor=2, trained=100)), yarn)
    assert again.computed == 0
    again.nats(Passage.plain(DOCUMENTS[1].tokens, 50))
    third = Stored(Copier(100), file)
    assert len(third.known) == 3
    other = Stored(Copier(100), file)
    other.model = "other weights"
    other.nats(passage)
    assert other.computed == 1
    monkeypatch.setattr(store, "ANSWERS", store.ANSWERS + 1)
    later = Stored(Copier(100), file)
    later.nats(passage)
    assert later.computed == 1


def test_documents_are_long_enough_or_left_out(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("ab" * 200)
    (tmp_path / "short.txt").write_text("ab")
    (found,) = read([tmp_path], encode, longest=100, most=5)
    assert (found.name, len(found.tokens), found.bytes) == ("long.txt", 100, 100)
    with pytest.raises(ValueError, match=r"no document has 1,000 tokens \(2 are shorter\)"):
        read([tmp_path], encode, longest=1000, most=5)


def test_texts_are_read_as_data_prepare_reads_them(tmp_path: Path) -> None:
    """Files as some editors write them: with a byte order mark, and with a blank line at the end."""
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfplain")
    (tmp_path / "b.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "one"}\n\n{"text": "two"}\n \n')
    want = [("a.txt", "plain"), ("b.jsonl:1", "one"), ("b.jsonl:3", "two")]
    assert list(texts([tmp_path])) == want
    prepared = [item.texts[0] for file in sorted(tmp_path.iterdir()) for item in inputs.read(file, "text", "file")]
    assert [text for text in prepared if text] == [text for _, text in want]


@pytest.mark.parametrize(
    ("tokens", "positions", "scored", "says"),
    [
        (4, [0, 1, 2], 1, "one position a token"),
        (3, [0, 1, 2], 3, "nothing before it"),
        (3, [0, 2, 2], 1, "increase strictly"),
    ],
)
def test_a_passage_that_makes_no_sense_is_refused(tokens: int, positions: list[int], scored: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Passage(np.arange(tokens), np.asarray(positions), scored)
