"""The vocabulary in a GGUF file as a tokenizer of the `tokenizers` library.

    gpt2     byte-level BPE: tokens and merges stand in the file, and the name of the rule that cuts text into words
    llama    SentencePiece: tokens and scores. It joins the two neighbours whose token has the largest score, which is
             BPE with a merge for each way to halve a token, in the order of scores; unknown characters become bytes

The names of rules are those of llama.cpp, the expressions those of the tokenizers they stand for. As there, text is not
normalised first (Qwen's own tokenizer composes it by NFC). A name that is missing is an error here, not a guess that
lowers quality.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ropewalk.checkpoints.errors import BadInput, plain
from ropewalk.checkpoints.tokens.ends import Ends

if TYPE_CHECKING:
    import tokenizers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Of tokenizer.ggml.token_type."""

SPACE = "\u2581"
LONGEST_PIECE = 256
"""Characters of a SentencePiece token: each is halved in every way, which takes the square of its length. SentencePiece
itself makes them of at most 16 unless told otherwise."""

# Words, with the case of letters told apart or not; then digits; signs; line ends; spaces.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
REST_SLASH = REST.replace(r"[\r\n]*", r"[\r\n/]*")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LLAMA3 = SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + REST
QWEN2 = SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST
QWEN35 = QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*%s"
TEKKEN = CASED.replace("%s", "") + r"|\p{N}" + REST_SLASH
GPT4O = CASED.replace("%s", SHORT + "?") + r"|\p{N}{1,3}" + REST_SLASH
DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"


class Words(NamedTuple):
    """How text is cut before merging: by each expression in turn."""

    cuts: tuple[str, ...]
    whole_first: bool = False  # a word that is a token is taken as it is, whatever the merges say
    add_bos: bool = False


WORDS = {
    **dict.fromkeys(("gpt-2", "phi-2", "olmo", "mpt", "jais", "exaone4", "trillion", "mellum"), Words((GPT2,))),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), Words((r"\p{N}", GPT2))
    ),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"), Words((LLAMA3,), True, True)
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), Words((LLAMA3,))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan", "grok-2"), Words((QWEN2,))),
    "qwen35": Words((QWEN35,)),
    "tekken": Words((TEKKEN,), True, True),
    **dict.fromkeys(("gpt-4o", "llama4", "minimax-m2"), Words((GPT4O,))),
    "deepseek-v3": Words((r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", DEEPSEEK3)),
    "falcon": Words((r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]")),
    **dict.fromkeys(("bloom", "poro-chat", "gpt3-finnish"), Words((BLOOM,))),
    "default": Words((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
}


def build(metadata: Mapping[str, Any], where: str) -> tuple[tokenizers.Tokenizer, Ends]:
    """The tokenizer that tokenizer.ggml.* describe, and the ids that begin and end texts."""
    from tokenizers import AddedToken

    keys = TokenizerKeys(metadata, where)
    model = keys.text("model")
    tokens = keys.strings("tokens")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens):
        again = next(token for number, token in enumerate(tokens) if vocabulary[token] != number)
        raise keys.wrong("tokens", f"holds {plain(again, 60)!r} twice")
    types = keys.numbers("token_type", len(tokens)) or [NORMAL] * len(tokens)
    if model == "gpt2":
        words = _words(keys)
        inner = _byte_level(keys, vocabulary, words)
        ends = _ends(keys, len(tokens), words.add_bos, None, None)
    elif model == "llama":
        inner = _sentencepiece(keys, vocabulary, types)
        ends = _ends(keys, len(tokens), True, 1, 2)
    else:
        raise keys.wrong("model", f"is {plain(model, 60)!r}; gpt2 and llama are read", "use a model directory")
    # Found in a text before anything else is done to it. An empty name would be found everywhere.
    inner.add_tokens(
        [AddedToken(t, normalized=False) for t, kind in zip(tokens, types, strict=True) if kind == USER_DEFINED and t]
    )
    names = [t for t, kind in zip(tokens, types, strict=True) if kind in (CONTROL, UNKNOWN) and t]
    inner.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in names])
    return inner, ends


def _byte_level(keys: TokenizerKeys, vocabulary: dict[str, int], words: Words) -> tokenizers.Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    said = keys.strings("merges")
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in said)]
    for merge, (left, right) in zip(said, merges, strict=True):
        if left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
            raise keys.wrong("merges", f"{plain(merge, 60)!r} joins what is not in the vocabulary")
    inner = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=words.whole_first))
    cuts = [pre_tokenizers.Split(Regex(cut), "isolated") for cut in words.cuts]
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    inner.decoder = decoders.ByteLevel()
    return inner


