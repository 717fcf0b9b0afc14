"""`ropewalk eval` as a command."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ropewalk.cli.main import app
from tests.checkpoints.small_models import make_gguf


def test_bits_per_byte_are_of_the_bytes_that_were_read(tmp_path: Path) -> None:
    """Of texts whose beginning has longer tokens than the rest."""
    file = make_gguf("llama", tmp_path)
    for n in range(2):
        (tmp_path / f"{n}.txt").write_text(" the" * 200 + "xyzq" * 500 + str(n), encoding="utf-8")
    texts = [part for n in range(2) for part in ("--text", str(tmp_path / f"{n}.txt"))]
    command = ["eval", str(file), *texts, "--lengths", "60,120", "--tail", "16", "--json"]
    done = CliRunner().invoke(app, [*command, "--store", str(tmp_path / "kept.jsonl")])
    assert done.exit_code == 0, done.output
    for one in json.loads(done.stdout)["perplexity"]:
        assert one["bits_per_byte"] == pytest.approx(one["nats"] * 119 / (120 * 4) / math.log(2))
