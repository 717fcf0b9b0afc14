"""Corpora that one command fetches and prepares, made of packages of Debian and npm: what they are and their licences.

Nothing of them is in this repository. A package of the version known here must have the hash known here; Debian's own
archive goes on to newer versions, whose hash is checked by apt and recorded beside the text.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Literal, NamedTuple

from ropewalk.data.options import Options


class Package(NamedTuple):
    name: str
    version: str
    sha256: str
    licence: str
    registry: Literal["debian", "npm"] = "debian"


class Corpus(NamedTuple):
    name: str
    summary: str
    packages: tuple[Package, ...]
    options: Options
    language: str = ""
    """Of the translations, as gettext names it."""

    @property
    def file(self) -> str:
        """The name of the text that is made of the packages."""
        return f"{self.name}.{'jsonl' if self.options.kind == 'text' else 'tsv'}"

    @property
    def licence(self) -> str:
        return "; ".join(f"{package.name}: {package.licence}" for package in self.packages)


LONG = (
    Package(
        "anarchism",
        "15.3-3",
        "cf21c10948b00e923c62eb31c39a3390413fa26c5ee0e3b925feb0ec7fe42948",
        "GPL-2",
    ),
    Package(
        "debian-handbook",
        "11.20220922",
        "3d5dbeac1f1afc9c094eab9d0f701f6ecff99c4927d5a4794cf6c85678134faa",
        "GPL-2+ or CC-BY-SA-3.0",
    ),
    Package(
        "perl-doc",
        "5.36.0-7+deb12u4",
        "f4269cff4576d6f02a6756df842988e58451c7e945b08517dd235531b24e48f8",
        "GPL-1+ or Artistic",
    ),
    Package(
        "python3.11-doc",
        "3.11.2-6+deb12u9",
        "5b3594189d6ef9a6963ce0347fd307a1cc67620ad697e144db366070e2e146be",
        "PSF-2",
    ),
)
POETRY = (
    Package(
        "chinese-poetry",
        "2.0.1",
        "25b549e46919c3a0569db6b68ddc96956b04a484ea4518ad2bbd4f137e307e86",
        "MIT",
        "npm",
    ),
)
CATALOGUES = (
    Package(
        "cataclysm-dda-data",
        "0.F-3-9",
        "cd0c097169fe364fdb6bcdab77663d24920a063387ce2fbf1b5d3be01c141105",
        "CC-BY-SA-3.0",
    ),
    Package(
        "freeciv-data",
        "3.0.6-1+deb12u1",
        "278bed022b87408ca9923aa727bef3d6c97875c811723e93ff95dded1b9b76b2",
        "GPL-2+",
    ),
    Package(
        "gnucash-common",
        "1:4.13-1",
        "8477b415856eb671125ee63ac6a4ee1d23efeca3de6e55e5a14c6ebb32642b31",
        "GPL-2+",
    ),
)
OFFICE_DE = Package(
    "libreoffice-l10n-de",
    "4:7.4.7-1+deb12u14",
    "aee22c8e3b3c0431f6e1b0bc66f757ba36c860e2651a05eb050fde4897f06548",
    "MPL-2.0",
)
OFFICE_ZH = Package(
    "libreoffice-l10n-zh-cn",
    "4:7.4.7-1+deb12u14",
    "06b2800923811a11ddadc9e1e09ef8bda2a89ba118470403b2f6a897152e0809",
    "MPL-2.0",
)
TEXT = Options(vocabulary=8192)
# A million tokens teach few words: with more of them most are too rare to be learned (arXiv:1905.11901).
PAIRS = Options(kind="pairs", vocabulary=4000, valid=0.02)
CHARACTERS = PAIRS.model_copy(update={"vocabulary": 5000})

CORPORA = {
    corpus.name: corpus
    for corpus in (
        Corpus("long-english", "manuals and an FAQ, long documents", LONG, TEXT.model_copy(update={"valid": 0.03})),
        Corpus("chinese", "classical poems, short documents", POETRY, TEXT),
        Corpus("en-zh", "texts of software and games", (*CATALOGUES, OFFICE_ZH), CHARACTERS, "zh_CN"),
        Corpus("en-de", "texts of software and games", (*CATALOGUES, OFFICE_DE), PAIRS, "de"),
    )
}


def find(name: str) -> Corpus:
    if name not in CORPORA:
        close = get_close_matches(name, CORPORA, 1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(CORPORA)}"
        raise ValueError(f"{name}: no such file, and no corpus of that name; {hint}")
    return CORPORA[name]
