"""The package as it is installed: built, put into a new environment, and run far from the repository."""

import json
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

from tests.conftest import find_only_run, run_cfeval

ROOT = Path(__file__).parents[2]
BACKEND = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["build-backend"]

EXTRA = """\
defaults:
  - /removal@everything_but_colour.removals: [zero]

everything_but_colour:
  _target_: cfeval_cli.explainer.omission.Omission
  removal: zero
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The `cfeval` command of an environment that has the wheel and borrows the dependencies of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    # a copy, so that no build folder is left in the repository
    shutil.copytree(
        ROOT, source, ignore=shutil.ignore_patterns(".venv", ".git", "outputs", "multirun", "data", ".*_cache")
    )
    # what `python -m build --wheel` has the backend do
    build = f"import {BACKEND} as backend; backend.build_wheel({str(folder)!r})"
    subprocess.run([sys.executable, "-c", build], check=True, capture_output=True, cwd=source)
    shutil.rmtree(source)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "env")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "env" / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    (packages,) = (folder / "env").glob("lib/python*/site-packages")
    # only the dependencies: .pth files in the borrowed folder, the editable install's among them, are not read
    (packages / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "env" / "bin" / "cfeval"


def test_it_runs_from_an_empty_folder_with_a_users_own_configs(installed, toy, tmp_path):
    where = subprocess.run(
        [str(installed.parent / "python"), "-c", "import cfeval_cli; print(cfeval_cli.__file__)"],
        check=True, capture_output=True, text=True, cwd=tmp_path,
    ).stdout  # fmt: skip
    assert where.startswith(str(installed.parents[1]))
    own = tmp_path / "own"
    shutil.copytree(toy.folder / "conf", own)
    (own / "explainer").mkdir()
    (own / "explainer" / "everything_but_colour.yaml").write_text(EXTRA)
    cwd = tmp_path / "far" / "away"
    cwd.mkdir(parents=True)
    arguments = ["--config-dir", str(own), "dataset=toy", f"data_dir={toy.folder / 'data'}", "n_explain=10"]
    settings = ["explainer=[lr,random,everything_but_colour]", "metric=[c,recall]", "truth=[signed]"]
    settings += ["resamples=100", "explainer_stability=0", "bounds=0", "reparametrisations=0"]
    run_cfeval("run", *arguments, *settings, cwd=cwd, executable=installed)
    suffixes = {path.suffix for path in find_only_run(cwd).rglob("*")}
    assert suffixes >= {".svg", ".html", ".parquet", ".csv", ".md", ".tex"}  # all that is the default
    record = json.loads((find_only_run(cwd) / "run.json").read_text())
    assert record["status"] == "complete" and record["git_commit"] is None
    assert record["explainers"] == {"random": "Random", "everything_but_colour": "Omission", "lr": "LR"}
    assert sorted(p.name for p in cwd.iterdir()) == ["outputs"]


def test_help_completion_and_data_commands_work(installed, tmp_path):
    explainers = run_cfeval("run", "--help", "explainer", cwd=tmp_path, executable=installed).stdout
    assert "\nagainst: Reversed ground truth" in explainers
    assert "adult.data" in run_cfeval("data", "list", "adults", cwd=tmp_path, executable=installed).stdout
    assert "findings" in run_cfeval("paper", "audit", cwd=tmp_path, executable=installed).stdout
    line = {"COMP_LINE": "cfeval run search=", "COMP_POINT": "18"}
    assert "search=discrete" in run_cfeval("-sc", "query=bash", cwd=tmp_path, executable=installed, env=line).stdout
