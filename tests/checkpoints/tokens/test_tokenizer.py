"""Tokenizers made here, of both kinds in GGUF files and of tokenizer.json: ids, text, streams, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Inner
from tokenizers import decoders, models, pre_tokenizers, processors

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.tokens.gguf import LONGEST_PIECE, WORDS
from ropewalk.checkpoints.tokens.tokenizer import Tokenizer, from_directory, from_gguf

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
SPACE, BREVE = "\u2581", "\u0120"  # how the two kinds write a space


def byte_level(**changes: Any) -> dict[str, Any]:
    merges = ["h e", "l l", "he ll", "hell o", f"{BREVE} w", "1 2", f"{BREVE} {BREVE}"]
    tokens = [*BYTES, *(merge.replace(" ", "") for merge in merges), "<|end|>", "<tool>", "<|begin|>"]
    types = [1] * (len(tokens) - 3) + [3, 4, 3]
    end = len(tokens) - 3
    keys = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "merges": merges, "token_type": types}
    keys |= {"eos_token_id": end, "bos_token_id": end + 2, **changes}
    return {f"tokenizer.ggml.{name}": value for name, value in keys.items() if value is not None}


def sentencepiece(**changes: Any) -> dict[str, Any]:
    raw = [f"<0x{number:02X}>" for number in range(256)]
    pieces = [SPACE, "a", "b", "c", "d", "ab", "bc", "cd", f"{SPACE}a", "abcd", SPACE * 2]
    scores = [-99.0] * 5 + [-5.0, -1.0, -2.0, -3.0, -4.0, -6.0]
    tokens = ["<unk>", "<s>", "</s>", *raw, *pieces, "<tool>"]
    types = [2, 3, 3, *[6] * 256, *[1] * len(pieces), 4]
    keys = {"model": "llama", "tokens": tokens, "scores": [0.0] * 259 + scores + [0.0], "token_type": types, **changes}
    return {f"tokenizer.ggml.{name}": value for name, value in keys.items() if value is not None}


def made(metadata: dict[str, Any]) -> Tokenizer:
    return from_gguf(SimpleNamespace(metadata=metadata, path=Path("made.gguf")))  # type: ignore[arg-type]


def spelled(tokenizer: Tokenizer, text: str, *, special: bool = False) -> list[str | None]:
    return [tokenizer.token(number) for number in tokenizer.encode(text, special=special)]


KINDS = {
    "gpt2": made(byte_level()),
    "llama": made(sentencepiece()),
    "no prefix": made(sentencepiece(add_space_prefix=False)),
}
every = pytest.mark.parametrize("tokenizer", KINDS.values(), ids=KINDS)


class TestByteLevel:
    def test_merges_in_their_order(self) -> None:
        assert spelled(KINDS["gpt2"], "hello world") == ["hello", f"{BREVE}w", "o", "r", "l", "d"]

    def test_special_and_user_tokens_stay_whole(self) -> None:
        tokenizer = KINDS["gpt2"]
        assert spelled(tokenizer, "he<|end|>he<tool>") == ["he", "<|end|>", "he", "<tool>"]
        ids = tokenizer.encode("he<|end|>he<tool>")
        assert (tokenizer.decode(ids), tokenizer.decode(ids, special=True)) == ("hehe<tool>", "he<|end|>he<tool>")

    def test_in_a_document_the_name_of_a_special_token_is_text(self) -> None:
        tokenizer = KINDS["gpt2"]
        ids = tokenizer.encode_document("he<|end|>he<tool>")
        end = tokenizer.encode("<|end|>", special=False)
        assert not {*ids} & {*end}
        assert tokenizer.decode(ids) == "he<|end|>he<tool>"
        assert [tokenizer.token(number) for number in ids][-1] == "<tool>"  # defined by the user, and not special
        assert tokenizer.encode("he<|end|>", special=False)[-1:] == end, "prompts are read as before"

    @pytest.mark.parametrize(("pre", "found"), [("gpt-2", ["12", "12"]), ("smollm", ["1", "2", "1", "2"])])
    def test_the_rule_cuts_digits(self, pre: str, found: list[str]) -> None:
        assert spelled(made(byte_level(pre=pre)), "1212") == found

    def test_bos_is_as_the_file_says(self) -> None:
        (bos,) = made(byte_level(add_bos_token=True)).encode("")
        assert KINDS["gpt2"].token(bos) == "<|begin|>"
        assert KINDS["gpt2"].encode("") == []
        assert made(byte_level(pre="llama-bpe")).encode("") == [bos]
        assert made(byte_level(pre="llama-bpe", add_bos_token=False)).encode("") == []

    @pytest.mark.parametrize("pre", WORDS)
    def test_every_rule_is_an_expression_that_loses_nothing(self, pre: str) -> None:
        tokenizer = made(byte_level(pre=pre, add_bos_token=False))
        text = "It's ABC def,  12345 \u4f60\u597d\n\n \t{x}/\r\nCAN'T \U0001f642\u0301"
        assert tokenizer.decode(tokenizer.encode(text)) == text


class TestSentencePiece:
    def test_the_largest_score_is_joined_first(self) -> None:
        # bc (-1) goes before ab (-5), after which nothing makes abcd of a, bc and d.
        assert spelled(KINDS["no prefix"], "abcd") == ["a", "bc", "d"]
        # Without it, cd (-2) and then ab (-5) make abcd (-4).
        scores = sentencepiece()["tokenizer.ggml.scores"]
        scores[259 + 6] = -50.0
        assert spelled(made(sentencepiece(scores=scores, add_space_prefix=False)), "abcd") == ["abcd"]

    def test_a_space_before_the_text_and_after_special_tokens(self) -> None:
        assert spelled(KINDS["llama"], "a a") == [f"{SPACE}a", f"{SPACE}a"]
        assert spelled(KINDS["llama"], " a") == [SPACE, f"{SPACE}a"]
        assert spelled(KINDS["llama"], "a</s>a<tool>a") == [f"{SPACE}a", "</s>", f"{SPACE}a", "<tool>", f"{SPACE}a"]
        assert spelled(KINDS["no prefix"], "a a") == ["a", f"{SPACE}a"]

    def test_unknown_characters_become_bytes(self) -> None:
        assert spelled(KINDS["no prefix"], "a\u4f60") == ["a", "<0xE4>", "<0xBD>", "<0xA0>"]

    def test_a_bos_unless_the_file_says_otherwise(self) -> None:
        assert KINDS["llama"].encode("a") == [1, *KINDS["llama"].encode("a", special=False)]
        assert 1 not in made(sentencepiece(add_bos_token=False)).encode("a")
        assert made(sentencepiece(add_eos_token=True)).encode("a")[-1] == 2

    def test_ids_of_ends(self) -> None:
        tokenizer = made(sentencepiece(bos_token_id=2, eos_token_id=1, eot_token_id=5))
        assert (tokenizer.bos, tokenizer.eos, tokenizer.stops, len(tokenizer)) == (2, 1, (1, 5), 271)


class Counted(str):
    """A token that counts what is copied out of it."""

    copied = 0

    def __getitem__(self, place: Any) -> str:
        part = super().__getitem__(place)
        Counted.copied += len(part)
        return part


class TestCost:
    """Halving tokens is work in proportion to the text, whoever wrote the file."""

    def copied(self, pieces: list[str]) -> int:
        Counted.copied = 0
        tokens = ["<unk>", "<s>", "</s>", "a", "b", *map(Counted, pieces)]
        made(sentencepiece(tokens=tokens, scores=[0.0] * len(tokens), token_type=[2, 3, 3, *[1] * (len(tokens) - 3)]))
        return Counted.copied

    def test_eight_times_the_text_is_eight_times_the_work(self) -> None:
        def texts(count: int) -> list[str]:
            return [f"{number:05}" + "ab" * (LONGEST_PIECE // 2 - 3) for number in range(count)]

        once, more = self.copied(texts(50)), self.copied(texts(400))
        assert 7.9 < more / once < 8.1
        assert once / sum(map(len, texts(50))) <= LONGEST_PIECE

    @pytest.mark.parametrize("length", [LONGEST_PIECE + 1, 20_000])
    def test_a_long_piece_is_refused_before_it_is_halved(self, length: int) -> None:
        with pytest.raises(BadInput, match=rf"tokens: holds one of {length:,} characters, {LONGEST_PIECE} is the most"):
            self.copied(["ab", "a" * length])
        assert Counted.copied == 0


class TestStream:
    @every
    @given(text=st.text(alphabet="ab cd\u4f60\U0001f642\n", max_size=12))
    def test_it_says_what_decode_says(self, tokenizer: Tokenizer, text: str) -> None:
        ids = tokenizer.encode(text)
        stream = tokenizer.stream()
        said = [stream.push(number) for number in ids]
        assert not any("\ufffd" in part for part in said)
        assert "".join(said) + stream.finish() == tokenizer.decode(ids) == text

    @given(data=st.data())
    def test_any_ids(self, data: st.DataObject) -> None:
        tokenizer = KINDS["gpt2"]
        ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=12))
        stream = tokenizer.stream()
        assert "".join([stream.push(number) for number in ids]) + stream.finish() == tokenizer.decode(ids)

    def test_a_character_comes_with_its_last_byte(self) -> None:
        stream = KINDS["no prefix"].stream()
        ids = KINDS["no prefix"].encode("\u4f60a", special=False)
        assert [stream.push(number) for number in ids] == ["", "", "\u4f60", "a"]
        stream.push(ids[0])
        assert (stream.finish(), stream.finish()) == ("\ufffd", "")

    @every
    @given(text=st.text(alphabet="ab cd\u4f60", min_size=2, max_size=12), cut=st.integers(0, 12))
    def test_what_follows_a_text(self, tokenizer: Tokenizer, text: str, cut: int) -> None:
        ids = tokenizer.encode(text)
        before, after = ids[:cut], ids[cut:]
        if "\ufffd" in tokenizer.decode(before):
            return  # cut inside of a character
        stream = tokenizer.stream(before)
        assert tokenizer.decode(before) + "".join(map(stream.push, after)) + stream.finish() == text

    def test_a_token_without_text_does_not_make_a_new_start(self) -> None:
        tokenizer = KINDS["llama"]
        a = tokenizer.encode("a", special=False)[0]
        stream = tokenizer.stream()
        assert [stream.push(number) for number in (1, a, 2, a, 1, a)] == ["", "a", "", " a", "", " a"]


WRONG = [
    ({"model": "bert"}, r"tokenizer\.ggml\.model: is 'bert'; gpt2 and llama are read"),
    ({"model": None}, r"tokenizer\.ggml\.model: is missing"),
    ({"model": 3}, r"tokenizer\.ggml\.model: is '3', not a name"),
    ({"pre": "nobody"}, r"tokenizer\.ggml\.pre: is 'nobody', an unknown pre-tokenizer; known: .*smollm"),
    ({"pre": None}, r"tokenizer\.ggml\.pre: is missing"),
    ({"merges": None}, r"tokenizer\.ggml\.merges: is missing"),
    ({"merges": ["h e", "e h"]}, r"tokenizer\.ggml\.merges: 'e h' joins what is not in the vocabulary"),
    ({"merges": ["h"]}, r"tokenizer\.ggml\.merges: 'h' joins"),
    ({"tokens": None}, r"tokenizer\.ggml\.tokens: is missing"),
    ({"tokens": ["a", "b", "a"]}, r"tokenizer\.ggml\.tokens: holds 'a' twice"),
    ({"token_type": [1]}, r"tokenizer\.ggml\.token_type: is not 266 numbers"),
    ({"eos_token_id": 9999}, r"tokenizer\.ggml\.eos_token_id: is 9999; the vocabulary has 266 tokens"),
    ({"eos_token_id": True}, r"tokenizer\.ggml\.eos_token_id: is 'True', not a token"),
    ({"bos_token_id": None, "add_bos_token": True}, r"add_bos_token.*is true of a token that is not given"),
]


@pytest.mark.parametrize(("changes", "says"), WRONG)
def test_a_wrong_vocabulary_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=rf"^made\.gguf: {says}"):
        made(byte_level(**changes))


def test_scores_are_needed() -> None:
    with pytest.raises(BadInput, match=r"tokenizer\.ggml\.scores: is missing"):
        made(sentencepiece(scores=None))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Letters are tokens; <s> stands before each text, and texts are cut to 3 tokens and padded to 8."""
    inner = Inner(models.BPE({letter: n for n, letter in enumerate("abcdefgh")}, []))
    inner.decoder = decoders.Fuse()
    inner.add_special_tokens(["<s>", "</s>", "<|turn|>"])
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 8)])
    inner.enable_truncation(3)
    inner.enable_padding(length=8)
    inner.save(str(tmp_path / "tokenizer.json"))
    write(
        tmp_path / "tokenizer_config.json", bos_token="<s>", eos_token={"content": "</s>"}, chat_template="{{ evil }}"
    )
    return tmp_path


