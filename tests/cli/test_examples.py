"""Every help ends in examples, and every example runs."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from ropewalk.cli.main import app
from ropewalk.cli.output import example_commands
from ropewalk.compare import quickstart_study
from ropewalk.data.prepare.sample import sample
from tests.cli.conftest import Ropewalk
from tests.compare.tiny_study import study


def epilogs(group: typer.Typer, name: str) -> Iterator[tuple[str, str | None]]:
    for command in group.registered_commands:
        yield f"{name} {command.name or command.callback.__name__}", command.epilog
    for below in group.registered_groups:
        yield f"{name} {below.name}", below.typer_instance.info.epilog
        yield from epilogs(below.typer_instance, f"{name} {below.name}")


EPILOGS = [("ropewalk", app.info.epilog), *epilogs(app, "ropewalk")]
EXAMPLES = sorted({tuple(example) for _, epilog in EPILOGS for example in example_commands(epilog or "")})


@pytest.mark.parametrize(("name", "epilog"), EPILOGS)
def test_every_help_ends_in_examples_of_its_own(ropewalk: Ropewalk, name: str, epilog: str | None) -> None:
    examples = example_commands(epilog or "")
    words = name.split()[1:]
    assert examples
    assert all(example[: len(words)] == words for example in examples)
    lines = ropewalk(*words, "--help").stdout.rstrip().splitlines()
    after = lines[lines.index("  Examples:") + 1 :]
    assert [line.split()[0] for line in after] == ["ropewalk"] * len(examples)


@pytest.mark.parametrize("example", EXAMPLES, ids=" ".join)
@pytest.mark.usefixtures("recipe", "cable")
def test_example_runs(
    ropewalk: Ropewalk, example: tuple[str, ...], checkpoint: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quickstart_study, "STEPS", {"text": 2, "copy": 2})
    Path("other.yaml").write_text("model: {width: 128, encoding: alibi}", encoding="utf-8")
    Path("names.txt").write_text("config.json\n", encoding="utf-8")
    Path("story.txt").write_text("Call me Ishmael.", encoding="utf-8")
    Path("texts").mkdir()
    for number in range(6):
        # Long, and with something in its end that was last said at its beginning.
        signs = "".join(random.Random(number).choices(string.ascii_letters + string.digits, k=256))
        Path("texts", f"{number}.txt").write_text(signs[:216] + signs[:40] + signs, encoding="utf-8")
    Path("MODEL").symlink_to(checkpoint)
    Path("RUN").symlink_to(trained)
    if example[:2] == ("data", "show"):
        sample("text", "prepared")
    Path("study.yaml").write_text(json.dumps(study().model_dump(mode="json")), encoding="utf-8")
    Path("config.json").symlink_to(checkpoint / "config.json")
    answer = ropewalk(*example)
    # The files that are compared do differ.
    assert answer.code == (1 if example[:2] == ("config", "diff") else 0), answer.stderr
    # Training tells how far it is.
    assert answer.stderr == "" or example[0] in ("train", "compare", "quickstart")
    assert bool(answer.stdout) == (example[:2] != ("config", "diff") or "--quiet" not in example)
