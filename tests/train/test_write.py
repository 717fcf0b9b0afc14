"""What a run exports: a Llama that transformers loads, or a directory of our own that `ropewalk.load` reads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.load.model import load
from ropewalk.checkpoints.load.native import Trained
from ropewalk.checkpoints.resolve.native import why_not_llama
from ropewalk.distributed.world import World
from ropewalk.models import Transformer, preset
from ropewalk.scaling import Dynamic, LongRoPE, Proportional, Scaling, YaRN
from ropewalk.train.checkpoint.model_directory import POINTS, write_model
from ropewalk.train.objective import Learner

SMALL = {"vocabulary": 53, "width": 32, "heads": 4, "head_width": 8, "key_heads": 2, "hidden": 64}
TOKENS = torch.randint(0, 53, (2, 40), generator=torch.Generator().manual_seed(0))


def written(model: Learner, out: Path) -> Path:
    return write_model(model, out, World.start(), Trained(64))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("scaling", [None, YaRN(factor=2, trained=32)])
def test_a_llama_is_transformers(tmp_path: Path, fused: bool, scaling: YaRN | None) -> None:
    from transformers import LlamaForCausalLM

    torch.manual_seed(0)
    encoding = {"kind": "rope", "base": 5e4, "scaling": scaling and scaling.model_dump()}
    model = Learner(preset("llama", **SMALL, layers=2, fused=fused, encoding=encoding)).eval()
    assert why_not_llama(model.config) is None
    out = written(model, tmp_path / "export")
    want = Transformer.forward(model, TOKENS)
    theirs, loading = LlamaForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not any(loading[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.no_grad():
        torch.testing.assert_close(theirs(TOKENS).logits, want, rtol=0, atol=2e-5)
        torch.testing.assert_close(load(out)(TOKENS), want, rtol=0, atol=2e-5)


def test_a_llama_of_dynamic_ntk_is_scaled_from_where_it_was(tmp_path: Path) -> None:
    """transformers starts from max_position_embeddings, which is not the length of the training (64 here)."""
    from transformers import LlamaForCausalLM

    torch.manual_seed(0)
    encoding = {"kind": "rope", "scaling": Dynamic(factor=2, trained=32).model_dump()}
    model = Learner(preset("llama", **SMALL, layers=2, encoding=encoding)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    out = written(model, tmp_path / "export")
    far = torch.randint(0, 53, (1, 200), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        want = Transformer.forward(model, far)
        torch.testing.assert_close(LlamaForCausalLM.from_pretrained(out)(far).logits, want, rtol=0, atol=2e-4)
        torch.testing.assert_close(load(out)(far), want, rtol=0, atol=2e-4)


@pytest.mark.parametrize(
    ("scaling", "why"),
    [
        (YaRN(factor=4, trained=32, dialect="deepseek", mscale=1, mscale_all_dim=1), "yarn multiplies scores by 1.29"),
        (Dynamic(factor=2, trained=32, length=64), "dynamic is that of 64 tokens for every text"),
        (LongRoPE(short=(1,) * 4, long=(2,) * 4, trained=32, factor=2, length=8), "longrope is that of 8 tokens"),
        (YaRN(factor=4, trained=32, ramp="paper"), "transformers has no key for the paper ramp"),
        (Proportional(fraction=0.5), "transformers 4 has no proportional rope type"),
    ],
    ids=["gain on scores", "dynamic at one length", "longrope at one length", "paper ramp", "proportional"],
)
def test_a_scaling_that_no_llama_states_is_our_own(tmp_path: Path, scaling: Scaling, why: str) -> None:
    """Written as a Llama, these would be other numbers, or an error after the last step."""
    torch.manual_seed(0)
    encoding = {"kind": "rope", "scaling": scaling.model_dump()}
    model = Learner(preset("llama", **SMALL, layers=2, encoding=encoding)).eval()
    assert why in str(why_not_llama(model.config))
    again = load(written(model, tmp_path / "export"))
    with torch.no_grad():
        assert torch.equal(again(TOKENS), Transformer.forward(model, TOKENS))


@pytest.mark.parametrize("name", ["t5", "bert", "bloom", "vaswani2017"])
def test_anything_else_is_our_own(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    sizes = SMALL if name != "bloom" else {**SMALL, "key_heads": 4}
    model = Learner(preset(name, **sizes, **({} if name == "t5" else {"layers": 2}))).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    out = written(model, tmp_path / "export")
    assert json.loads((out / "config.json").read_text())["model_type"] == "ropewalk"
    again = load(out)
    assert again.config == model.config
    source = {"source": TOKENS} if model.config.stack == "encoder-decoder" else {}
    with torch.no_grad():
        assert torch.equal(again(TOKENS, **source), Transformer.forward(model, TOKENS, **source))


def test_what_is_wrong_with_a_directory_is_said(tmp_path: Path) -> None:
    model = Learner(preset("bert", **SMALL, layers=2))
    out = written(model, tmp_path / "export")
    config = json.loads((out / "config.json").read_text())
    config["model"]["layers"] = 3
    (out / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match=r"blocks\.2.* is missing"):
        load(out)
    config["model"]["encoding"]["longst"] = 3
    (out / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match="longst"):
        load(out)


DIES = """
import json, os, sys
from pathlib import Path
from tests.train.test_write import one, written

codes = {}
for point in sys.argv[2:]:
    if (pid := os.fork()) == 0:
        os.environ["ROPEWALK_CRASH_AT"] = point
        written(one(), Path(sys.argv[1]) / point)
        os._exit(0)
    codes[point] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(json.dumps(codes))
"""


def one() -> Learner:
    torch.manual_seed(1)
    return Learner(preset("llama", **SMALL, layers=2))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """A folder with what each death left, by its place, and how each process ended: forks of one."""
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-c", DIES, str(folder), *POINTS]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_it_is_whole_or_absent_and_can_be_done_again(
    killed: tuple[Path, dict[str, int]], point: str
) -> None:
    folder, codes = killed
    assert codes[point] == -9
    out = folder / point
    if out.exists():
        load(out)
    written(one(), out)
    model = one().eval()
    with torch.no_grad():
        torch.testing.assert_close(load(out)(TOKENS), Transformer.forward(model, TOKENS), rtol=0, atol=2e-5)
