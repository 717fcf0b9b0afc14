"""Code that lies in a model's directory is not run: not by any command started there, nor by what a config names.

The directory holds a module for every name that Python, torch and the other libraries could look for, theirs and
missing ones alike, and each writes its name down when it is run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Collection
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save
from safetensors.torch import save_file

import ropewalk
from ropewalk import outside
from ropewalk.checkpoints.errors import BadInput
from ropewalk.models import Transformer, TransformerConfig
from tests.checkpoints.valid_files import LLAMA, llama, text
from tests.cli.conftest import CABLE

REPOSITORY = Path(__file__).parents[1]
OPTIONAL = """
org opt_einsum xformers triton pandas PIL tqdm sklearn onnx onnxruntime apex tensorrt psutil cv2 matplotlib IPython
colorama shellingham flash_attn bitsandbytes sentencepiece tiktoken jax flax tensorflow torchvision torchaudio
torch_npu torch_xla intel_extension_for_pytorch habana_frameworks deepspeed librosa soundfile av timm kernels
hf_xet hf_transfer orjson ujson simplejson gmpy2 dill cloudpickle email_validator pydantic_settings
sitecustomize usercustomize readline gguf tokenizers huggingface_hub transformers grain pyarrow trackio optuna
"""
SIZES: dict[str, Any] = {"vocabulary": 40, "width": 16, "heads": 2, "layers": 2, "hidden": 32}
KIND = "planted.cable"


def mark(name: str) -> str:
    return f"import os\nwith open(os.environ['MARKS'], 'a') as file:\n    file.write({name!r} + '\\n')\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama's directory, a model of our own beside it, and hundreds of modules."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    path = tmp_path_factory.mktemp("model")
    (path / "config.json").write_bytes(text(LLAMA))
    (path / "model.safetensors").write_bytes(save(llama()))
    tokenizer = Tokenizer(
        models.BPE({part: n for n, part in enumerate([*"abcdefghijklmnopqrstuvwxyz.0", "ab"])}, [("a", "b")])
    )
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "recipe.yaml").write_text(
        "model: {width: 16, heads: 2, layers: 2, hidden: 32}\n"
        "data: {kind: task, task: copy, length: 16, vocabulary: 32}\n"
        "train: {steps: 2, batch: 128}\n"
    )
    taken = {"ropewalk", "tests", "__main__", "builtins"}
    names = {*OPTIONAL.split(), *packages_distributions(), *sys.stdlib_module_names} - taken
    for name in (name for name in names if name.isidentifier()):
        # What runs in place of another module says so and is then missing, as it was.
        (path / f"{name}.py").write_text(f"{mark(name)}raise ModuleNotFoundError(name={name!r})\n")
    (path / "planted").mkdir()
    (path / "planted" / "__init__.py").write_text(mark("planted"))
    (path / "planted" / "cable.py").write_text(mark(KIND) + CABLE.replace('"my_pkg.cable"', f'"{KIND}"'))
    target = "from ropewalk.conformance.adapters import ours\ntarget = ours.target('rope')\n"
    (path / "planted_target.py").write_text(mark("planted_target") + target)
    own(path / "own", encoding={"kind": KIND})
    return path


def own(path: Path, **said: Any) -> Path:
    """A model of our own, with ALiBi, in whose config something else was written afterwards."""
    config = TransformerConfig.model_validate({**SIZES, "encoding": "alibi"})
    path.mkdir()
    save_file(
        {name: tensor.clone() for name, tensor in Transformer(config).state_dict().items()}, path / "model.safetensors"
    )
    written = {**config.model_dump(mode="json"), **said}
    (path / "config.json").write_text(json.dumps({"model_type": "ropewalk", "trained_length": 64, "model": written}))
    return path


def ran(arguments: list[str], folder: Path, marks: Path, **environment: str) -> tuple[set[str], str]:
    """Which planted modules a Python in the folder has run, and what it said."""
    marks.unlink(missing_ok=True)
    settings = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1", "MARKS": str(marks)}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**settings, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return set(marks.read_text().split()) if marks.exists() else set(), done.stdout + done.stderr


@pytest.fixture
def script(tmp_path: Path) -> str:
    """The command as pip writes it, made to run several in a row: each argument is one."""
    entry = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]["ropewalk"]
    module, _, function = entry.partition(":")
    file = tmp_path / "bin" / "ropewalk"
    file.parent.mkdir()
    file.write_text(
        f"import sys\nfrom {module} import {function}\n"
        "for line in sys.argv[1:]:\n"
        "    sys.argv = ['ropewalk', *line.split()]\n"
        "    try:\n        sys.exit(run())\n"
        "    except SystemExit as left:\n        print('EXIT', left.code or 0, line)\n"
    )
    return str(file)


def test_no_command_runs_what_lies_in_a_directory(model: Path, script: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    commands = {
        "inspect .": 0,
        "list encodings": 0,
        "config show recipe.yaml --plan": 0,
        "generate . --prompt a --max-tokens 2": 0,
        f"export . {out} --format hf": 0,
        f"export . {out}.gguf --format gguf": 0,
        f"generate {out}.gguf --prompt a --max-tokens 2": 0,
        "verify . --only N01": 0,
        "verify . --only N08 --engine transformers": 0,
        "verify own --only N01": 3,
        "inspect own": 3,
        "generate own --prompt a": 3,
        f"export own {tmp_path / 'never'} --format hf": 3,
        "estimate missing.yaml": 3,
        f"train recipe.yaml --fast --out {tmp_path / 'run'}": 0,
        f"data prepare recipe.yaml --out {tmp_path / 'data'}": 3,
    }
    found, said = ran([script, *commands], model, tmp_path / "marks")
    assert found == set(), said
    answers = [line.split(maxsplit=2) for line in said.splitlines() if line.startswith("EXIT ")]
    assert {line: int(code) for _, code, line in answers} == commands, said


def test_nor_as_a_module(model: Path, tmp_path: Path) -> None:
    # `python -m` imports these itself, from the current folder, before it looks for any ropewalk (python -P does not).
    loaded = subprocess.run(
        [sys.executable, "-m", "loaded"], cwd=_loaded(tmp_path), capture_output=True, text=True, check=True
    ).stdout.split()
    folder = tmp_path / "model"
    folder.mkdir()
    for file in model.iterdir():
        if file.stem not in loaded:
            (folder / file.name).symlink_to(file)
    found, said = ran(["-m", "ropewalk", "generate", ".", "--prompt", "a"], folder, tmp_path / "marks")
    assert found == set(), said
    assert "Traceback" not in said
    assert len(loaded) < 60, "hardly anything is left to be planted"


def _loaded(folder: Path) -> Path:
    (folder / "loaded.py").write_text("import sys\nprint(*sys.modules)")
    return folder


def test_nor_by_load(model: Path, tmp_path: Path) -> None:
    code = "import sys, ropewalk\nropewalk.load(sys.argv[1])"
    found, said = ran(["-P", "-c", code, "own"], model, tmp_path / "marks")
    assert found == set(), said
    assert f"--allow-kind {KIND}" in said
    assert f"kinds=['{KIND}']" in said


def test_what_a_person_names_is_run(model: Path, script: str, tmp_path: Path) -> None:
    """And the marks work: the same modules, named by a person or found by a path of old, leave theirs."""
    marks = tmp_path / "marks"
    commands = "verify planted_target:target --only N08", f"verify own --allow-kind {KIND} --only C08"
    found, said = ran([script, *commands], model, marks)
    assert (found, said.count("EXIT 0 verify")) == ({"planted_target", "planted", KIND}, 2), said
    found, said = ran(["-P", "-c", "import os, sys; sys.path.append(os.getcwd()); import numpy"], model, marks)
    assert "org" in found, said


@pytest.mark.parametrize(
    "said",
    [
        {"encoding": "this.that"},
        {"encoding": {"kind": "this.that", "slack": 1}},
        {"encoding": {"kind": "chain", "parts": ["rope", "this.that"]}},
        {"encoding": {"kind": "chain", "parts": [{"kind": "chain", "parts": [{"kind": "this.that"}]}]}},
        {"layers": {"count": 2, "pattern": ["x"], "kinds": {"x": {"encoding": "this.that"}}}},
        {
            "stack": "encoder-decoder",
            "layers": {
                "encoder": 2,
                "decoder": {"count": 2, "pattern": ["x"], "kinds": {"x": {"encoding": "this.that"}}},
            },
        },
        {
            "encoding": "my_pkg.cable",
            "layers": {"count": 2, "pattern": ["x"], "kinds": {"x": {"encoding": "this.that"}}},
        },
    ],
)
@pytest.mark.parametrize("kinds", [(), ("this",), ("this.th", "that"), ("this.that.other",), "this.that.other"])
def test_a_kind_is_refused_wherever_it_is_written(tmp_path: Path, said: dict[str, Any], kinds: Collection[str]) -> None:
    path = own(tmp_path / "own", **said)
    before = "this" in sys.modules
    with pytest.raises(BadInput, match=r"'this\.that'.*--allow-kind .*this\.that.*kinds=\[.*'this\.that'\]") as told:
        ropewalk.load(path, kinds=kinds)
    assert "this" not in sys.modules or before
    assert told.value.file == str(path / "config.json")
    assert told.value.field.startswith("model.")


def test_what_to_type_is_a_name(tmp_path: Path) -> None:
    path = own(tmp_path / "own", encoding="this.that; rm -r ~")
    with pytest.raises(BadInput, match="correct the config") as told:
        ropewalk.load(path)
    assert "--allow-kind" not in str(told.value)


def test_a_run_that_lies_there_imports_nothing(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ropewalk.train.fast import clear

    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.yaml").write_text(f"model: {{encoding: {KIND}}}\ntrain: {{steps: 2, track: planted_target:make}}\n")
    monkeypatch.chdir(model)
    monkeypatch.setenv("MARKS", str(tmp_path / "marks"))
    clear(run)
    assert not run.exists()
    assert not (tmp_path / "marks").exists()


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize(
    ("before", "python_path", "stays"),
    [
        (["HERE", "/lib"], None, ["/lib"]),
        (["", "/lib", ""], None, ["/lib"]),
        ([".", "HERE/src", "/lib"], None, ["HERE/src", "/lib"]),
        (["/bin", "/lib", "__editable__.pkg.finder.__path_hook__"], None, [...]),
        # An empty part of PYTHONPATH follows a person into every folder; a whole name was meant.
        (["HERE", "HERE", "/lib"], "", ["HERE", "/lib"]),
        (["/bin", "HERE", "/lib"], "/other:", ["/bin", "/lib"]),
        (["/bin", "HERE", "/lib"], ".:/other", ["/bin", "/lib"]),
        (["/bin", "HERE", "/lib"], "HERE", [...]),
        (["/bin", "HERE/src", "/lib"], "src", [...]),
    ],
)
def test_which_folders_are_left(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: list[str],
    python_path: str | None,
    stays: list[Any],
    linked: bool,
) -> None:
    (tmp_path / "real" / "src").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path / "link")
    here = str(tmp_path / ("link" if linked else "real"))
    written = [entry.replace("HERE", here) for entry in before]
    monkeypatch.setattr(sys, "path", list(written))
    monkeypatch.setenv("PYTHONPATH", "" if python_path is None else python_path.replace("HERE", here))
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    outside.leave_folder()
    assert sys.path == (written if stays == [...] else [entry.replace("HERE", here) for entry in stays])
    assert os.environ["PYTHONSAFEPATH"] == "1"


def test_the_folder_of_ropewalk_itself_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is run from its sources, or everything was installed into the folder one is in."""
    monkeypatch.chdir(Path(outside.__file__).parents[1])
    monkeypatch.setattr(sys, "path", ["", "/lib"])
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    outside.leave_folder()
    assert sys.path == ["", "/lib"]


def test_an_import_by_name_leaves_the_path_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    (tmp_path / "named_alone.py").write_text("import named_beside\nimport sys\nsys.path.insert(0, '/its/own')\n")
    (tmp_path / "named_beside.py").touch()
    (tmp_path / "named_wrong.py").write_text("import sys\nassert sys.path[-1].endswith('left')\n")
    assert outside.import_named("named_alone").__file__ == str(tmp_path / "named_alone.py")
    assert sys.path == ["/its/own", *before]
    monkeypatch.setattr(sys, "path", before)
    with pytest.raises(AssertionError):
        outside.import_named("named_wrong")
    with pytest.raises(ModuleNotFoundError, match="named_nowhere"):
        outside.import_named("named_nowhere.part")
    assert sys.path == before
    # What is installed is imported without the folder, which could hold what it looks for in vain.
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "named_installed.py").write_text(
        "try:\n    import named_beside_it\nexcept ImportError:\n    missing = True\n"
    )
    (tmp_path / "named_beside_it.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "lib")
    assert outside.import_named("named_installed").missing
