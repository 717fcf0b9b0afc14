"""Blocks of code of Markdown pages, and running them, in a process and a folder of their own.

A command's output stands below it, that of Python in a block `text` right after. A line `...` stands for any lines, and
`$ echo $?` shows the exit code of the command before it.

python -m tests.blocks < pages.json        what `problems_of` starts; it prints what each step did
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import traceback
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
FENCE = re.compile(
    r"(?:^<!-- (?P<mark>not run|exit code)(?:: | )(?P<said>.*?) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    flags=re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    line: int
    """Of its first line of code, from 1."""
    language: str
    code: str
    skipped: str
    """Why it is not run; empty for one that is."""
    exit_code: int
    shown: str
    """What Python prints, from the block right after; empty where nothing is shown."""


def blocks(text: str) -> list[Block]:
    found = list(FENCE.finditer(text))
    shown = [
        after["code"] if after["language"] == "text" and not text[one.end() : after.start()].strip() else ""
        for one, after in pairwise(found)
    ]
    return [
        Block(
            text.count("\n", 0, one.start("code")) + 1,
            one["language"],
            one["code"],
            one["said"] if one["mark"] == "not run" else "",
            int(one["said"]) if one["mark"] == "exit code" else 0,
            prints,
        )
        for one, prints in zip(found, [*shown, ""], strict=False)
    ]


def steps(text: str) -> list[dict[str, Any]]:
    """What is to be done, in the order of the page: files to write, Python to run, commands to type."""
    made: list[dict[str, Any]] = []
    for block in blocks(text):
        if block.skipped:
            continue
        if block.language == "python":
            name = re.match(r"# ([\w/]+\.py)\n", block.code)
            step = {"line": block.line, "code": block.exit_code, "python": block.code, "shown": block.shown}
            made.append({**step, "file": name[1] if name else None})
        elif block.language == "console":
            for found in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.code, flags=re.MULTILINE):
                words = shlex.split(found[1], comments=True)
                line = block.line + block.code.count("\n", 0, found.start())
                if words[0] == "ropewalk":
                    made.append({"line": line, "code": block.exit_code, "words": words, "shown": found[2]})
                elif words == ["echo", "$?"]:
                    made[-1]["code"] = int(found[2])
    return made


def plain(text: str) -> str:
    """Whole lines, without how long it took."""
    text = re.sub(r" in \d+\.\d+s\b", " in 0s", text)
    text = re.sub(r"(?: +\d+\.\d s| =+)?[ \t]*$", "", text, flags=re.MULTILINE).strip("\n")
    return f"{text}\n" if text else ""


def agrees(shown: str, out: str) -> bool:
    parts = re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE)
    return re.fullmatch(r"(?:.*\n)*".join(re.escape(plain(part)) for part in parts), plain(out)) is not None


def problems_of(texts: Mapping[str, str], folder: Path) -> list[str]:
    """Every block of these pages that does not do what the page shows: file, line and what happened.

    All in one process, each page in a folder of its own, which has what a page may name of a checkout.
    """
    pages = []
    for number, (name, text) in enumerate(texts.items()):
        own = folder / str(number)
        (own / "docs/pictures/plot").mkdir(parents=True)
        (own / "tests").symlink_to(ROOT / "tests")
        pages.append({"name": name, "folder": str(own), "steps": steps(text)})
    ambient = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.blocks"],
        input=json.dumps(pages),
        cwd=ROOT, env=ambient, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    if done.returncode:
        return [f"{', '.join(texts)}: {done.stderr}"]
    wanted = [(page["name"], step) for page in pages for step in page["steps"]]
    found = []
    for (name, step), (code, out) in zip(wanted, json.loads(done.stdout.splitlines()[-1]), strict=True):
        place = f"{name}:{step['line']}"
        if code != step["code"]:
            found.append(f"{place}: exit code {code}, not {step['code']}\n{out}")
        elif step["shown"] and not agrees(step["shown"], out):
            found.append(f"{place}: it says something else\n{out}")
    return found


def do(step: dict[str, Any], name: str) -> tuple[int, str]:
    held = io.BytesIO()
    # Not StringIO, which has no encoding: what is printed depends on it.
    shown = io.TextIOWrapper(held, encoding="utf-8", write_through=True)
    code = 0
    try:
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            if step.get("file"):
                Path(step["file"]).write_text(step["python"], encoding="utf-8")
            elif "python" in step:
                # Lines are counted from the top of the page, so that a traceback names the page's own.
                made = compile("\n" * (step["line"] - 1) + step["python"], name, "exec")
                exec(made, {"__name__": "page"})  # noqa: S102
            else:
                from ropewalk.__main__ import run

                sys.argv = step["words"]
                run()
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        code = 1
        shown.write(traceback.format_exc())
    return code, held.getvalue().decode()


def main() -> None:
    sys.dont_write_bytecode = True
    out = []
    for page in json.load(sys.stdin):
        os.chdir(page["folder"])
        for step in page["steps"]:
            # Each time: a command may take the current folder off the path when it ends.
            sys.path.insert(0, page["folder"])
            out.append(do(step, page["name"]))
            forget(Path(page["folder"]))
    print(json.dumps(out))


def forget(folder: Path) -> None:
    """Modules of a page: one may be written anew, and is then imported again."""
    sys.path[:] = [place for place in sys.path if place != str(folder)]
    for name, module in list(sys.modules.items()):
        if folder in Path(getattr(module, "__file__", None) or "/").parents:
            del sys.modules[name]
    importlib.invalidate_caches()


if __name__ == "__main__":
    main()
