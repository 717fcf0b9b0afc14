"""The command itself: exit codes, where output goes, what is answered without torch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import ropewalk as package
from ropewalk.cli.main import app
from ropewalk.cli.output import BAD_INPUT, ENVIRONMENT, guarded
from tests.cli.conftest import CABLE, Ropewalk
from tests.cli.test_examples import EPILOGS

SOURCE = Path(__file__).parents[2] / "src"

WITHOUT_TORCH = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise RuntimeError(f"{name} was imported")

sys.meta_path.insert(0, Refuse())
from ropewalk.__main__ import run
run()
"""


def start(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = [str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"} | environment
    return subprocess.run(
        [sys.executable, *command], cwd=cwd, env=settings, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("--version",), ("--show-completion", "bash"), ("list", "scalings"), ("config", "show", "--help")],
)
def test_answered_without_torch(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    # So that --show-completion is told the shell and does not look for it.
    done = start("-c", WITHOUT_TORCH, *arguments, cwd=tmp_path, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


def test_completed_without_torch(tmp_path: Path) -> None:
    asked = {"_ROPEWALK_COMPLETE": "complete_bash", "COMP_WORDS": "ropewalk list ", "COMP_CWORD": "2"}
    done = start("-c", WITHOUT_TORCH, cwd=tmp_path, **asked)
    assert (done.stdout.split(), done.stderr) == (["encodings", "scalings", "architectures", "recipes"], "")


def test_the_refusal_of_torch_works(tmp_path: Path) -> None:
    assert "torch was imported" in start("-c", WITHOUT_TORCH, "list", "encodings", cwd=tmp_path).stderr


def test_as_a_module(tmp_path: Path) -> None:
    done = start("-m", "ropewalk", "--version", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"ropewalk {package.__version__}\n", "")


def test_bad_input_is_3_without_a_traceback(tmp_path: Path) -> None:
    done = start("-m", "ropewalk", "config", "show", "model.encodng.kind=rope", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert (
        done.stderr == "Error: command line, 1 problem:\n  model.encodng   no such key. Did you mean model.encoding?\n"
    )


def test_a_module_beside_the_person_is_found(tmp_path: Path) -> None:
    (tmp_path / "my_pkg").mkdir()
    (tmp_path / "my_pkg" / "cable.py").write_text(CABLE, encoding="utf-8")
    entry = "from ropewalk.__main__ import run; import sys; sys.path.remove(''); run()"
    done = start("-c", entry, "config", "diff", "a.yaml", "model.encoding=my_pkg.cable", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    (tmp_path / "a.yaml").touch()
    done = start("-c", entry, "config", "diff", "a.yaml", "model.encoding=my_pkg.cable", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert "my_pkg.cable" in done.stdout


WITHOUT_A_READER = """
import subprocess, sys
for words in (["list", "scalings"], ["list", "scalings", "--json"], ["--help"]):
    writer = subprocess.Popen([sys.executable, "-m", "ropewalk", *words], stdout=subprocess.PIPE)
    writer.stdout.close()
    print(writer.wait())
"""


def test_a_reader_that_goes_away_is_no_mistake(tmp_path: Path) -> None:
    # As in `| head`: tables are written by rich, the rest by click, and both say 1 of themselves.
    done = start("-c", WITHOUT_A_READER, cwd=tmp_path)
    assert (done.stdout.split(), done.stderr) == (["141"] * 3, "")


WITHOUT_UNIX = """
import contextlib, io, json, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in ("fcntl", "resource"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Refuse())
from ropewalk.__main__ import run

answers = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["ropewalk", *words]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            run()
        except SystemExit as end:
            answers.append((end.code, err.getvalue()))
print(json.dumps(answers))
"""


def test_starts_where_unix_modules_are_missing(tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    llama = {"model_type": "llama", **sizes, "rope_theta": 1e4, "max_position_embeddings": 128}
    (tmp_path / "config.json").write_text(json.dumps(llama), encoding="utf-8")
    (tmp_path / "story.txt").write_text("Call me Ishmael.", encoding="utf-8")
    starts = [["--help"], ["list", "encodings"], ["inspect", "config.json"], ["config", "show"]]
    refuses = ["data", "prepare", "story.txt", "--out", "ready", "--valid-fraction", "0", "--vocabulary", "300"]
    done = start("-c", WITHOUT_UNIX, json.dumps([*starts, refuses]), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *good, (code, said) = json.loads(done.stdout.splitlines()[-1])
    assert good == [[0, ""]] * len(starts)
    assert code == ENVIRONMENT
    assert said == "Error: This needs file locks as Linux and macOS have them; on Windows run it under WSL\n"


@pytest.mark.parametrize("arguments", [(), ("list",), ("config",)])
def test_nothing_asked_shows_help(ropewalk: Ropewalk, arguments: tuple[str, ...]) -> None:
    answer = ropewalk(*arguments)
    assert answer.code == 2
    assert "Usage: ropewalk" in answer.stderr + answer.stdout
    assert "Examples:" in answer.stderr + answer.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("lst",), "No such command 'lst'. Did you mean 'list'?"),
        (("list", "encoding"), "Did you mean 'encodings'?"),
        (("config", "shwo"), "Did you mean 'show'?"),
        (("list", "scalings", "--jsno"), "--json"),
        (("config", "diff"), "Missing argument"),
    ],
)
def test_mistakes_of_usage_are_2(ropewalk: Ropewalk, arguments: tuple[str, ...], says: str) -> None:
    answer = ropewalk(*arguments)
    assert (answer.code, answer.stdout) == (2, "")
    assert says in answer.stderr


def test_version(ropewalk: Ropewalk) -> None:
    assert ropewalk("--version") == (0, f"ropewalk {package.__version__}\n", "")


def test_usage_is_readable(ropewalk: Ropewalk) -> None:
    texts = [ropewalk(*name.split()[1:], "--help").stdout for name, _ in EPILOGS]
    for text in texts:
        usage, _, rest = text.partition("\n\n")
        assert not re.search(r"[{}<>]|\[\[|\.\.\.\]|\b[a-z]+\]", usage.replace("ropewalk", "")), usage
        assert not re.search(r"<(list|str|int|float|path)", rest), rest
    assert "Usage: ropewalk train [OPTIONS] RECIPE [KEY=VALUE]...\n" in "".join(texts)
    assert "  --seed INT " in "".join(texts)


def test_help_is_plain_text(ropewalk: Ropewalk) -> None:
    assert ropewalk("config", "show", "--help").stdout.isascii()
    assert ropewalk("config", "show", "-h") == ropewalk("config", "show", "--help")


@pytest.mark.parametrize("columns", [40, 70, 100, 300])
def test_a_terminal_gets_what_fits_it(ropewalk: Ropewalk, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    whole = ropewalk("list", "scalings").stdout
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes any output for a terminal
    monkeypatch.setenv("COLUMNS", str(columns))
    assert ropewalk("list", "scalings").stdout.startswith("\x1b[1mkind")
    monkeypatch.setenv("NO_COLOR", "1")
    fitted = ropewalk("list", "scalings").stdout
    assert max(map(len, fitted.splitlines())) <= columns
    assert fitted.split("linear", 1)[1].split() == whole.split("linear", 1)[1].split()
    assert (fitted == whole) == (columns == 300)


def test_every_command_has_json_and_quiet() -> None:
    for command in [command for group in app.registered_groups for command in group.typer_instance.registered_commands]:
        assert {"json", "quiet"} <= set(command.callback.__annotations__), command.callback.__name__


class TestGuarded:
    @pytest.mark.parametrize(
        ("error", "code", "says"),
        [
            (ValueError("width 7 is odd; write 8"), BAD_INPUT, "width 7 is odd; write 8"),
            (FileNotFoundError(2, "No such file", "x.gguf"), BAD_INPUT, "x.gguf"),
            (ModuleNotFoundError("...", name="matplotlib.pyplot"), ENVIRONMENT, 'pip install "ropewalk[plot]"'),
            (ModuleNotFoundError("...", name="torch"), ENVIRONMENT, "This needs torch: pip install torch"),
            (ImportError("libfoo.so: cannot open"), ENVIRONMENT, "Error: libfoo.so: cannot open\n"),
        ],
    )
    def test_what_a_person_can_mend_is_said_in_words(
        self, error: Exception, code: int, says: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        @guarded
        def command() -> None:
            raise error

        with pytest.raises(typer.Exit) as caught:
            command()
        assert caught.value.exit_code == code
        out, err = capsys.readouterr()
        assert out == ""
        assert says in err

    @pytest.mark.parametrize("error", [KeyError("x"), RuntimeError("x"), BrokenPipeError()])
    def test_our_own_mistakes_pass(self, error: Exception) -> None:
        @guarded
        def command() -> None:
            raise error

        with pytest.raises(type(error)):
            command()

    def test_a_traceback_can_be_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        @guarded
        def command() -> None:
            raise ValueError("x")

        monkeypatch.setenv("ROPEWALK_TRACEBACK", "1")
        with pytest.raises(ValueError, match="x"):
            command()
