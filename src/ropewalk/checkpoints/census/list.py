"""What a census is to read: the lines of a file, or the answer of a hub to a query.

A line is an org/name, the URL of a config.json, or a path; blank lines and those that begin with # are left out. A
query is `hub:llama`, or `hub:` and parameters of the hub's own API: `hub:author=Qwen&sort=downloads&limit=1000`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit

from ropewalk.checkpoints.census.fetch import CONTENT, Client
from ropewalk.checkpoints.errors import BadInput, plain
from ropewalk.checkpoints.files.hub import REPOSITORY, endpoint
from ropewalk.checkpoints.files.strict_json import parse_json

QUERY = "hub:"
PAGE = 500
"""Names of one answer; with their tags they stay well below the most that is read."""
LONGEST_LINE = 1000

Place = Literal["hub", "url", "path", "none"]


class Target(NamedTuple):
    name: str
    """As it is written, which is what the record knows it by."""
    place: Place
    """none: it is no name, no URL and no path."""


def target(line: str) -> Target:
    """A path that exists here takes precedence, as for a single checkpoint."""
    if len(line) > LONGEST_LINE:
        return Target(plain(line, LONGEST_LINE), "none")
    if line.startswith(("http://", "https://")):
        return Target(line, "url" if line.isascii() and line.isprintable() and " " not in line else "none")
    try:
        if line.startswith(("/", "./", "../")) or Path(line).exists():
            return Target(line, "path")
    except (OSError, ValueError):
        return Target(plain(line), "none")
    return Target(line, "hub") if REPOSITORY.fullmatch(line) else Target(plain(line), "none")


def address(one: Target, hub: str) -> str:
    return one.name if one.place == "url" else f"{hub}/{quote(one.name)}/resolve/main/config.json"


def in_file(file: Path) -> list[Target]:
    """Each once, in the order of the file."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise BadInput(file, f"byte {error.start}", "is not UTF-8", "save the list as UTF-8, one name a line") from None
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise BadInput(file, "path", problem, f"give a text file of names, or {QUERY}QUERY") from None
    stripped = (line.strip() for line in lines)
    found = [target(line) for line in dict.fromkeys(stripped) if line and not line.startswith("#")]
    if not found:
        raise BadInput(file, "contents", "names no checkpoint", "write an org/name, a URL or a path on each line")
    return found


def in_hub(query: str, client: Client) -> Iterator[Target]:
    """The hub's list, page by page; `limit` in the query is how many names are taken in all."""
    given = dict(parse_qsl(query, keep_blank_values=True)) if "=" in query else {"search": query}
    limit = given.pop("limit", None)
    if limit is not None and not re.fullmatch(r"[1-9]\d{0,8}", limit):
        raise BadInput(QUERY + query, "limit", f"{plain(limit)} is not a whole number from 1 on", "write limit=1000")
    left = None if limit is None else int(limit)
    page = PAGE if left is None else min(left, PAGE)
    hub = endpoint()
    url: str | None = f"{hub}/api/models?{urlencode({**given, 'limit': page})}"
    seen: set[str] = set()
    while url is not None:
        answer = client.get(url)
        if answer.state != CONTENT:
            problem = f"the hub did not give its list ({answer.state}: {answer.why})"
            raise BadInput(QUERY + query, "list", problem, "check the query and the connection, and run it again")
        before = len(seen)
        for name in _names(answer.data, url):
            if name in seen:
                continue
            seen.add(name)
            yield Target(name, "hub") if REPOSITORY.fullmatch(name) else Target(plain(name), "none")
            if len(seen) == left:
                return
        # A page that brings nothing new would go on for ever.
        url = _next(answer.link, url) if len(seen) > before else None
    if not seen:
        raise BadInput(QUERY + query, "list", "the hub knows no such checkpoint", "try another query")


def _names(data: bytes, url: str) -> list[str]:
    said = parse_json(data, url)
    if not isinstance(said, list) or not all(isinstance(one, dict) for one in said):
        raise BadInput(url, "top level", "is not a list of objects", "is this the address of a hub?")
    return [name for one in said if isinstance(name := one.get("id") or one.get("modelId"), str)]


def _next(link: str, url: str) -> str | None:
    """Where the list goes on, by the header Link; only on the same host."""
    found = re.search(r'<([^<>]{1,2000})>\s*;\s*rel="?next"?', link)
    if found is None:
        return None
    there = urljoin(url, found[1])
    if urlsplit(there)[:2] != urlsplit(url)[:2]:
        problem = f"goes on at another host, {plain(there, 100)}"
        raise BadInput(url, "Link", problem, "set HF_ENDPOINT to the hub that has the whole list")
    return there
