"""Models of our own (`model_type: ropewalk`) that are wrong by hand: configs that name code, sizes that fill a machine,
tensors that are another model's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from safetensors.torch import save

from tests.checkpoints.bad.bad_files import Case, Expected
from tests.checkpoints.valid_files import text

ENTRIES = ("sniff", "resolve", "inspect", "weights", "load")
CONFIG_ENTRIES = ("sniff", "resolve", "inspect")
SIZES: dict[str, Any] = {"vocabulary": 40, "width": 16, "heads": 2, "layers": 2, "hidden": 24}
EVIL = {"evil.py": b"raise SystemExit"}


@cache
def own(**settings: Any) -> tuple[dict[str, Any], bytes]:
    """The config.json and the tensors of a model."""
    import torch

    from ropewalk.models import Transformer, TransformerConfig

    config = TransformerConfig.model_validate({**SIZES, **settings})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        tensors = {name: tensor.clone() for name, tensor in Transformer(config).state_dict().items()}
    said = {"model_type": "ropewalk", "trained_length": 64, "bos_token_id": 0, "eos_token_id": 1}
    return {**said, "model": config.model_dump(mode="json")}, save(tensors)


def valid() -> Iterator[Case]:
    for settings in (
        {"encoding": "alibi"},
        {"stack": "encoder-decoder", "encoding": "sinusoidal"},
        {"encoding": "rope"},
    ):
        config, tensors = own(**settings)
        name = f"valid: own {settings.get('stack', 'decoder')}, {settings['encoding']}"
        yield Case(name, {"config.json": text(config), "model.safetensors": tensors}, "valid", "", ENTRIES)


def encodings() -> Iterator[tuple[str, Expected, Any]]:
    """What may stand where an encoding does."""
    for value in ("evil.mod", "evil", "evil.", ".mod", "os.path", "ropewalk.encodings.base", "ropewalk.cli.main"):
        yield f"kind {value}", "bad", value
        yield f"kind {value} in a mapping", "bad", {"kind": value}
    yield "kind in a chain", "bad", {"kind": "chain", "parts": ["alibi", "evil.mod"]}
    yield "kind in a chain of chains", "bad", {"kind": "chain", "parts": [{"kind": "chain", "parts": ["evil.mod"]}]}
    yield "an endless chain", "bad", {"kind": "chain", "parts": []}
    yield "encoding null", "either", None  # means none
    for value in (3, [], {}, "", "banana", "x" * 100_000, "\x1b[31m", "evil.mod; ls", {"kind": ["alibi"]}):
        yield f"encoding {str(value)[:12]!r}", "bad", value
    deep: Any = "alibi"
    for _ in range(29):
        deep = {"kind": "chain", "parts": [deep]}
    yield "chains of chains", "either", deep
    yield "a chain of a thousand", "either", {"kind": "chain", "parts": ["alibi"] * 1000}
    for key, value in (("base", 0), ("base", 1e300), ("scaling", {"kind": "evil.mod"}), ("rotary_width", 10**12)):
        yield f"rope {key} {value}", "bad", {"kind": "rope", key: value}
    for value in (0, -1, 10**9, 10**18, "8"):
        yield f"learned longest {value}", "either", {"kind": "learned", "longest": value}
        yield f"t5 buckets {value}", "either", {"kind": "t5", "buckets": value}


def models() -> Iterator[tuple[str, Expected, dict[str, Any]]]:
    """Changes inside `model`."""
    for name, expected, value in encodings():
        yield name, expected, {"encoding": value}
    kinds = {"x": {"encoding": "evil.mod"}}
    yield "kind of a layer", "bad", {"layers": {"count": 2, "pattern": ["x"], "kinds": kinds}}
    for key in ("vocabulary", "width", "heads", "key_heads", "head_width", "layers", "hidden", "types"):
        for value in (0, -1, 7, 10**4, 10**6, 10**9, 10**30, 1.5, "8", None, True, [], {}):
            if (key, value) not in (("types", 0), ("heads", True), ("key_heads", True)):
                expected: Expected = "either" if value in (7, True, "8") else "bad"
                yield f"{key} {value}", expected, {key: value}
    for layers in ({"count": 10**4}, {"count": 2, "pattern": ["a"]}, {"encoder": 2, "decoder": 2}, {"count": 10**9}):
        yield f"layers {layers}", "bad", {"layers": layers}
    yield "a key nobody knows", "bad", {"banana": 1}
    yield "stack banana", "bad", {"stack": "banana"}
    yield "another stack", "bad", {"stack": "encoder-decoder"}
    yield "norm null", "bad", {"norm": None}
    yield "eps 0", "bad", {"norm": {"eps": 0}}


def cases() -> Iterator[Case]:
    right, tensors = own(encoding="alibi")
    for name, expected, changes in models():
        whole = text({**right, "model": {**right["model"], **changes}})
        files = {"config.json": whole, "model.safetensors": tensors, **EVIL}
        yield Case(f"own: {name}", files, expected, "", ENTRIES)
    for value in (None, [], 3, "x", {}, [right["model"]]):
        files = {"config.json": text({**right, "model": value}), "model.safetensors": tensors}
        yield Case(f"own: model {str(value)[:9]}", files, "bad", "", ENTRIES)
    for value in (0, -1, 1.5, "64", True, 10**30, []):
        files = {"config.json": text({**right, "trained_length": value}), "model.safetensors": tensors}
        yield Case(f"own: trained_length {value}", files, "bad", "", ENTRIES)
    yield Case("own: config alone", {"config.json": text(right)}, "valid", "config.json", CONFIG_ENTRIES)
    yield Case("own: no tensors", {"config.json": text(right)}, "bad", "", ENTRIES)
    for name, settings in (
        ("of a wider model", {"width": 32}),
        ("of a deeper model", {"layers": 3}),
        ("of a model with another encoding", {"encoding": "t5"}),
    ):
        files = {"config.json": text(right), "model.safetensors": own(**{"encoding": "alibi", **settings})[1]}
        yield Case(f"own: tensors {name}", files, "bad", "", ENTRIES)