def write(path: Path, **data: Any) -> None:
    path.write_text(json.dumps(data), encoding="utf-8")


class TestDirectory:
    def test_no_text_is_cut_or_padded(self, directory: Path) -> None:
        tokenizer = from_directory(directory)
        assert tokenizer.encode("abcdefgh") == [8, *range(8)]
        assert tokenizer.encode("ab") == [8, 0, 1]
        assert tokenizer.decode([8, 0, 1, 9]) == "ab"

    def test_ids_of_ends(self, directory: Path) -> None:
        tokenizer = from_directory(directory)
        assert (tokenizer.bos, tokenizer.eos, tokenizer.stops) == (8, 9, (9,))
        write(directory / "config.json", eos_token_id=7)
        assert from_directory(directory).stops == (7,)
        write(directory / "generation_config.json", eos_token_id=[9, 10, 9])
        assert from_directory(directory).stops == (9, 10)

    @pytest.mark.parametrize(
        ("flags", "ids"),
        [
            ({"add_bos_token": False}, [0]),
            ({"add_bos_token": True}, [8, 0]),
            ({"add_eos_token": True}, [8, 0, 9]),
            ({"add_eos_token": None}, [8, 0]),
        ],
    )
    def test_what_the_config_adds(self, directory: Path, flags: dict[str, Any], ids: list[int]) -> None:
        write(directory / "tokenizer_config.json", bos_token="<s>", eos_token="</s>", **flags)
        assert from_directory(directory).encode("a") == ids

    def test_a_vocabulary_without_latin_letters(self, directory: Path) -> None:
        Inner(models.BPE({"\u4e00": 0}, [])).save(str(directory / "tokenizer.json"))
        assert from_directory(directory).encode("\u4e00a") == [0]
        Inner(models.BPE({"b": 0}, [])).save(str(directory / "tokenizer.json"))
        with pytest.raises(BadInput, match="vocabulary: has none of the characters"):
            from_directory(directory)

    def test_without_tokenizer_json(self, directory: Path) -> None:
        (directory / "tokenizer.json").rename(directory / "tokenizer.model")
        with pytest.raises(BadInput, match=r"tokenizer\.json: is missing; tokenizer\.model alone .*save_pretrained"):
            from_directory(directory)

    @pytest.mark.parametrize("data", ["", "{}", "[]", '{"model": {"type": "BPE"}}', '{"version": "1.0", "model": 3}'])
    def test_a_broken_one(self, directory: Path, data: str) -> None:
        (directory / "tokenizer.json").write_text(data, encoding="utf-8")
        with pytest.raises(BadInput, match=r"tokenizer\.json: tokenizer: cannot be used"):
            from_directory(directory)

    def test_one_too_large(self, directory: Path) -> None:
        with (directory / "tokenizer.json").open("r+b") as file:
            file.truncate((100 << 20) + 1)
        with pytest.raises(BadInput, match=r"tokenizer\.json: size: is 104,857,601 bytes"):
            from_directory(directory)

    @pytest.mark.parametrize(
        ("file", "data", "says"),
        [
            ("generation_config.json", {"eos_token_id": "2"}, "eos_token_id: is '2'; a token is a whole number"),
            ("generation_config.json", {"eos_token_id": [2, -1]}, "eos_token_id: is .2, -1.; a token"),
            ("tokenizer_config.json", {"add_bos_token": "yes"}, "add_bos_token: is 'yes', not true or false"),
        ],
    )
    def test_wrong_ids(self, directory: Path, file: str, data: dict[str, Any], says: str) -> None:
        write(directory / file, **data)
        with pytest.raises(BadInput, match=says):
            from_directory(directory)
