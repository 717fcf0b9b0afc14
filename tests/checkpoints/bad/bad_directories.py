"""Directories that are wrong by hand: indexes that lead out, shards that disagree, and pickles under other names."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import tarfile
import zipfile
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from safetensors.numpy import save

from tests.checkpoints.bad.bad_files import CONFIG, MODEL, WEIGHTS, Case, Content, Folder, Hollow, Late, Link, Pipe
from tests.checkpoints.valid_files import LLAMA, SHARDS, llama, sharded, text

INDEX = "model.safetensors.index.json"
FIRST, SECOND = SHARDS
CANARY = "canary"


def with_index(change: Any) -> bytes:
    """The index with a change made to its weight_map."""
    index = json.loads(sharded()[INDEX])
    change(index["weight_map"])
    return text(index)


def renamed(shard: Any) -> bytes:
    """The index with the first shard under another name."""
    index = json.loads(sharded()[INDEX])
    place = {name: shard if file == FIRST else file for name, file in index["weight_map"].items()}
    return text(index | {"weight_map": place})


def indexes() -> Iterator[tuple[str, dict[str, Content | None]]]:
    """Changes to the sharded model; None takes a file away."""
    first = sharded()[FIRST]
    for name in ("../a.safetensors", "/etc/passwd", "/dev/zero", "..", ".", "", "a/b.safetensors", "a\\b.safetensors"):
        yield f"shard {name!r}", {INDEX: renamed(name)}
    for name in (
        f"{FIRST}\n",
        f" {FIRST}",
        "a\0.safetensors",
        "pytorch_model.bin",
        "C:a.safetensors",
        "\u0430.safetensors",
    ):
        yield f"shard {name!a}", {INDEX: renamed(name)}
    for name in (None, 3, [], {}, True, [FIRST]):
        yield f"shard {name}", {INDEX: renamed(name)}
    yield "shard name of a megabyte", {INDEX: Late(lambda: renamed("x" * (1 << 20) + ".safetensors"))}
    yield "shard name past the file system", {INDEX: renamed("x" * 300 + ".safetensors")}
    yield "shard missing", {FIRST: None}
    yield "shard empty", {FIRST: b""}
    yield "shard a folder", {FIRST: Folder()}
    yield "shard a pipe", {FIRST: Pipe()}
    yield "shard of a terabyte", {FIRST: Hollow(1 << 40)}
    for to in ("/dev/zero", "/dev/random", "/etc/passwd", "/proc/self/mem", "../outside", "nowhere", FIRST, "/"):
        yield f"shard a link to {to}", {FIRST: Link(to)}
    yield "shard a link to the other shard", {FIRST: Link(SECOND)}
    yield "shard a copy of the other", {FIRST: sharded()[SECOND]}
    yield "shard that is JSON", {FIRST: b"{}"}
    yield "shard that is a pickle", {FIRST: pickles()["protocol 2"]}
    yield "tensor in two shards", {FIRST: save({**dict(list(llama().items())[:10])})}
    yield "tensor in no shard", {INDEX: with_index(lambda place: place.update(ghost=FIRST))}
    yield "tensor not in the index", {INDEX: with_index(lambda place: place.pop("model.norm.weight"))}
    yield (
        "tensor said to be in the other shard",
        {INDEX: with_index(lambda place: place.update({"lm_head.weight": SECOND}))},
    )
    yield (
        "names that differ in case",
        {
            INDEX: with_index(lambda place: place.update({"lm_head.weight": FIRST.replace("model", "MODEL")})),
            FIRST.replace("model", "MODEL"): first,
        },
    )
    yield "single file beside the index", {"model.safetensors": save(llama())}
    for name, value in {"missing": GONE, "null": None, "a list": [], "empty": {}, "text": FIRST}.items():
        yield f"weight_map {name}", {INDEX: text({} if value is GONE else {"weight_map": value})}
    yield "index empty", {INDEX: b""}
    yield "index a list", {INDEX: b"[]"}
    yield "index a folder", {INDEX: Folder()}
    yield "index a pipe", {INDEX: Pipe()}
    yield "index a link to /dev/zero", {INDEX: Link("/dev/zero")}
    yield "index of a gigabyte", {INDEX: Hollow(1 << 30, b"{")}
    yield "index of a million lists", {INDEX: Late(lambda: b'{"weight_map": [' + b"[]," * 1_000_000 + b"[]]}")}
    yield "index of 30 MB", {INDEX: Late(lambda: b'{"weight_map": {"' + b"x" * 30_000_000 + b'": 3}}')}
    yield "index with a name twice", {INDEX: b'{"weight_map": {"a": "a.safetensors", "a": "b.safetensors"}}'}
    yield "config a pipe", {"config.json": Pipe()}
    yield "config a folder", {"config.json": Folder()}
    yield "config a link to /dev/zero", {"config.json": Link("/dev/zero")}
    yield "config that is a pickle", {"config.json": pickles()["protocol 2"]}
    yield "config missing", {"config.json": None}
    for to in ("/dev/zero", "/etc/passwd", "../outside", "nowhere", "model.safetensors"):
        yield f"single file a link to {to}", {**dict.fromkeys(sharded()), "model.safetensors": Link(to)}
    yield "single file a pipe", {**dict.fromkeys(sharded()), "model.safetensors": Pipe()}


GONE = object()


Q, K = "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight"


def disagreements() -> Iterator[tuple[str, dict[str, Any], dict[str, np.ndarray | None]]]:
    """Changes to the config and to the tensors after which they are of two models."""
    tensors = llama()
    for key, values in {
        "vocab_size": (39, 41, 0, -1, 10**9, 10**12, "40"),
        "hidden_size": (30, 64, 10**6),
        "num_hidden_layers": (1, 3, 10_000),
        "num_attention_heads": (1, 4, 32),
        "num_key_value_heads": (0, -1, 2, 3, 10**12, "1", [1]),
        "intermediate_size": (63, 65, 0, -1, 10**12, "64"),
        "head_dim": (8, 32, 1024),
    }.items():
        for value in values:
            yield f"{key} {value}", {key: value}, {}
    for key, value in {"rms_norm_eps": -1.0, "hidden_act": "banana", "tie_word_embeddings": True}.items():
        yield f"{key} {value}", {key: value}, {}
    yield "another architecture", {"model_type": "qwen2"}, {}
    for name in ("model.embed_tokens.weight", "model.norm.weight", Q, "lm_head.weight"):
        yield f"no {name}", {}, {name: None}
        yield f"{name} cut", {}, {name: tensors[name][:-1]}
        yield f"{name} with an axis more", {}, {name: tensors[name][..., None]}
        yield f"{name} of integers", {}, {name: np.ones(tensors[name].shape, np.int64)}
    yield "a tensor more", {}, {"model.layers.0.banana.weight": np.ones(3, np.float32)}
    yield "a layer more", {}, {Q.replace("0", "2"): tensors[Q]}
    yield "a layer of a number past all", {}, {Q.replace("0", "9" * 30): tensors[Q]}
    yield "queries and keys swapped", {}, {Q: tensors[K], K: tensors[Q]}
    yield (
        "down transposed",
        {},
        {"model.layers.0.mlp.down_proj.weight": tensors["model.layers.0.mlp.down_proj.weight"].T.copy()},
    )
    yield "other frequencies stored", {}, {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)}
    yield "frequencies of another size", {}, {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(7, np.float32)}
    yield (
        "frequencies of a layer past all",
        {},
        {"model.layers.999.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)},
    )


class Evil:
    """Leaves a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {CANARY}",)


