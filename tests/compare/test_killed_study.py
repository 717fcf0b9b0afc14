"""The campaign of killed studies, cut short: one kill of the command, one of a worker."""

from __future__ import annotations

from pathlib import Path

from campaigns import study_kills


def test_a_killed_study_ends_with_the_same_result(tmp_path: Path) -> None:
    found = study_kills.scenario(tmp_path, "local", kills=2, steps=80, arms=("rope", "none"), seeds=1)
    assert found["faults"] == []
    assert [said.split()[0] for said in found["killed"]] == ["driver", "worker"]
