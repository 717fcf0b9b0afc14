"""What a release needs: a package description without dead links, workflows pinned by hash, forms in two languages."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(file for file in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if file.name != "config.yml")
SOURCE = "https://github.com/ropewalk/ropewalk"


@pytest.fixture(scope="module")
def readme_links() -> ModuleType:
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("readme_links", ROOT / "scripts" / "readme_links.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_description_has_no_relative_links(readme_links: ModuleType) -> None:
    made = readme_links.absolute((ROOT / "README.md").read_text(encoding="utf-8"), SOURCE, "v1.0")
    links = re.findall(r"\]\(([^()\s]+)\)", made)
    ours = [link for link in links if link.startswith(SOURCE)]
    assert len(ours) > 20
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    for link in ours:
        kind, version, path = link.removeprefix(f"{SOURCE}/").split("/", 2)
        assert version == "v1.0"
        assert kind == ("raw" if path.endswith((".svg", ".png")) else "blob")
        assert (ROOT / path.partition("#")[0]).exists(), path


def test_links_of_code_are_left_alone(readme_links: ModuleType) -> None:
    text = "[a](https://x.org/b) [c](#d) `f(x)` [g[h]](docs/i.md) ![j](k.svg)"
    assert readme_links.absolute(text, "https://s", "v2") == (
        "[a](https://x.org/b) [c](#d) `f(x)` [g[h]](https://s/blob/v2/docs/i.md) ![j](https://s/raw/v2/k.svg)"
    )


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_workflows_are_pinned_and_may_do_little(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    used = re.findall(r"uses: (\S+)(.*)", text)
    assert used
    for action, comment in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action
    made = yaml.safe_load(text)
    assert made["permissions"] == {}
    writes = [name for name, job in made["jobs"].items() if "write" in str(job["permissions"])]
    assert writes == {"release.yml": ["publish"], "docs.yml": ["deploy"]}.get(file.name, [])
    assert all("timeout-minutes" in job for job in made["jobs"].values())


def test_versions_are_said_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    ci = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    rows = ci["jobs"]["test"]["strategy"]["matrix"]["include"]
    versions, pythons = {row["torch"] for row in rows}, {row["python"] for row in rows}
    named = {line.rpartition(" :: ")[2] for line in project["classifiers"] if line.startswith("Programming Language")}
    assert pythons <= named
    assert project["requires-python"] == f">={min(named - {'3'}, key=lambda one: int(one.partition('.')[2]))}"
    assert pinned["torch"] in versions
    lowest = next(line for line in project["dependencies"] if line.startswith("torch")).partition(">=")[2]
    assert f"{lowest}.0" in versions
    assert f"hatchling=={pinned['hatchling']}" in (ROOT / ".github" / "workflows" / "release.yml").read_text()
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["repository-code"]) == (project["version"], project["urls"]["Source"])


@pytest.mark.parametrize("file", FORMS, ids=lambda file: file.name)
def test_forms_are_in_two_languages(file: Path) -> None:
    form = yaml.safe_load(file.read_text(encoding="utf-8"))
    shown = [form["name"], form["description"]]
    for part in form["body"]:
        said = part["attributes"]
        shown += [said[key] for key in ("label", "description", "value") if key in said]
    assert all(re.search(r"[A-Za-z].* · .*[\u4e00-\u9fff]", text) for text in shown), shown
