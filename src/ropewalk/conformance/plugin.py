"""The suite as pytest items: `pytest --ropewalk my_package.module:target`, one for each requirement that applies.

    ropewalk::my_package.module:target::N01 angle at far positions

They stand beside a project's own tests: `-m ropewalk` runs them alone, `-k N01` one of them. A failure says what
`ropewalk verify` says. What turns out not to apply only when it is run is skipped, with the reason.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ropewalk.conformance.checks import Check, every
from ropewalk.conformance.findings import Result
from ropewalk.conformance.run import check_bounds, describe, run
from ropewalk.conformance.target import Target, find


class Broken(Exception):
    """A requirement failed."""

    def __init__(self, result: Result) -> None:
        super().__init__(f"{result.id} {result.title}")
        self.result = result


class Requirement(pytest.Item):
    """One requirement, one target."""

    def __init__(self, *, check: Check, target: Target, **given: Any) -> None:
        super().__init__(**given)
        self.check, self.target = check, target
        self.add_marker("ropewalk")

    def runtest(self) -> None:
        result = run(self.check, self.target)
        self.user_properties += [("status", result.status), ("measured", result.measured), ("bound", result.bound)]
        if result.status == "not applicable":
            pytest.skip(result.why or "not applicable")
        if result.status == "failed":
            raise Broken(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, Broken):
            return textwrap.dedent("\n".join(describe(excinfo.value.result)))
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name


class Requirements(pytest.Collector):
    """Those that apply to one target."""

    def collect(self) -> Iterator[Requirement]:
        try:
            target = find(self.name)
            check_bounds(target)
        except (ValueError, ImportError) as error:
            raise self.CollectError(f"--ropewalk {self.name}: {error}") from error
        file = getattr(sys.modules[self.name.partition(":")[0]], "__file__", None)
        for check in every().values():
            if check.refusal(target) is None:
                yield Requirement.from_parent(
                    self, name=f"{check.id} {check.title}", path=Path(file or "."), check=check, target=target
                )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before -k and -m choose among the items."""
    for name in dict.fromkeys(config.getoption("ropewalk")):
        asked = Requirements.from_parent(session, name=name, nodeid=f"ropewalk::{name}")
        items += [item for item in session.genitems(asked) if isinstance(item, pytest.Item)]
