"""A command line to call, in an empty directory."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from ropewalk.cli.main import app

CABLE = '''"""Cable: a bias that sags with distance (nobody, 2026).

    bias(h, i, j) = -slack |i - j|        arXiv:2601.00001
"""

from typing import Literal

from ropewalk.encodings.base import Claims, Encoding, distance


class Cable(Encoding):
    class Config(Encoding.Config):
        kind: Literal["my_pkg.cable"] = "my_pkg.cable"
        slack: float = 1.0

    claims = Claims(shift_invariant=True)

    def bias(self, table, head, q_index, k_index):
        return -self.config.slack * distance(q_index, k_index)
'''


class Answer(NamedTuple):
    code: int
    stdout: str
    stderr: str

    @property
    def data(self) -> Any:
        return json.loads(self.stdout)


Ropewalk = Callable[..., Answer]
built = cache(get_command)


@pytest.fixture
def ropewalk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ropewalk:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # Built once: typer's runner makes every command again for each call, in a tenth of a second.
    monkeypatch.setattr("typer.testing._get_command", built, raising=False)

    def call(*arguments: str) -> Answer:
        result = CliRunner().invoke(app, list(arguments), prog_name="ropewalk")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text("model:\n  width: 256\n  encoding: {kind: rope, base: 5e5}\n", encoding="utf-8")
    return path


@pytest.fixture
def cable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An encoding outside the package, and its kind."""
    (tmp_path / "my_pkg").mkdir()
    (tmp_path / "my_pkg" / "cable.py").write_text(CABLE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "my_pkg", raising=False)
    monkeypatch.delitem(__import__("sys").modules, "my_pkg.cable", raising=False)
    return "my_pkg.cable"


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random Llama, saved by transformers, whose tokens are bytes; the last, </s>, ends a text."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    path = tmp_path_factory.mktemp("checkpoint")
    inner = Tokenizer(models.BPE({byte: n for n, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["</s>"])
    inner.save(str(path / "tokenizer.json"))
    config = transformers.LlamaConfig(
        vocab_size=257, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, bos_token_id=None, eos_token_id=256,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that `ropewalk train decoder --fast` leaves: checkpoints of steps 1 and 2, and an export."""
    from ropewalk.cli.recipes import located
    from ropewalk.overrides import load
    from ropewalk.train.config import Recipe
    from ropewalk.train.fast import fast

    return fast(load(Recipe, located("decoder")), tmp_path_factory.mktemp("trained") / "run").out
