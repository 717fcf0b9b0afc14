"""`ropewalk inspect --html`: a page of one's own checkpoint, whatever its config holds."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import published
from tests.cli.conftest import Ropewalk
from tests.report.reading import Page, shown, stands_alone

NASTY = "</script><script>alert('x')</script>\"&\u202egpj\x1b[2J"


def test_a_checkpoints_own_page(ropewalk: Ropewalk, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    done = ropewalk("inspect", str(published.path("phi-4-mini")), "--html", str(out))
    assert done.code == 1
    assert "llama.cpp" in done.stdout, "the text is printed all the same"
    text = out.read_text(encoding="utf-8")
    stands_alone(text)
    assert "llama.cpp, SGLang, MLX-LM would not compute what the config says" in shown(text)
    assert "llama.cpp、SGLang、MLX-LM 的计算结果与配置不同" in shown(text, "zh-CN")
    assert Page(text).all("figure")[0]["id"]
    assert len(Page(text).all("figure")) == 4, "engines, wavelengths, scalings, angles never seen"


def test_two_checkpoints_are_not_a_page(ropewalk: Ropewalk, tmp_path: Path) -> None:
    path = str(published.path("gpt2"))
    done = ropewalk("inspect", path, "--html", str(tmp_path / "x.html"), "--against", path)
    assert done.code == 2
    assert "--against" in done.stderr


HOSTILE: dict[str, dict[str, Any]] = {
    "names": {"_name_or_path": NASTY, "rope_" + NASTY: NASTY, NASTY: NASTY, "architectures": [NASTY]},
    "huge base": {"rope_theta": 1e300},
    "small base": {"rope_theta": 1.0000001},
    "huge lengths": {"max_position_embeddings": 2**62},
    "tiny lengths": {"max_position_embeddings": 1},
    "huge factor": {"rope_scaling": {"rope_type": "yarn", "factor": 1e30, "original_max_position_embeddings": 7}},
    "huge window": {"sliding_window": 10**30, "use_sliding_window": True},
    "quotes": {"torch_dtype": "\"'<>&", "model_name": "'" * 5000},
    "kinds": {"rope_scaling": {"rope_type": NASTY, "factor": 2.0}},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_config_is_shown_and_does_nothing(ropewalk: Ropewalk, tmp_path: Path, case: str) -> None:
    """A page that stands alone and escapes everything, or an error that says what is wrong; never a traceback."""
    config = {**copy.deepcopy(published.config("qwen3-8b")), **HOSTILE[case]}
    folder = tmp_path / "<b onload=x>"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    out = tmp_path / "page.html"
    done = ropewalk("inspect", str(folder), "--html", str(out))
    assert done.code in (0, 1, 3)
    assert "Traceback" not in done.stderr
    assert out.exists() == (done.code != 3)
    if out.exists():
        text = out.read_text(encoding="utf-8")
        stands_alone(text)
        assert text.count("<script") == 1
        assert "<b onload" not in text
        assert not re.search("[\u202e\x1b]", text)
        assert "nan" not in re.findall(r"<path[^>]*>", text)
        assert len(text) < 1_000_000


def test_what_is_hostile_is_seen(ropewalk: Ropewalk, tmp_path: Path) -> None:
    config = {**published.config("qwen3-8b"), "rope_<i>wobble</i>": 1}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert ropewalk("inspect", "config.json", "--html", "page.html").code == 1
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "rope_&lt;i&gt;wobble&lt;/i&gt;" in text
    assert "rope_<i>wobble</i>" in shown(text)
