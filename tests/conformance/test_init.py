"""`ropewalk init target`: what it writes, that it runs once filled in, and what it refuses."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Ropewalk, ropewalk

__all__ = ["ropewalk"]

RIGHT = "omega = 10_000 ** (-torch.arange(0, 64, 2, dtype=torch.float64) / 64)\n        return omega"
ROTATE = """angle = positions[:, None, :, None] * built
        a, b = x.double().chunk(2, dim=-1)
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1).to(x.dtype)"""


PAGE = Path(__file__).parents[2] / "docs" / "en" / "verify.md"


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("rope_target", "filled", "my_rope"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_it_says_what_to_do_next(ropewalk: Ropewalk, tmp_path: Path) -> None:
    answer = ropewalk("init", "target")
    assert answer.code == 0
    assert answer.stdout.splitlines() == [
        "rope_target.py",
        "Fill in (1), (2) and (3), then: ropewalk verify rope_target:target",
    ]
    text = (tmp_path / "rope_target.py").read_text(encoding="utf-8")
    assert "`ropewalk verify rope_target:target`" in text
    assert '"trained": 8192}, window' in text
    code = [line for line in text.splitlines()[1:] if line.strip() and not line.strip().startswith("#")]
    assert len(code) <= 10


def test_left_unfilled_nothing_is_held(ropewalk: Ropewalk) -> None:
    ropewalk("init", "target")
    answer = ropewalk("verify", "rope_target:target", "--only", "N1,C12")
    assert answer.code == 1
    assert "0 passed" in answer.stdout
    assert "fill in (2) of rope_target.py" in answer.stdout


def test_filled_in_it_holds(ropewalk: Ropewalk, tmp_path: Path) -> None:
    ropewalk("init", "target", "filled.py")
    file = tmp_path / "filled.py"
    text = file.read_text(encoding="utf-8")
    start, end = text.index("raise NotImplementedError"), text.index("\n\n    # (3)")
    text = text[:start] + RIGHT + text[end:]
    file.write_text(text.replace("return built(x, positions)", ROTATE), encoding="utf-8")
    answer = ropewalk("verify", "filled:target", "--only", "N1,N3,N7,N8,C1,C12")
    assert answer.code == 0, answer.stdout
    assert "6 passed" in answer.stdout


def test_nothing_is_written_over(ropewalk: Ropewalk, tmp_path: Path) -> None:
    (tmp_path / "rope_target.py").write_text("mine", encoding="utf-8")
    answer = ropewalk("init", "target")
    assert answer.code == 3
    assert "rope_target.py already exists and was not overwritten" in answer.stderr
    assert (tmp_path / "rope_target.py").read_text(encoding="utf-8") == "mine"


def test_a_directory_gets_the_usual_name(ropewalk: Ropewalk, tmp_path: Path) -> None:
    (tmp_path / "checks").mkdir()
    answer = ropewalk("init", "target", "checks")
    assert answer.stdout.splitlines()[-1].endswith("ropewalk verify checks.rope_target:target")
    assert (tmp_path / "checks" / "rope_target.py").exists()


def test_a_file_elsewhere_is_run_where_it_is(ropewalk: Ropewalk, tmp_path: Path) -> None:
    (tmp_path / "my-project").mkdir()
    answer = ropewalk("init", "target", "my-project/filled.py")
    assert answer.stdout.splitlines()[-1].endswith("cd my-project && ropewalk verify filled:target")
    assert ropewalk("init", "target", "other.py", "--quiet").stdout == "other.py\n"
    assert ropewalk("init", "target", "third.py", "--json").data == {
        "path": "third.py",
        "target": "third:target",
        "next": "ropewalk verify third:target",
    }


@pytest.mark.parametrize("name", ["my-target.py", "target.txt", "2nd.py"])
def test_a_name_that_cannot_be_imported_is_refused(ropewalk: Ropewalk, tmp_path: Path, name: str) -> None:
    answer = ropewalk("init", "target", name)
    assert answer.code == 3
    assert "not a module that Python can import" in answer.stderr
    assert not (tmp_path / name).exists()


def test_no_directory_is_made_up(ropewalk: Ropewalk) -> None:
    answer = ropewalk("init", "target", "nowhere/target.py")
    assert answer.code == 3
    assert "nowhere/target.py" in answer.stderr


def test_the_page_on_it_is_true(ropewalk: Ropewalk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files, its command, and the requirements that it shows as failed and passed."""
    text = PAGE.read_text(encoding="utf-8")
    planted, filled, fixed = re.findall(
        r"^```python\n# (?:my_rope|rope_target)\.py\n(.*?)^```$", text, re.DOTALL | re.M
    )
    said = re.findall(
        r"^\$ ropewalk verify rope_target:target\n(\d+ requirements.*?)  +[\d.]+ s$(.*?)^```$", text, re.DOTALL | re.M
    )
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # my_rope.py changes within a second
    ropewalk("init", "target", "template.py")
    template = (tmp_path / "template.py").read_text(encoding="utf-8")
    for line in filled.splitlines():
        assert line in template or "Rotary" in line
    (tmp_path / "rope_target.py").write_text(filled, encoding="utf-8")
    for code, (verdict, shown) in zip((planted, fixed), said, strict=True):
        (tmp_path / "my_rope.py").write_text(code, encoding="utf-8")
        answer = ropewalk("verify", "rope_target:target")
        assert answer.stdout.startswith(verdict)
        assert re.findall(r"^  ([NC]\d\d)  ", answer.stdout, re.M) == re.findall(r"^  ([NC]\d\d)  ", shown, re.M)
        for name in ("rope_target", "my_rope"):
            monkeypatch.delitem(sys.modules, name)
