"""A model type and an engine, added by CONTRIBUTING.md to the letter, in a copy of the package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.checkpoints.file_bytes import gguf

REPOSITORY = Path(__file__).parents[2]
CONFIG: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 16_384,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": False,
}
LOADED = """
import json, sys
import torch
import ropewalk

ours, theirs = (ropewalk.load(path) for path in sys.argv[1:])
tokens = torch.randint(97, (1, 40))
print(json.dumps([(ours(tokens) - theirs(tokens)).abs().max().item(), ours(tokens).std().item()]))
"""


def blocks(title: str) -> list[str]:
    """The Python of a section, as it is printed."""
    section = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8").partition(f"## {title}\n")[2]
    return re.findall(r"^```python\n(.*?)^```$", section.partition("\n## ")[0], flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    target = tmp_path / "src" / "ropewalk"
    shutil.copytree(REPOSITORY / "src" / "ropewalk", target)
    return target


def insert(file: Path, after: str, entry: str) -> None:
    """An entry of a dict at its place in the alphabet, or at the end where that is not sorted."""
    before, start, rest = file.read_text(encoding="utf-8").partition(after)
    names = re.findall(r'^    "([^"]+)":', rest.partition("\n}")[0], flags=re.MULTILINE)
    (own,) = re.findall(r'^    "([^"]+)":', entry, flags=re.MULTILINE)
    later = [name for name in names if name > own] if names == sorted(names) else []
    place = rest.index(f'    "{later[0]}":') if later else rest.index("\n}") + 1
    file.write_text(before + start + rest[:place] + entry + rest[place:], encoding="utf-8")


def python(package: Path, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": str(package.parent)},
        cwd=package.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr or done.stdout
    return done.stdout


def write(directory: Path, config: dict[str, Any], names: dict[str, str]) -> Path:
    """A small Llama under these names of tensors."""
    random = np.random.default_rng(0)
    sizes = {"embed_tokens": (97, 64), "lm_head": (97, 64), "q_proj": (64, 64), "k_proj": (32, 64), "v_proj": (32, 64)}
    sizes |= {"o_proj": (64, 64), "gate_proj": (96, 64), "up_proj": (96, 64), "down_proj": (64, 96)}
    attention = [f"self_attn.{letter}_proj" for letter in "qkvo"]
    parts = [*attention, "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "input_layernorm", "post_attention_layernorm"]
    layers = [f"model.layers.{i}.{part}" for i in range(CONFIG["num_hidden_layers"]) for part in parts]
    tensors = {}
    for name in ("model.embed_tokens", "model.norm", "lm_head", *layers):
        values = random.normal(scale=0.2, size=sizes.get(name.rpartition(".")[2], (64,)))
        before, _, last = name.rpartition(".")
        tensors[f"{before}.{names.get(last, last)}.weight".lstrip(".")] = values.astype(np.float32)
    directory.mkdir()
    save_file(tensors, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps({**CONFIG, **config}), encoding="utf-8")
    return directory


def test_a_model_type_is_one_row_and_one_file(package: Path, tmp_path: Path) -> None:
    row, family = blocks("Add a model type")
    insert(package / "checkpoints/architectures/rows/llama.py", "ROWS = {\n", row)
    (package / "checkpoints/families/cordage.py").write_text(family, encoding="utf-8")

    listed = json.loads(python(package, "-m", "ropewalk", "list", "architectures", "--json"))
    assert [entry["positions"] for entry in listed if entry["model_type"] == "cordage"] == ["rope"]

    names = {"q_proj": "query_proj", "k_proj": "key_proj", "v_proj": "value_proj"}
    ours = write(tmp_path / "ours", {"model_type": "cordage", "attention_span": 8}, names)
    theirs = write(tmp_path / "theirs", {"model_type": "mistral", "sliding_window": 8}, {})
    found = json.loads(python(package, "-m", "ropewalk", "inspect", str(ours), "--json"))
    assert {layer["window"] for layer in found["plans"]["decoder"]["layers"]} == {8}
    assert found["not_understood"] == {}

    difference, spread = json.loads(python(package, "-c", LOADED, str(ours), str(theirs)))
    assert spread > 0.1
    assert difference == 0

    sizes = {"block_count": 2, "context_length": 4096, "embedding_length": 64, "attention.head_count": 4}
    metadata = {"general.architecture": "cordage", **{f"cordage.{key}": value for key, value in sizes.items()}}
    file = tmp_path / "cordage.gguf"
    file.write_bytes(gguf(list(metadata.items())))
    found = json.loads(python(package, "-m", "ropewalk", "inspect", str(file), "--json"))
    assert found["model_type"] == "cordage"
    assert {layer["layout"] for layer in found["plans"]["decoder"]["layers"]} == {"pairs"}


def test_an_engine_is_one_file_and_one_line(package: Path, tmp_path: Path) -> None:
    engine, line = blocks("Add an engine")
    (package / "checkpoints/engines/splice.py").write_text(engine, encoding="utf-8")
    insert(package / "checkpoints/engines/__init__.py", "FILES = {\n", line)

    scaled = {**CONFIG, "model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    config = tmp_path / "config.json"
    config.write_text(json.dumps(scaled), encoding="utf-8")
    found = json.loads(python(package, "-m", "ropewalk", "inspect", str(config), "--json"))
    assert found["counted"][-1] == "splice"
    assert found["engines"]["splice"]["agrees"]

    config.write_text(json.dumps({**scaled, "rope_scaling": yarn}), encoding="utf-8")
    asked = ("-m", "ropewalk", "inspect", str(config), "--engines", "splice", "--json")
    found = json.loads(python(package, *asked, code=1))
    assert found["at_odds"] == ["splice"]
    assert found["engines"]["splice"]["departs"] == ["frequencies", "gains"]
    assert found["engines"]["splice"]["layers"][0]["frequencies"] == pytest.approx(
        [10_000 ** (-i / 8) for i in range(8)], rel=1e-12
    )

    config.write_text(json.dumps({**scaled, "rope_scaling": None, "model_type": "mistral"}), encoding="utf-8")
    assert json.loads(python(package, *asked, code=1))["engines"]["splice"]["departs"] == ["windows"]
