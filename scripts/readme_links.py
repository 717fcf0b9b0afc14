"""README.md as a package index shows it: links and pictures that are files of the repository, by their full address.

hatchling calls it while it builds (`[tool.hatch.metadata.hooks.custom]` of pyproject.toml).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!https?://|#)([^()\s]+)\)")


class ReadmeLinks(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata["urls"]["Source"]
        readme = absolute(text, source, f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}


def absolute(text: str, source: str, version: str) -> str:
    """The files are those of the tag of this version: a page of an old release keeps its own."""

    def address(found: re.Match[str]) -> str:
        picture, shown, path = found.groups()
        kind = "raw" if picture else "blob"
        return f"{picture}[{shown}]({source}/{kind}/{version}/{path})"

    return LINK.sub(address, text)