@cache
def pickles() -> dict[str, bytes]:
    evil = {f"protocol {n}": pickle.dumps(Evil(), protocol=n) for n in range(6)}
    plain = {f"tensors, protocol {n}": pickle.dumps({"w": [1.0, 2.0]}, protocol=n) for n in range(6)}
    inner = evil["protocol 2"]
    return {
        **evil,
        **plain,
        "zip": zipped({"archive/data.pkl": inner, "archive/version": b"3\n"}),
        "zip with bytes before": b"\0" * 16 + zipped({"archive/data.pkl": inner}),
        "npz": zipped({"w.npy": numpy_file()}),
        "npy": numpy_file(),
        "tar": tarred(inner),
        "gzip": gzip.compress(inner, mtime=0),
        "gzip bomb": gzip.compress(b"\0" * 1_000_000, mtime=0),
        "7z": b"7z\xbc\xaf\x27\x1c\0\4" + inner,
        "HDF5": b"\x89HDF\r\n\x1a\n" + inner,
        "ELF": b"\x7fELF\2\1\1" + b"\0" * 9 + inner,
        "script": b"#!/bin/sh\ntouch canary\n",
        "python": b"import os\nos.system('touch canary')\n",
        "behind a brace": b"\x80\x02\x00\x00\x00\x00\x00\x00{" + inner,
        "old torch": pickle.dumps(119547037146038801333356, 2) + pickle.dumps(1001, 2) + inner,
        "in a safetensors length": inner[:8].ljust(8, b"\0") + b"{}" + inner,
    }


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def tarred(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        info = tarfile.TarInfo("pickle")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def numpy_file() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([Evil()], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def cases() -> Iterator[Case]:
    right: dict[str, Content] = {"config.json": text(LLAMA), **sharded()}
    for name, changes in indexes():
        files = {file: content for file, content in {**right, **changes}.items() if content is not None}
        yield Case(f"index: {name}", files, "bad", "", MODEL)
    wrong_total = text(json.loads(sharded()[INDEX]) | {"metadata": {"total_size": 7}})
    yield Case("index: total_size wrong", {**right, INDEX: wrong_total}, "valid", "", MODEL)
    for name, keys, tensors in disagreements():
        changed = {key: value for key, value in {**llama(), **tensors}.items() if value is not None}
        both: dict[str, Content] = {"config.json": text(LLAMA | keys), "model.safetensors": save(changed)}
        yield Case(f"disagree: {name}", both, "bad", "", MODEL)
    for name, content in pickles().items():
        for file in ("a.safetensors", "a.gguf", "a.bin"):
            yield Case(f"pickle: {name} as {file}", {file: content}, "bad", file, WEIGHTS)
        yield Case(f"pickle: {name} as config.json", {"config.json": content}, "bad", "config.json", CONFIG)
        inside = {"config.json": text(LLAMA), "pytorch_model.bin": content}
        yield Case(f"pickle: {name} in a directory", inside, "bad", "", MODEL)
        inside = {"config.json": text(LLAMA), "model.safetensors": content}
        yield Case(f"pickle: {name} as the directory's safetensors", inside, "bad", "", MODEL)
    inner = pickles()["protocol 2"]
    distributed: dict[str, Content] = {"config.json": text(LLAMA), ".metadata": inner, "__0_0.distcp": inner}
    yield Case("pickle: distributed checkpoint", distributed, "bad", "", MODEL)
