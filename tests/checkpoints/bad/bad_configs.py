"""config.json files that are wrong by hand: positions that mean nothing, sizes that fill a machine, JSON that lies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.checkpoints.bad.bad_files import CONFIG, Case, Content, Expected, Hollow, Late
from tests.checkpoints.valid_files import CONFIGS, LLAMA, LLAMA3, YARN, text

LONGROPE = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [1.5] * 8}
GONE = object()
"""A key that is taken out."""
NAN, INFINITE = float("nan"), float("inf")


def rope() -> Iterator[tuple[str, Expected, dict[str, Any]]]:
    """Changes to a right config that make its positions wrong; `either` where a reader may find a meaning."""
    for value in (0, -1e4, NAN, INFINITE, -INFINITE, 1e300, 0.5, "10000", True, [1e4], {}):
        yield f"rope_theta {value}", "bad", {"rope_theta": value}
    yield "rope_theta null", "either", {"rope_theta": None}
    yield "rope_theta 1", "bad", {"rope_theta": 1}
    for kind in ("linear", "dynamic", "yarn", "llama3"):
        right = {"yarn": YARN, "llama3": LLAMA3}.get(kind, {"rope_type": kind, "factor": 2.0})
        for value in (0, -8, NAN, 1e30, "8", True, [8.0], GONE):
            yield f"{kind} factor {said(value)}", "bad", scaled(right, factor=value)
        yield f"{kind} factor 0.5", "either", scaled(right, factor=0.5)
        yield f"{kind} with a key nobody knows", "bad", scaled(right, banana=1)
    for key in ("original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor", "mscale"):
        for value in (0, -1, NAN, "32", [1], 1e30):
            # beta_slow 0 has a meaning: no dimension is left alone.
            expected = "either" if (key, value) in (("beta_slow", 0), ("mscale", 0), ("attention_factor", 0)) else "bad"
            yield f"yarn {key} {value}", expected, scaled(YARN, **{key: value})
    yield "yarn betas the wrong way round", "bad", scaled(YARN, beta_fast=1.0, beta_slow=32.0)
    yield "yarn truncate text", "bad", scaled(YARN, truncate="no")
    yield "yarn original past the longest", "either", scaled(YARN, original_max_position_embeddings=1 << 20)
    yield "yarn factor and lengths disagree", "either", scaled(YARN, factor=3.0)
    for key in ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings"):
        for value in (0, -1, NAN, "1", GONE):
            yield f"llama3 {key} {said(value)}", "bad", scaled(LLAMA3, **{key: value})
    yield "llama3 factors the wrong way round", "bad", scaled(LLAMA3, low_freq_factor=4.0, high_freq_factor=1.0)
    # Llama 4 is published so: no band lies between.
    yield "llama3 factors equal", "valid", scaled(LLAMA3, low_freq_factor=2.0, high_freq_factor=2.0)
    for kind in ("banana", "", 3, None, [], {}, True, "Yarn", "x" * 100_000, "\x1b[31m"):
        expected: Expected = "either" if kind is None else "bad"
        yield f"rope_type {str(kind)[:9]!r}", expected, {"rope_scaling": {"rope_type": kind, "factor": 2.0}}
    yield "type and rope_type disagree", "bad", scaled(YARN, type="linear")
    for value in ([], "yarn", True, 3, [YARN]):
        yield f"rope_scaling {str(value)[:9]}", "either" if value == [] else "bad", {"rope_scaling": value}
        yield f"rope_parameters {str(value)[:9]}", "either" if value == [] else "bad", {"rope_parameters": value}
    yield "both generations disagree", "bad", {"rope_scaling": YARN, "rope_parameters": {**LLAMA3, "rope_theta": 1e4}}
    yield "rope_theta twice", "bad", {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    yield "per layer, a type missing", "bad", per_layer({"full_attention": {"rope_theta": 1e4}})
    yield "per layer, a number", "bad", per_layer({"full_attention": 3, "sliding_attention": {"rope_theta": 1e4}})
    yield "per layer, a type nobody knows", "bad", per_layer({"banana": {"rope_theta": 1e4}})
    yield "layer_types too short", "bad", {"layer_types": ["full_attention"]}
    yield "layer_types unknown", "bad", {"layer_types": ["full_attention", "banana"]}
    yield "layer_types text", "bad", {"layer_types": "full_attention"}
    yield "layer_types numbers", "bad", {"layer_types": [1, 2]}
    for value in (0, -0.5, 1.5, NAN, "0.5", [0.5], 1e-9):
        yield f"partial_rotary_factor {value}", "bad", {"partial_rotary_factor": value}


def longrope() -> Iterator[tuple[str, Expected, dict[str, Any]]]:
    for key in ("short_factor", "long_factor"):
        for what, value in {
            "missing": GONE,
            "null": None,
            "too short": [1.0] * 7,
            "too long": [1.0] * 9,
            "empty": [],
            "negative": [-1.0] * 8,
            "zero": [0.0] * 8,
            "NaN": [NAN] * 8,
            "text": ["1"] * 8,
            "nested": [[1.0]] * 8,
            "true": [True] * 8,
            "a number": 8.0,
            "400,000 long": [1.0] * 400_000,
        }.items():
            yield f"longrope {key} {what}", "bad", scaled(LONGROPE, **{key: value})
    yield "longrope without a trained length", "either", {"original_max_position_embeddings": GONE}
    for value in (0, -1, "128", NAN, [128]):
        yield f"longrope original {value}", "bad", {"original_max_position_embeddings": value}


def sizes() -> Iterator[tuple[str, Expected, dict[str, Any]]]:
    wrong = (0, -1, -2, 2.5, "2", True, [2], {}, NAN, 1e30, 10**7, 10**12, 2**63, 2**64, 10**39)
    for key in ("num_hidden_layers", "num_attention_heads", "hidden_size", "max_position_embeddings"):
        for value in wrong:
            long = key == "max_position_embeddings" and value in (10**7, 10**12)
            yield f"{key} {value}", "either" if long else "bad", {key: value}
        yield f"{key} missing", "either" if key == "max_position_embeddings" else "bad", {key: GONE}
    for value in (0, -2, 15, 2.5, "16", True, [16], 1e30, 10**12, 2**63):
        yield f"head_dim {value}", "bad", {"head_dim": value}
    yield "heads that do not divide the width", "bad", {"num_attention_heads": 3}
    for key in ("vocab_size", "num_key_value_heads", "intermediate_size", "sliding_window"):
        for value in (0, -1, "2", 10**12, [1], NAN):
            yield f"{key} {value}", "either", {key: value}


def names() -> Iterator[tuple[str, Expected, dict[str, Any]]]:
    for value in (GONE, None, 3, [], "banana", "", "../llama", "os", "x" * 100_000, "\x1b[31m", {"a": 1}):
        yield f"model_type {said(value)[:12]!r}", "bad", {"model_type": value}
    code = {"AutoModelForCausalLM": "evil.Evil", "AutoConfig": "evil.Config"}
    yield "auto_map", "either", {"auto_map": code}
    yield "attention implementation from a repository", "either", {"_attn_implementation_internal": "evil/kernel"}
    yield "trust_remote_code", "either", {"trust_remote_code": True, "auto_map": code}


def texts() -> Iterator[tuple[str, Content]]:
    right = text(LLAMA)
    yield "empty", b""
    yield "one blank", b" "
    for value in (b"null", b"[]", b"3", b'"llama"', b"[1, 2]", b"{}", b"{", b"}", b"[" * 100, b"{" * 100):
        yield f"{value[:9].decode()} x {len(value)}", value
    yield "cut", right[:-3]
    yield "more behind", right + b"{}"
    yield "byte order mark", b"\xef\xbb\xbf" + right
    yield "UTF-16", right.decode().encode("utf-16")
    yield "not UTF-8", right.replace(b"llama", b"ll\xffma")
    yield "NUL", right.replace(b"llama", b"ll\0ma")
    yield "key twice", right.replace(b'"model_type"', b'"rope_theta": 1e6, "model_type"')
    yield "half a surrogate pair", right.replace(b"llama", b"\\ud83d")
    yield "single quotes", right.replace(b'"', b"'")
    yield "comment", b"// a comment\n" + right
    yield "trailing comma", right.rstrip(b"}\n") + b",}"
    for number in (
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"-1e999",
        b"9" * 5000,
        b"0x10",
        b"01",
        b"+1",
        b"1_000",
    ):
        yield f"number {number[:9].decode()} x {len(number)}", right.replace(b"10000.0", number)
    yield "depth 65", right.replace(b"10000.0", b"[" * 65 + b"]" * 65)
    yield "depth 200,000", Late(lambda: right.replace(b"10000.0", b"[" * 200_000 + b"]" * 200_000))
    yield (
        "depth 200,000 of objects",
        Late(lambda: right.replace(b"10000.0", b'{"a":' * 200_000 + b"1" + b"}" * 200_000)),
    )
    yield "a million empty lists", Late(lambda: right.replace(b"10000.0", b"[" + b"[]," * 1_000_000 + b"[]]"))
    yield "a million equal keys", Late(lambda: b"{" + b'"a":1,' * 400_000 + b'"a":1}')
    yield "5 MB and a byte", Late(lambda: right + b" " * (5 << 20))
    yield "a gigabyte", Hollow(1 << 30, right)
    yield "a terabyte", Hollow(1 << 40, right)
    yield "text of 4 MB where a number is", Late(lambda: right.replace(b"10000.0", b'"' + b"9" * 4_000_000 + b'"'))
    yield "text of 4 MB of quotes", Late(lambda: right.replace(b"10000.0", b'"' + b'\\"' * 2_000_000 + b'"'))


def said(value: Any) -> str:
    return "missing" if value is GONE else str(value)


def scaled(right: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"rope_scaling": changed(right, changes)}


def per_layer(parameters: dict[str, Any]) -> dict[str, Any]:
    return {"model_type": "gemma3_text", "layer_types": ["full_attention", "sliding_attention"]} | {
        "rope_parameters": parameters,
        "rope_theta": GONE,
        "head_dim": 16,
        "sliding_window": 64,
    }


def changed(right: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**right, **changes}.items() if value is not GONE}


def cases() -> Iterator[Case]:
    for group, base, given in (
        ("rope", LLAMA, rope()),
        ("rope", CONFIGS["phi3"], longrope()),
        ("sizes", LLAMA, sizes()),
        ("names", LLAMA, names()),
    ):
        for name, expected, changes in given:
            whole = json.dumps(changed(base, changes)).encode()
            yield Case(f"{group}: {name}", {"config.json": whole}, expected, "config.json", CONFIG)
    for name, content in texts():
        yield Case(f"json: {name}", {"config.json": content}, "bad", "config.json", CONFIG)
