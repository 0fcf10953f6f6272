"""Explainers of the user: failures on some instances, and imports in worker processes."""

import json
import shutil

import pandas as pd
import pytest

from cfeval_cli.errors import Failure
from tests import inside
from tests.conftest import FEW_METRICS, SMALL_RUN, drop_overridden, run_cfeval

FAULTY = """
import signal
import time
from dataclasses import dataclass
import numpy as np
from cfeval_cli.core import Explainer, Explanation


@dataclass(frozen=True)
class Faulty(Explainer):
    every: int = 10
    kinds: int = 5
    access = 0

    def fit(self, dataset, model):
        ways = {int(i): n % self.kinds for n, i in enumerate(dataset.test.ids[:: self.every])}

        def function(batch):
            features = np.tile([0, 1], (len(batch), 1))
            scores = np.ones((len(batch), 2))
            for row, instance in enumerate(batch.ids.tolist()):
                way = ways.get(instance)
                if way == 0:
                    raise ValueError("<b>no</b> \\x1b[2J")
                if way == 1:
                    scores[row] = np.nan
                if way == 2:
                    features[row] = 3, 3
                if way == 3:
                    features[row] = 7, 0
                if way == 4:
                    assert 500 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1000  # so much is left
                    signal.setitimer(signal.ITIMER_REAL, 0.001, 1)  # and now nothing
                while way == 4:
                    time.sleep(60)
            return Explanation(features, scores)

        return function
"""
REASONS = (
    "ValueError: <b>no</b>",
    "gave NaN",
    "more than once: [3, 3]",
    "do not exist: [7, 0]",
    "no answer within 1000 s",
)


@pytest.fixture
def own(toy, tmp_path):
    """The settings of a run, of a folder of configs with that explainer in it."""
    shutil.copytree(toy.folder / "conf", tmp_path / "conf")
    (tmp_path / "conf" / "explainer").mkdir()
    (tmp_path / "faulty.py").write_text(FAULTY)
    (tmp_path / "conf" / "explainer" / "faulty.yaml").write_text(
        "faulty: {_target_: faulty.Faulty, every: 10, kinds: 5}\n"
    )
    return [
        *toy.arguments[2:],
        "explainer=[random,faulty,lr]",
        "metric=[validity,c,recall]",
        "truth=[signed]",
        "bounds=0",
        "explainer_stability=0",
        "reparametrisations=0",
        "resamples=0",
        "figures=[]",
        "report=false",
        "cache=off",
        "timeout_per_instance=1000",
    ]


def left_out(folder):
    """How many instances are left out, and of how many, with all reasons."""
    record = json.loads((folder / "run.json").read_text())
    explanations = pd.read_parquet(folder / "explanations.parquet")
    faults = explanations[explanations["fault"].notna()]
    assert set(faults["explainer"]) == {"faulty"} and len(faults) == record["explained"]["faulty"]["faults"]
    assert all(faults["fault"].str.contains(reason, regex=False).any() for reason in REASONS)
    assert (faults["features"].map(len) == 0).all()
    n = record["instances"]
    metrics = pd.read_csv(folder / "metrics.csv").set_index(["metric", "variant", "explainer"])
    assert metrics.loc[("coverage", "all", "faulty"), "value"] == pytest.approx(1 - len(faults) / n)
    assert metrics.loc[("validity", "label", "faulty"), "own_n"] == n - len(faults)  # they are not filled up at random
    assert metrics.loc[("validity", "label", "lr"), "own_n"] == n
    return len(faults), n


@pytest.fixture
def compute(own, tmp_path, monkeypatch):
    """Makes a run in this process."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "run").mkdir()
    return lambda *options: inside.run(tmp_path / "run", *own, *options, folder=tmp_path / "conf")


@pytest.mark.parametrize("incomplete", ["skip", "random"])
def test_other_instances_are_explained_and_failures_are_counted(compute, caplog, incomplete):
    """Nothing is filled up at random where there is no explanation."""
    folder = compute(f"incomplete={incomplete}")
    faults, n = left_out(folder)
    note = f"Faulty returned no explanation for {faults:,} of {n:,} instances, which are left out: "
    text = (folder / "tables.md").read_text()
    assert note.lower() in " ".join(text.replace("†", "").split()).lower() and "faulty" in caplog.text
    assert "\x1b" not in text


def test_strict_stops_at_the_first(compute, tmp_path):
    with pytest.raises(Failure, match=r"explainer\.faulty, instance .*ValueError: <b>no</b>.*With strict=false"):
        compute("strict=true")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert "explanations.parquet" in record["files"]


def test_a_failing_explainer_does_not_affect_the_others(compute, tmp_path):
    never = ["explainer.faulty.every=1", "explainer.faulty.kinds=4", "timeout_per_instance=null"]
    compute(*never, "n_explain=20")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["status"] == "complete" and record["explained"]["faulty"]["faults"] == 20
    metrics = pd.read_csv(tmp_path / "run" / "metrics.csv")
    rows = metrics[(metrics["explainer"] == "faulty") & (metrics["metric"] != "coverage")]
    assert rows["value"].isna().all() and (metrics[metrics["explainer"] == "lr"]["value"].notna()).any()
    assert "0.0%" in (tmp_path / "run" / "tables.md").read_text()


IMPORTING = """\
from cfeval_cli.explainer.random import Random

class Own(Random):
    def fit(self, dataset, model):
        from helper import times

        explain = super().fit(dataset, model)
        return lambda batch: [explain(batch) for _ in range(times)][0]
"""
WORKERS = [*drop_overridden([*SMALL_RUN, FEW_METRICS], ["n_jobs=2"]), "n_jobs=2", "executor.min_seconds=0"]


def test_a_component_in_the_working_directory_is_found_in_workers_too(toy, tmp_path):
    """Also by workers that an earlier job of a sweep started, and what it imports only when it is called."""
    (tmp_path / "conf" / "explainer").mkdir(parents=True)
    shutil.copytree(toy.folder / "conf" / "dataset", tmp_path / "conf" / "dataset")
    (tmp_path / "conf" / "explainer" / "own.yaml").write_text("own: {_target_: own_explainer.Own}\n")
    (tmp_path / "own_explainer.py").write_text(IMPORTING)
    (tmp_path / "helper.py").write_text("times = 2\n")
    words = ["--multirun", *toy.arguments[2:], "explainer=[random,omission],[random,own]", "strict=true"]
    run_cfeval("run", *words, *WORKERS, "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert "own" in (tmp_path / "sweep" / "1" / "metrics.csv").read_text()


@pytest.mark.parametrize("command", ["report", "run"])
def test_modules_in_the_working_directory_are_not_imported(toy, make_run, tmp_path, command):
    working_folder = tmp_path / "here"
    (working_folder / "hydra_plugins").mkdir(parents=True)
    # packages that pandas looks for, and those that worker processes and downloads start with
    for name in ("numexpr", "bottleneck", "joblib", "argparse", "pip", "hydra_plugins/other"):
        (working_folder / f"{name}.py").write_text(
            f"open({str(tmp_path / 'imported')!r}, 'w').close()\nraise ImportError\n"
        )
    if command == "report":
        shutil.copytree(make_run(toy, "explainer=[random,omission]"), working_folder / "run")
        run_cfeval("report", "run", cwd=working_folder)
    else:
        run_cfeval("run", *toy.arguments, *WORKERS, "explainer=[random,omission]", cwd=working_folder)
    assert not (tmp_path / "imported").exists()
