"""The working directory may be someone else's: what lies there is not executed or obeyed unless the user names it."""

import os
import shutil

import pytest

from tests.conftest import LITTLE, SCORED, cfeval, seal, unless

# Packages that pandas looks for, and those that worker processes and downloads start with.
TRAPS = ("numexpr", "bottleneck", "joblib", "argparse", "pip", "hydra_plugins/evil", "payload")
TRAP = "from pathlib import Path\nPath({place!r}).touch()\nraise ImportError\n"
EXPLAINER = """\
from cfeval_cli.explainer.random import Random

class {name}(Random):
    def fit(self, dataset, model):
        from helper_of_mine import times

        explain = super().fit(dataset, model)
        return lambda batch: [explain(batch) for _ in range(times)][0]
"""
DATASET = """\
_target_: cfeval_cli.dataset.tabular.Table
name: evil
file:
  _target_: cfeval_cli.dataset.sources.File
  name: evil.csv
  sources: [{_target_: SOURCE}]
label: y
classes: [a, b]
features: {x: number}
"""
SOURCES = {
    "evil": "payload.Source", "worse": "cfeval_cli.dataset.sources.subprocess.Popen", "worst": "os.mkdir",
}  # fmt: skip
WORKERS = [*unless([*LITTLE, SCORED], ["n_jobs=2"]), "n_jobs=2", "executor.min_seconds=0"]


@pytest.fixture
def trapped(tmp_path):
    """A working directory with code that leaves a file if it is executed."""
    folder = tmp_path / "here"
    (folder / "hydra_plugins").mkdir(parents=True)
    for name in TRAPS:
        (folder / f"{name}.py").write_text(TRAP.format(place=str(tmp_path / f"executed_{name.replace('/', '.')}")))
    os.mkfifo(folder / "matplotlibrc")  # who reads it waits for ever
    yield folder
    assert not list(tmp_path.glob("executed_*"))


def test_no_command_runs_or_obeys_what_lies_in_the_working_directory(trapped, toy, made):
    shutil.copytree(made(toy, "explainer=[random,omission]"), trapped / "run")
    for name in ("report.html", "figures"):
        shutil.rmtree(trapped / "run" / name, ignore_errors=True)
    cfeval("report", "run", cwd=trapped)
    assert (trapped / "run" / "report.html").exists()
    # datasets that nobody named are listed without code of their configs
    (trapped / "conf" / "dataset").mkdir(parents=True)
    for name, source in SOURCES.items():
        text = DATASET.replace("SOURCE", source).replace("evil", name)
        (trapped / "conf" / "dataset" / f"{name}.yaml").write_text(text)
    for action in ("list", "verify"):
        done = cfeval("data", action, cwd=trapped)
        assert "german" in done.stdout
        for name, source in SOURCES.items():
            assert name not in done.stdout
            assert f"dataset {name} is left out: its config uses {source}" in done.stderr
    (trapped / "begun").mkdir()
    seal(trapped / "begun", {"status": "running"}, ["explainer=[random,omission]"])
    cfeval("run", "--resume", "begun", *toy.arguments, *WORKERS, cwd=trapped)
    assert (trapped / "begun" / "metrics.csv").exists()


def test_a_component_in_the_working_directory_is_found_in_workers_too(toy, tmp_path):
    """Also by workers that an earlier job of a sweep started, and what it imports only when it is called."""
    (tmp_path / "conf" / "explainer").mkdir(parents=True)
    shutil.copytree(toy.folder / "conf" / "dataset", tmp_path / "conf" / "dataset")
    (tmp_path / "conf" / "explainer" / "mine.yaml").write_text("mine: {_target_: of_mine.Mine}\n")
    (tmp_path / "of_mine.py").write_text(EXPLAINER.format(name="Mine"))
    (tmp_path / "helper_of_mine.py").write_text("times = 2\n")
    words = ["--multirun", *toy.arguments[2:], "explainer=[random,omission],[random,mine]", "strict=true"]
    cfeval("run", *words, *WORKERS, "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert "mine" in (tmp_path / "sweep" / "1" / "metrics.csv").read_text()
