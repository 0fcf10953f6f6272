"""What belongs to the project and not to the program: its version, its changelog, its hooks."""

import re
import subprocess
import tomllib
from datetime import date
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

import cfeval_cli
from cfeval_cli.report.page import methods

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HEADINGS = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)


def test_all_files_state_the_same_version():
    assert "version" not in PROJECT["project"] and PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "cfeval_cli.__version__"}
    assert version("cfeval") == cfeval_cli.__version__
    assert "version" not in yaml.safe_load((ROOT / "CITATION.cff").read_text())  # which would have to be kept in step
    assert cfeval_cli.__version__ in methods.write_citation(cfeval_cli.__version__)


def test_every_package_is_installed():
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "cfeval_cli").rglob("__init__.py")}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == folders | {"cfeval_cli.conf"}


def test_the_changelog_begins_with_this_version_and_each_older_one_has_its_date():
    matches = [re.fullmatch(r"(\d+\.\d+\.\d+) \((unreleased|\d{4}-\d\d-\d\d)\)", heading) for heading in HEADINGS]
    assert all(matches) and matches[0][1] == cfeval_cli.__version__
    numbers = [tuple(map(int, match[1].split("."))) for match in matches]
    assert numbers == sorted(set(numbers), reverse=True)
    days = [date.fromisoformat(match[2]) for match in matches if match[2] != "unreleased"]
    assert len(days) >= len(matches) - 1 and days == sorted(days, reverse=True)  # only the first may be unreleased


def test_every_tag_of_a_version_has_its_heading():
    try:
        done = subprocess.run(["git", "tag", "--list", "v*"], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git here, or no clone")
    released = {f"v{heading.split()[0]}" for heading in HEADINGS if "unreleased" not in heading}
    assert set(done.stdout.split()) <= released
    assert "tag the commit `v<version>`" in (ROOT / "CONTRIBUTING.md").read_text()


def test_the_hooks_before_a_commit_are_those_of_make_lint():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    assert [repo["repo"] for repo in config["repos"]] == ["local"]  # the versions of constraints.txt, and no network
    lint = re.findall(
        r"^\t\$\(BIN\)/(.*)$", (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0], re.M
    )
    called = [hook["entry"].removeprefix(".venv/bin/").replace(" --force-exclude", "") for hook in hooks]
    assert called == [line.removesuffix(" .") for line in lint] and len(called) == 3


def test_every_test_has_a_time_limit(pytestconfig, request):
    assert 0 < float(pytestconfig.getini("faulthandler_timeout")) < float(pytestconfig.getini("timeout"))
    slow = [item for item in request.session.items if item.get_closest_marker("slow")]
    assert all(item.get_closest_marker("timeout") for item in slow)
