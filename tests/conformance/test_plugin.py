"""`pytest --ropewalk MODULE:TARGET`, in processes of its own: this one has torch already."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import pytest

from ropewalk.conformance import run
from ropewalk.conformance.checks import every
from ropewalk.conformance.target import find

pytest_plugins = "pytester"

OPTION = "ropewalk.cli.pytest_option"
TARGETS = """
import torch

from ropewalk.conformance import Spec


class right:
    spec = Spec(head_width=16, heads=2, base=10_000, longest=100_000)

    def build(dtype=torch.float32, device="cpu"):
        return 10_000 ** (-torch.arange(0, 16, 2, dtype=torch.float64) / 16)

    def cos_sin(built, positions):
        angle = positions[..., None].double() * built.double()
        return angle.cos(), angle.sin()


class rounded(right):
    def build(dtype=torch.float32, device="cpu"):
        return right.build().to(torch.bfloat16)


class misspelt(right):
    spec = Spec(head_width=16, heads=2, base=10_000, longest=100_000, bounds={"N1": 5.0})
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(Path(run.__file__).parents[2]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    pytester.makepyfile(conf_plugin_targets=TARGETS)
    pytester.makepyfile(
        test_own="""
        import sys

        def test_own(pytestconfig):
            assert pytestconfig.getoption("ropewalk") or "torch" not in sys.modules
        """
    )
    return pytester


def pytest_in(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """The entry point is there only where the package was installed since it was written."""
    installed = [entry.value for entry in importlib.metadata.entry_points(group="pytest11", name="ropewalk")]
    here = () if installed == [OPTION] else ("-p", OPTION)
    return project.runpytest_subprocess(*here, "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *arguments)


def test_one_item_for_each_requirement_that_applies(project: pytest.Pytester) -> None:
    result = pytest_in(project, "--ropewalk", "conf_plugin_targets:rounded", "-rs", "--junitxml=report.xml")
    outcomes = result.parseoutcomes()
    project.syspathinsert()
    target = find("conf_plugin_targets:rounded")
    report = run.verify(target)
    refused = [check for check in every().values() if check.refusal(target) is not None]
    assert sum(outcomes.values()) == 1 + len(report.results) - len(refused)
    assert outcomes["failed"] == len(report.failed)
    assert outcomes["passed"] == 1 + len(report.of("passed"))
    assert result.ret == 1
    # The same words as the command's, reproduction and all.
    for failure in report.failed:
        for line in run.describe(failure):
            result.stdout.fnmatch_lines_random([f"*{line.strip()}".replace("[", "[[]")])
    result.stdout.fnmatch_lines(["*the frequencies were rounded to bfloat16*"])
    result.stdout.fnmatch_lines(["*reproduce: *from conf_plugin_targets import rounded as target*"])
    result.stdout.fnmatch_lines(["*what it builds is no nn.Module"])
    xml = (project.path / "report.xml").read_text(encoding="utf-8")
    assert 'classname="ropewalk.conf_plugin_targets:rounded" name="N07 frequencies' in xml


def test_what_holds_passes_and_can_be_chosen(project: pytest.Pytester) -> None:
    both = ("--ropewalk", "conf_plugin_targets:right", "--ropewalk", "conf_plugin_targets:rounded")
    result = pytest_in(project, *both, "-m", "ropewalk", "-k", "N07 or N08", "-v", "--strict-markers")
    result.assert_outcomes(passed=3, failed=1, deselected=result.parseoutcomes()["deselected"])
    result.stdout.fnmatch_lines(
        ["ropewalk::conf_plugin_targets:right::N08 attention scaling factors (mscale) are right PASSED*"]
    )
    result.stdout.fnmatch_lines(["ropewalk::conf_plugin_targets:rounded::N07 frequencies match the spec FAILED*"])


def test_without_the_option_nothing_is_imported_or_collected(project: pytest.Pytester) -> None:
    pytest_in(project).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("conf_plugin_targets:wrong", "conf_plugin_targets has no 'wrong'; it has right, rounded, misspelt"),
        ("conf_plugin_targets:misspelt", "bounds: no requirement 'N1'"),
        ("nowhere:target", "no module 'nowhere' to import"),
    ],
)
def test_no_target_is_an_error_of_collection(project: pytest.Pytester, target: str, says: str) -> None:
    result = pytest_in(project, "--ropewalk", target)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([f"--ropewalk {target}: {says}*"])


def test_the_entry_point_is_declared() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text)["project"]["entry-points"]["pytest11"] == {"ropewalk": OPTION}
