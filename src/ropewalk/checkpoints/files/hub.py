"""Finding what a person means by a path: a file or directory here, or org/name, of which only config.json is fetched.

An existing local path always wins, so a directory called org/name is never looked for elsewhere.
"""

from __future__ import annotations

import os
import re
import socket
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import urlsplit

from ropewalk.checkpoints.errors import BadInput

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


def locate(path: str | Path) -> tuple[Path, str | None]:
    """Where to read, and the name of the repository if it came from the hub."""
    here = Path(path)
    if here.exists():
        return here, None
    name = str(path)
    if not REPOSITORY.fullmatch(name) or name.endswith((".json", ".gguf", ".safetensors")):
        raise BadInput(
            name, "path", "does not exist", "give a model directory, a config.json, a .gguf file, or an org/name"
        )
    near = _near(here)
    if near is not None:
        raise BadInput(
            name,
            "path",
            f"there is no such path here, and there is {near}",
            f"write {near}; for the hub's {name}, run it in another directory",
        )
    return _fetched(name), name


def _near(path: Path) -> str | None:
    """What lies in the directory under almost this name: org/name may be a misspelt path."""
    try:
        there = [one.name for one in path.parent.iterdir()]
    except OSError:
        return None
    found = get_close_matches(path.name, there, 1, cutoff=0.75)
    return str(path.parent / found[0]) if found else None


def _fetched(name: str) -> Path:
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    variable = offline()
    reason = f"{variable} is set" if variable else None if _reachable() else "the hub cannot be reached"
    try:
        if reason is None:
            return Path(hf_hub_download(name, "config.json", etag_timeout=10))
        # Not the download's own `local_files_only`, which can open a connection for a header.
        if isinstance(cached := try_to_load_from_cache(name, "config.json"), str):
            return Path(cached)
    except Exception as error:  # the hub raises errors of its HTTP library's, of its own and of the system's
        reason = f"fetching it from the hub failed ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
    raise BadInput(
        name,
        "config.json",
        f"there is no such path here, and {reason}",
        "check the name and the connection (gated: `hf auth login`), or download config.json and pass that",
    )


def endpoint() -> str:
    """The address of the hub, without a slash at its end."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def offline() -> str | None:
    """The environment variable that keeps the hub's library off the network."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE"):
            return name
    return None


def _reachable() -> bool:
    """Whether the hub answers at all; its library would try again for half a minute, though a cached config is here."""
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True
    at = urlsplit(endpoint())
    try:
        with socket.create_connection((at.hostname or "", at.port or (80 if at.scheme == "http" else 443)), timeout=5):
            return True
    except OSError:
        return False
