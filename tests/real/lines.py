"""Several hundred lines to tokenise: prose, Chinese, code, emoji, digits, runs of spaces, and a reproducible rest."""

from __future__ import annotations

import inspect
import random
import textwrap
import unicodedata

WRITTEN = (
    "The quick brown fox jumps over the lazy dog.",
    "It's what they've said: we'll see, I'd wager; DON'T, WE'LL, I'M.",
    "Call me Ishmael. Some years ago -- never mind how long precisely -- having little or no money in my purse,",
    "e.g. 3.14159, 1,000,000, 2024-11-15T05:26:00Z, 0x1F, 1e-9, v5.22.2, \u00bd, \u2167, \u0663\u0664, x\u00b2",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u4f4d\u7f6e\u7f16\u7801\u4e0e\u65cb\u8f6c\u4f4d\u7f6e\u7f16\u7801\u3002",
    "\u8ba9\u7814\u7a76\u4eba\u5458\u7ede\u5c3d\u8111\u6c41\u7684Transformer\u4f4d\u7f6e\u7f16\u7801\uff082021\uff09",
    "\u7d05\u6a13\u5922: \u6eff\u7d19\u8352\u5510\u8a00\uff0c\u4e00\u628a\u8f9b\u9178\u6dda\u3002",
    "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c \uc548\ub155\ud558\uc138\uc694",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!",
    "na\u00efve caf\u00e9 cafe\u0301 \u00dcber Stra\u00dfe \u0130stanbul \u01c5 \ufb01",
    "\U0001f642\U0001f469\u200d\U0001f469\u200d\U0001f467\U0001f3fd \u2764\ufe0f \U0001f1e8\U0001f1f3 ok\U0001f642ok",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] << 2; } // \u00e9",
    "\tif x == 1:\n\t\treturn {'a': [1, 2], \"b\": None}\r\n\r\n",
    "<div class=\"a\">&nbsp;</div> https://example.org/a?b=c&d=%20#e foo_bar.baz() $HOME ~/x C:\\y",
    "", " ", "  ", "   ", "\n", "\n\n", " \n ", "\t", "\t\t", "\r\n", "a ", " a", "  a", "a  b   c    d", "a\n\n\nb",
    "\u00a0", "\u3000\u4f60", "a\u200bb", "\u2581", "a\u2581b", "\ufeffx", "\x00", "\x07\x1b[0m", "\ufffd",
    "\U0010ffff",
    "=" * 7, "=" * 80, "-" * 33, "a" * 50, "ab" * 30, "ha" * 17, "0" * 13, "." * 5, "!?" * 9,
    "\U0001f642" * 5, "\u7684" * 9,
    "aaa aaaa aaaaa aaaaaa", "mmmm hmmmm zzzzzzz", "((((()))))", "//////", "#####", "______", "\\\\\\",
    *(" " * n + "x" + " " * n for n in range(3, 36)), *("\n" * n + "x" for n in range(2, 20)),
    *("\t" * n for n in range(3, 12)),
)  # fmt: skip
SPECIAL = ("<|im_start|>user\nHi<|im_end|>\n", "<s>a</s> b", "a<|endoftext|>  b", "<unk>x", "<bos>x<eos>", "<think> a")


def lines() -> list[str]:
    prose = [line for module in (inspect, textwrap, random) for line in inspect.getsource(module).splitlines()[:90]]
    return [*WRITTEN, *dict.fromkeys(prose), *_words(150), *_characters(150)]


def _words(count: int) -> list[str]:
    """Words of the written lines in another order, with other spaces and without."""
    chance = random.Random(1)
    words = [word for line in WRITTEN for word in line.split() if len(word) < 20]
    return [
        "".join(chance.choice(words) + chance.choice(["", " ", " ", "  ", "\n"]) for _ in range(12))
        for _ in range(count)
    ]


def _characters(count: int) -> list[str]:
    """Assigned characters of all planes."""
    chance = random.Random(2)
    assigned = [chr(n) for n in range(0x20, 0x2FFFF) if unicodedata.category(chr(n)) not in ("Cn", "Cs", "Co")]
    near = assigned[:3000]
    return ["".join(chance.choice(near if chance.random() < 0.7 else assigned) for _ in range(8)) for _ in range(count)]