def _words(keys: TokenizerKeys) -> Words:
    name = keys.text("pre")
    if name not in WORDS:
        known = ", ".join(sorted(WORDS))
        raise keys.wrong("pre", f"is {plain(name, 60)!r}, an unknown pre-tokenizer", f"known: {known}")
    return WORDS[name]


def _sentencepiece(keys: TokenizerKeys, vocabulary: dict[str, int], types: Sequence[int]) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores = keys.numbers("scores", len(vocabulary))
    if not scores:
        raise keys.wrong("scores", "is missing; it says which tokens are merged first")
    unknown = keys.number("unknown_token_id", len(vocabulary), 0)
    prefix = keys.flag("add_space_prefix", True)
    inner = Tokenizer(
        models.BPE(
            vocabulary,
            _merges(keys, vocabulary, scores, types),
            unk_token=next(token for token, number in vocabulary.items() if number == unknown),
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    spaces = normalizers.Replace(" ", SPACE)
    inner.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if prefix else spaces
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    inner.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return inner


def _merges(
    keys: TokenizerKeys, vocabulary: Mapping[str, int], scores: Sequence[float], types: Sequence[int]
) -> list[tuple[str, str]]:
    """Each way to halve each token, the tokens of the largest scores first."""
    normal = {token: number for token, number in vocabulary.items() if types[number] == NORMAL}
    longest = max(map(len, normal), default=0)
    if longest > LONGEST_PIECE:
        raise keys.wrong("tokens", f"holds one of {longest:,} characters, {LONGEST_PIECE} is the most")
    joined = [
        (-scores[number], vocabulary[left], vocabulary[right], left, right)
        for token, number in normal.items()
        for left, right in halves(token, vocabulary)
    ]
    return [(left, right) for *_, left, right in sorted(joined)]


def halves(token: str, vocabulary: Collection[str]) -> list[tuple[str, str]]:
    """Each way to make a token of two others."""
    cuts = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
    return [(left, right) for left, right in cuts if left in vocabulary and right in vocabulary]


def _ends(keys: TokenizerKeys, size: int, add_bos: bool, bos: int | None, eos: int | None) -> Ends:
    bos, eos = keys.number("bos_token_id", size, bos), keys.number("eos_token_id", size, eos)
    turns = (keys.number(name, size, None) for name in ("eot_token_id", "eom_token_id"))
    stops = tuple(number for number in (eos, *turns) if number is not None)
    add_bos = keys.flag("add_bos_token", add_bos and bos is not None)
    return Ends(bos, eos, stops, add_bos, keys.flag("add_eos_token", False))


class TokenizerKeys:
    """tokenizer.ggml.* with their types checked."""

    def __init__(self, metadata: Mapping[str, Any], where: str) -> None:
        self.metadata, self.where = metadata, where

    def wrong(self, name: str, problem: str, remedy: str = "convert the model to GGUF again") -> BadInput:
        return BadInput(self.where, f"tokenizer.ggml.{name}", problem, remedy)

    def _get(self, name: str, kind: type | tuple[type, ...], words: str) -> Any:
        value = self.metadata.get(f"tokenizer.ggml.{name}")
        if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            raise self.wrong(name, f"is {plain(value, 60)!r}, not {words}")
        return value

    def text(self, name: str) -> str:
        value = self._get(name, str, "a name")
        if value is None:
            raise self.wrong(name, "is missing; it says what kind of tokenizer this is")
        return value

    def flag(self, name: str, otherwise: bool) -> bool:
        value = self._get(name, bool, "true or false")
        return otherwise if value is None else value

    def number(self, name: str, below: int, otherwise: int | None) -> int | None:
        value = self._get(name, int, "a token")
        value = otherwise if value is None else value
        if value is not None and not 0 <= value < below:
            raise self.wrong(name, f"is {value}; the vocabulary has {below:,} tokens")
        return value

    def strings(self, name: str) -> list[str]:
        values = self._get(name, list, "a list") or []
        if not values or not all(isinstance(value, str) for value in values):
            raise self.wrong(name, "is missing or not a list of strings")
        return values

    def numbers(self, name: str, count: int) -> list[Any]:
        values = self._get(name, list, "a list") or []
        if values and (len(values) != count or not all(isinstance(value, int | float) for value in values)):
            raise self.wrong(name, f"is not {count:,} numbers, one for each token")
        return values
