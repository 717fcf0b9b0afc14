"""Fetches the packages of a corpus and makes text of them: `apt-get download` and `npm pack`, then what is inside.

OUT/packages/...      as fetched; what is there and has the right hash is not fetched again
OUT/NAME.jsonl|tsv    the text
OUT/source.json       the packages with versions, hashes and licences
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

from ropewalk.data.corpora import Corpus, Package, find
from ropewalk.data.layout import file_hash
from ropewalk.data.prepare.extract import long_documents, pairs, poems
from ropewalk.data.prepare.writer import replace

SECONDS = 1800
"""The longest that one download may take."""


def fetch(name: str, out: str | Path, note: Callable[[str], None] = print) -> Path:
    """The text of a corpus, made in OUT where it is not there already."""
    corpus, folder = find(name), Path(out)
    text, about = folder / corpus.file, folder / "source.json"
    if text.is_file() and about.is_file() and json.loads(about.read_text())["sha256"] == file_hash(text):
        return text
    (folder / "packages").mkdir(parents=True, exist_ok=True)
    found = []
    for package in corpus.packages:
        file = _there(package, folder / "packages")
        if file is None:
            note(f"fetching {package.name}")
            file = _download(package, folder / "packages")
        found.append((package, file, _checked(package, file, note)))
    note(f"making {text.name}")
    fresh = text.with_name(text.name + ".new")
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        lines = _lines(corpus, [(package, file) for package, file, _ in found], Path(inside))
        with fresh.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)
    fresh.replace(text)
    told = [
        {"name": p.name, "version": version(file), "sha256": digest, "licence": p.licence, "registry": p.registry}
        for p, file, digest in found
    ]
    source = {"corpus": name, "sha256": file_hash(text), "packages": told}
    replace(about, (json.dumps(source, indent=1) + "\n").encode())
    return text


def version(file: Path) -> str:
    """Of a fetched package, from its file's name: anarchism_15.3-3_all.deb, chinese-poetry-2.0.1.tgz."""
    return unquote(file.name.split("_")[1]) if file.suffix == ".deb" else file.stem.rpartition("-")[2]


def _lines(corpus: Corpus, packages: list[tuple[Package, Path]], inside: Path) -> Iterator[str]:
    for package, file in packages:
        if package.registry == "debian":
            _run(["dpkg", "-x", str(file.resolve()), str((inside / package.name).resolve())], inside, package)
    if corpus.options.kind == "pairs":
        yield from ("\t".join(pair) for pair in pairs(inside, corpus.language))
        return
    documents: Iterable[str] = poems(packages[0][1]) if packages[0][0].registry == "npm" else long_documents(inside)
    yield from (json.dumps({"text": text}, ensure_ascii=False) for text in documents)


def _there(package: Package, folder: Path) -> Path | None:
    pattern = f"{package.name}_*.deb" if package.registry == "debian" else f"{package.name}-{package.version}.tgz"
    return next(iter(sorted(folder.glob(pattern))), None)


def _download(package: Package, folder: Path) -> Path:
    """Into a place of its own first: what is cut off is not taken for a package."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        if package.registry == "debian":
            _run(["apt-get", "download", "-q", package.name], Path(place), package)
        else:
            _run(["npm", "pack", "--silent", f"{package.name}@{package.version}"], Path(place), package)
        file = _there(package, Path(place))
        if file is None:
            raise ValueError(f"{package.name}: fetched, but no file of that name came; see {folder}")
        return file.replace(folder / file.name)


def _checked(package: Package, file: Path, note: Callable[[str], None]) -> str | None:
    digest = file_hash(file)
    if version(file) != package.version:
        note(f"{package.name} {version(file)}: {package.version} is known here; figures may differ a little")
    elif digest != package.sha256:
        raise ValueError(
            f"{file}: sha256 {digest}, {package.sha256} is right for this version; remove it and try again"
        )
    return digest


def _run(command: list[str], folder: Path, package: Package) -> None:
    if shutil.which(command[0]) is None:
        where = "Debian 12 or a container of it" if package.registry == "debian" else "a machine with Node.js"
        raise ValueError(
            f"{package.name} is fetched by {command[0]}, which is not here; run this on {where} and copy what it makes"
        )
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ValueError(f"{' '.join(command)}: not done after {SECONDS} s; try again") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["no reason was given"]
        hint = "; try: apt-get update" if command[0] == "apt-get" else ""
        raise ValueError(f"{' '.join(command)}: {said[0]}{hint}")
