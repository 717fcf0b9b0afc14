"""The errors that beginners make: each answer says what is wrong, where, and what to type."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

import ropewalk as rw
from tests.cli.conftest import Ropewalk

EXPERTS = Path(__file__).parents[1] / "checkpoints" / "published" / "gpt-oss-20b.json"
LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 100,
    "num_key_value_heads": 4, "num_hidden_layers": 1, "max_position_embeddings": 128, "rope_theta": 1e4,
    "rms_norm_eps": 1e-5,
}  # fmt: skip
TABLE = {
    "an unknown command": ("inspekt x", 2, "inspekt", "Did you mean 'inspect'?"),
    "an unknown kind": ("config show model.encoding=rotary", 3, "model.encoding", "'rotary'", "There are alibi, chain"),
    "a misspelt kind": ("verify rop", 2, "'rop'", "Did you mean rope?"),
    "an odd head width": (
        "config show model.width=60 model.heads=4", 3, "model.encoding", "rotary_width=15", "write rotary_width: 14",
    ),
    "heads that do not divide": (
        "config show model.width=100 model.heads=3", 3, "model.heads", "3 heads", "width 100", "write heads: 2",
    ),
    "a wrong path": ("inspect nowhere.json", 3, "nowhere.json", "does not exist", "give a model directory"),
    "a pickle": ("inspect model.pt", 3, "model.pt", "pickles", "weights_only=True", "pass the .safetensors"),
    "a directory of pickles": ("export pickled out --format gguf", 3, "pickled/pytorch_model.bin", "then pass"),
    "a GPU that is not there": ("train my.yaml --out run --device cuda", 5, "'cuda'", "--device cpu"),
    "a misspelt key": ("train my.yaml --out run train.stps=5", 3, "train.stps", "Did you mean train.steps?"),
    "a misspelt key in a file": ("train wrong.yaml --out run", 3, "wrong.yaml", "model.wdith", "model.width"),
    "a recipe that is not there": ("train decodr --out run", 3, "'decodr'", "Did you mean decoder?"),
    "a misspelt picture": ("plot wavelenghts", 2, "'wavelenghts'", "Did you mean wavelengths?"),
    "a value that is not there": ("export x out --format hff", 2, "'--format'", "'hff' is not one of 'hf', 'gguf'"),
    "a model that does not load": ("generate experts.json --prompt x", 3, "experts", "Generate with transformers"),
    "a module that is not there": ("verify no_such.module:target", 3, "no_such.module", "write pkg.module:target"),
}  # fmt: skip


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a GPU that is not there")
@pytest.mark.parametrize("mistake", TABLE)
def test_what_where_and_what_to_type(mistake: str, ropewalk: Ropewalk, tmp_path: Path) -> None:
    typed, code, *parts = TABLE[mistake]
    torch.save({"weight": torch.zeros(2)}, tmp_path / "model.pt")
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled" / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    (tmp_path / "pickled" / "pytorch_model.bin").write_bytes((tmp_path / "model.pt").read_bytes())
    (tmp_path / "my.yaml").write_text("data: {kind: task, task: copy, length: 16}\n", encoding="utf-8")
    (tmp_path / "experts.json").write_bytes(EXPERTS.read_bytes())
    (tmp_path / "wrong.yaml").write_text("model: {wdith: 64}\n", encoding="utf-8")
    answer = ropewalk(*typed.split())
    assert answer.code == code, answer.stderr
    for part in parts:
        assert part in answer.stderr
    assert "Traceback" not in answer.stderr
    assert "Value error" not in answer.stderr


def test_an_extra_that_is_not_installed(ropewalk: Ropewalk, monkeypatch: pytest.MonkeyPatch, recipe: Path) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "grain"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grain", None)
    answer = ropewalk("train", str(recipe), "--out", "run")
    assert answer.code == 5, answer.stderr
    assert 'pip install "ropewalk[data]"' in answer.stderr


def test_a_position_past_a_learned_table() -> None:
    config = rw.TransformerConfig(
        width=64, heads=4, layers=1, vocabulary=100, encoding={"kind": "learned", "longest": 16}
    )
    with pytest.raises(ValueError, match=r"position 19 may come.*ends at 16 positions; pass positions with limit=16"):
        rw.Transformer(config)(torch.zeros(1, 20, dtype=torch.int64))
