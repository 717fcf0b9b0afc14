"""Which results in campaigns/results were measured on today's sources, and which are to be measured again.

    python -m campaigns.stale [NAME ...]

The result of a campaign stands under its name, or under that and one of what it measured (`eval-NAME.json`).
A campaign names what its outcome depends on (`SOURCES`, or a function `sources`), and its result carries their digest;
one of many pieces carries one for each. A result is stale where one of these is not the digest of today. Exit code 1
says that a result is stale or that its campaign is not known.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from campaigns import pieces

UNRECORDED = {
    "angles": "measures installed libraries; their versions are in it",
    "depth": "shows what a paper says of depth, not what our sources do",
    "engines": "measures engines; their versions are in it",
    "engine_rotations": "measures engines; their versions are in it, and tests compare our rules with its answers",
    "lab_browser": "written by tests/browser/driver.py, of one built page",
    "language": "hours of training, with the recipe in it",
    "language_512": "hours of training, with the recipe in it; sequences of 512 tokens",
    "masked": "hours of training, with the recipe in it",
    "scoreboard": "measures installed libraries; their versions are in it",
    "translation_2017": "hours of training, with the recipe in it; one seed, before there were test pairs",
}
"""Results that carry no digest, and why one of our sources would say little."""


class Verdict(NamedTuple):
    name: str
    state: str
    """fresh, stale, unrecorded or unknown."""
    of: str
    """Its sources, or why it has none."""
    command: str

    @property
    def wrong(self) -> bool:
        return self.state in ("stale", "unknown")


def main() -> int:
    found = [verdict(file) for file in results() if not sys.argv[1:] or file.stem in sys.argv[1:]]
    if missing := set(sys.argv[1:]) - {each.name for each in found}:
        print(f"no result {', '.join(sorted(missing))} in {pieces.RESULTS}", file=sys.stderr)
        return 2
    for each in found:
        print(f"{each.state:10}  {each.name:12}  {each.of}")
    for each in found:
        if each.state == "stale":
            print(f"again: {each.command}")
    return int(any(each.wrong for each in found))


def results() -> list[Path]:
    return sorted(pieces.RESULTS.glob("*.json"))


def verdict(file: Path) -> Verdict:
    name, said = file.stem, json.loads(file.read_text(encoding="utf-8"))
    command = said.get("command", f"python -m campaigns.{name}")
    if name in UNRECORDED and "sources" not in said:
        return Verdict(name, "unrecorded", UNRECORDED[name], command)
    made_by = name.partition("-")[0]
    if find_spec(f"campaigns.{made_by}") is None:
        return Verdict(name, "unknown", f"there is no campaigns/{made_by}.py", command)
    campaign = import_module(f"campaigns.{made_by}")
    today = digest(campaign)
    if today is None:
        return Verdict(name, "unknown", f"campaigns/{made_by}.py names no SOURCES", command)
    of = ", ".join(getattr(campaign, "SOURCES", ())) or f"campaigns.{made_by}.sources()"
    return Verdict(name, "fresh" if stamps(said) == {today} else "stale", of, command)


def digest(campaign: Any) -> str | None:
    if hasattr(campaign, "SOURCES"):
        return pieces.digest(campaign.SOURCES)
    return campaign.sources() if hasattr(campaign, "sources") else None


def stamps(said: dict[str, Any]) -> set[str | None]:
    """The digests in a result: its own, and those of its pieces where they have their own."""
    parts = [part for part in said.get("pieces", {}).values() if "sources" in part]
    return {said.get("sources"), *(part["sources"] for part in parts)}


if __name__ == "__main__":
    sys.exit(main())
