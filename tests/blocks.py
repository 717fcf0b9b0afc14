"""Blocks of code of a Markdown page, and running them: one process a page, in a folder of its own.

python -m tests.blocks FOLDER < steps.json        what test_docs.py starts; it prints what each step did
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


def blocks(text: str) -> list[Block]:
    return [
        Block(
            text.count("\n", 0, found.start("code")) + 1,
            found["language"],
            found["code"],
            found["said"] if found["mark"] == "not run" else "",
            int(found["said"]) if found["mark"] == "exit code" else 0,
        )
        for found in FENCE.finditer(text)
    ]


def steps(text: str) -> list[dict[str, Any]]:
    """What is to be done, in the order of the page: files to write, Python to run, commands to type."""
    made: list[dict[str, Any]] = []
    for block in blocks(text):
        if block.skipped:
            continue
        if block.language == "python":
            name = re.match(r"# ([\w/]+\.py)\n", block.code)
            made.append({"line": block.line, "code": 0, "file": name[1] if name else None, "python": block.code})
        elif block.language == "console":
            for found in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.code, flags=re.MULTILINE):
                words = shlex.split(found[1], comments=True)
                line = block.line + block.code.count("\n", 0, found.start())
                if words[0] == "ropewalk":
                    made.append({"line": line, "code": block.exit_code, "words": words, "shown": found[2]})
    return made


def plain(text: str) -> str:
    """Without how long it took."""
    text = re.sub(r" in \d+\.\d+s\b", " in 0s", text)
    return re.sub(r"(?: +\d+\.\d s| =+)$", "", text, flags=re.MULTILINE).strip()


def problems(name: str, text: str, folder: Path) -> list[str]:
    """Every block of a page that does not do what the page shows: file, line and what happened."""
    wanted = steps(text)
    ambient = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.blocks", str(folder)],
        input=json.dumps({"name": name, "steps": wanted}),
        cwd=ROOT, env=ambient, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    if done.returncode:
        return [f"{name}: {done.stderr}"]
    found = []
    for step, (code, out) in zip(wanted, json.loads(done.stdout.splitlines()[-1]), strict=True):
        place = f"{name}:{step['line']}"
        parts = [re.escape(plain(part)) for part in step.get("shown", "").split("...\n")]
        if code != step["code"]:
            found.append(f"{place}: exit code {code}, not {step['code']}\n{out}")
        elif step.get("shown") and not re.fullmatch(r"\n?(.|\n)*".join(parts), plain(out)):
            found.append(f"{place}: it says something else\n{out}")
    return found


def do(step: dict[str, Any], name: str) -> tuple[int, str]:
    shown = io.StringIO()
    try:
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            if step.get("file"):
                Path(step["file"]).write_text(step["python"], encoding="utf-8")
            elif "python" in step:
                # Lines are counted from the top of the page, so that a traceback names the page's own.
                code = compile("\n" * (step["line"] - 1) + step["python"], name, "exec")
                exec(code, {"__name__": "page"})  # noqa: S102
            else:
                from ropewalk.__main__ import run

                sys.argv = step["words"]
                run()
    except SystemExit as stop:
        return int(stop.code or 0), shown.getvalue()
    except BaseException:
        return 1, shown.getvalue() + traceback.format_exc()
    return 0, shown.getvalue()


def main() -> None:
    given = json.load(sys.stdin)
    os.chdir(sys.argv[1])
    sys.dont_write_bytecode = True
    out = []
    for step in given["steps"]:
        # Each time: a command may take the current folder off the path when it ends.
        sys.path.insert(0, str(Path.cwd()))
        out.append(do(step, given["name"]))
        # A file of the page may be written anew, and is then imported again.
        here = Path.cwd()
        for module in [
            name for name, one in sys.modules.items() if here in Path(getattr(one, "__file__", None) or "/").parents
        ]:
            del sys.modules[module]
        importlib.invalidate_caches()
    print(json.dumps(out))


if __name__ == "__main__":
    main()
