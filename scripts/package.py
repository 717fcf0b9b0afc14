"""Builds the wheel and the sdist, looks at what is in them, and uses the wheel as a stranger would.

    python scripts/package.py

The wheel holds every file of src/ropewalk and nothing else, the wheel made of the sdist is the same, and the README's
commands and code run in a fresh virtual environment that has what the wheel asks for and no more. What it asks for is
linked from the environment that runs this: a gigabyte of torch is not unpacked again.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from email import message_from_bytes
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
DATA = (
    "py.typed",
    "conformance/spec.md",
    "conformance/spec.zh.md",
    "conformance/mutants/page.yaml",
    "models/presets.yaml",
    "recipes/decoder.yaml",
    "conformance/adapters/expected/transformers.json",
)
"""What an install would most easily lose: each is not Python."""
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from ropewalk.__main__ import run; run()"
NAMES = "import ropewalk; print(ropewalk.__version__, *(type(getattr(ropewalk, n)).__name__ for n in ropewalk.__all__))"


def main() -> None:
    # Only what any machine has: no path to this checkout, no settings of the environment that runs this.
    ambient = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    ambient["BROWSER"] = "true"  # `ropewalk lab` of the README opens its page in it, and nobody is here to look
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        say("build")
        build(ROOT, place / "dist")
        (wheel,), (sdist,) = place.glob("dist/*.whl"), place.glob("dist/*.tar.gz")
        contents(wheel)
        with tarfile.open(sdist) as files:
            files.extractall(place / "unpacked", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        (unpacked,) = (place / "unpacked").iterdir()
        complete(unpacked)
        build(unpacked, place / "again", "--target", "wheel")
        (again,) = place.glob("again/*.whl")
        need(listed(wheel) == listed(again), f"the sdist makes another wheel: {listed(wheel) ^ listed(again)}")
        say("install")
        run(sys.executable, "-m", "venv", "--without-pip", str(place / "fresh"), env=ambient)
        (libraries,) = place.glob("fresh/lib/python*/site-packages")
        lend(wheel, libraries)
        # Without an index, and with dependencies: pip refuses if one is not there in the version asked for.
        pip = (sys.executable, "-m", "pip", "--python", str(place / "fresh" / "bin" / "python"))
        run(*pip, "install", "--quiet", "--no-index", str(wheel), env=ambient)
        ambient["PATH"] = f"{place / 'fresh' / 'bin'}{os.pathsep}{ambient['PATH']}"
        say("use")
        use(unpacked, ambient)
        say("done")


def build(where: Path, out: Path, *more: str) -> None:
    run(sys.executable, "-m", "hatchling", "build", "--directory", str(out), *more, cwd=where)


def contents(wheel: Path) -> None:
    """The wheel against the source tree."""
    inside = {name for name, _ in listed(wheel) if ".dist-info/" not in name}
    tree = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    need(inside == tree, f"not in both the wheel and src: {sorted(inside ^ tree)}")
    lost = [name for name in DATA if f"ropewalk/{name}" not in inside]
    need(not lost, f"the wheel lacks {lost}")


def complete(unpacked: Path) -> None:
    """What a packager needs beside the sources."""
    for name in (
        "tests/test_public.py",
        "docs/en/verify.md",
        "docs/zh/verify.md",
        "README.zh-CN.md",
        "CHANGELOG.md",
        "LICENSE",
        "scripts/test",
    ):
        need((unpacked / name).is_file(), f"the sdist lacks {name}")
    for path in (ROOT / "tests").rglob("*"):
        kept = path.is_file() and not {"__pycache__", ".hypothesis"} & set(path.parts)
        need(not kept or (unpacked / path.relative_to(ROOT)).is_file(), f"the sdist lacks {path.relative_to(ROOT)}")


def listed(wheel: Path) -> set[tuple[str, int]]:
    with zipfile.ZipFile(wheel) as files:
        return {(each.filename, each.CRC) for each in files.infolist()}


def lend(wheel: Path, libraries: Path) -> None:
    """Links to everything that the wheel requires, and what that requires."""
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        left = message_from_bytes(files.read(name)).get_all("Requires-Dist", [])
    seen = set()
    while left:
        requirement = Requirement(left.pop())
        if requirement.name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(requirement.name)
        found = metadata.distribution(requirement.name)
        left += found.requires or []
        for top in {path.parts[0] for path in found.files or [] if path.parts[0] not in ("..", "__pycache__")}:
            if not (libraries / top).is_symlink():
                (libraries / top).symlink_to(found.locate_file(top))


def use(unpacked: Path, ambient: dict[str, str]) -> None:
    """In the unpacked sdist, which has the README and the files that it names."""
    there = partial(run, cwd=unpacked, env=ambient)
    need("Usage: ropewalk" in there("python", "-c", WITHOUT_TORCH, "--help"), "--help says something else")
    version = there("ropewalk", "--version").split()[-1]
    need(there("python", "-c", NAMES).startswith(f"{version} "), "the command and the package differ in version")
    need("0 failed" in there("ropewalk", "verify", "rope", "--only", "N01,C12"), "a check of verify failed")
    text = (unpacked / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\$ (ropewalk .*)$\n(?:(?!\$ ).*\n)*(\$ echo \$\?\n1)?", text, re.MULTILINE)
    codes: dict[tuple[str, ...], int] = {}
    for command, fails in shown:
        words = tuple(shlex.split(command, comments=True))
        codes[words] = max(codes.get(words, 0), 1 if fails else 0)
    for words, code in codes.items():
        # Models are no part of a checkout; training, and drawing into a file, are extras, which the answer names.
        if not any("SmolLM2" in word for word in words) and words[1] not in ("train", "data", "estimate"):
            extra = words[1] == "plot" and "--out" in words
            said = there(*words, code=5 if extra else code)
            need(not extra or "ropewalk[plot]" in said, "drawing without its extra says something else")
    fast = ("ropewalk", "train", "decoder", "--fast")
    need("ropewalk[data]" in there(*fast, code=5), "training without its extra says something else")
    for code in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        there("python", "-c", code)


def run(*words: str, code: int = 0, **more: Any) -> str:
    """What it prints. Another exit code is the end."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, **more)
    need(done.returncode == code, f"{shlex.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + (done.stderr if code else "")


def need(holds: bool, otherwise: str) -> None:
    if not holds:
        sys.exit(f"package: {otherwise}")


def say(what: str) -> None:
    print(f"{time.perf_counter() - BEGAN:5.1f} s  {what}", flush=True)


BEGAN = time.perf_counter()

if __name__ == "__main__":
    main()
