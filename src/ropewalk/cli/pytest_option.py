"""The option `--ropewalk` of pytest, which finds it by our entry point.

Light, and outside the suite's package: pytest imports this on every run of every project that has us installed, and
torch must not come with it. Only the option brings the suite (`ropewalk.conformance.plugin`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("ropewalk", "position code").addoption(
        "--ropewalk",
        action="append",
        default=[],
        metavar="MODULE:TARGET",
        help="Run the checks of `ropewalk verify` on this target, one test for each requirement; may be repeated.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ropewalk: a requirement that --ropewalk checks a target against")
    if config.getoption("ropewalk"):
        from ropewalk.conformance import plugin

        config.pluginmanager.register(plugin, "ropewalk-conformance")
