"""`ropewalk extend` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Ropewalk


def test_writes_proves_and_says_how_to_serve(ropewalk: Ropewalk, checkpoint: Path) -> None:
    answer = ropewalk("extend", str(checkpoint), "longer", "--to", "512", "--scaling", "yarn")
    assert answer.code == 0, answer.stderr
    assert "vllm serve" in answer.stdout
    assert "within 0.0001 of ropewalk on the source" in answer.stdout
    told = json.loads(ropewalk("extend", str(checkpoint), "o", "--to", "512", "--scaling", "linear", "--json").stdout)
    assert told["scaling"]["kind"] == "linear"
    assert [one["engine"] for one in told["proofs"] if not one["not_run"]] == ["ropewalk", "transformers"]


def test_mistakes_are_answered(ropewalk: Ropewalk, checkpoint: Path) -> None:
    answer = ropewalk("extend", str(checkpoint), "longer", "--to", "512", "--scaling", "yarm", "--no-proof")
    assert answer.code in (2, 3)
    assert "yarn" in answer.stderr
    answer = ropewalk("extend", str(checkpoint), "longer", "--to", "2", "--scaling", "yarn", "--no-proof")
    assert answer.code == 3
    assert not Path("longer").exists()
    answer = ropewalk("extend", str(checkpoint), "longer", "--to", "512", "--scaling", "yarn", "--no-proof")
    assert "not proved" in answer.stdout
