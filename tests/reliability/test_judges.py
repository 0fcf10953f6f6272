"""A run that is killed within a judge is resumed there, with the same tables."""

import json

import pytest

from tests.conftest import run_cfeval
from tests.reliability.places import Place, follow_command
from tests.reliability.test_resume import TIMES

SETTINGS = (
    "model=estimator", "+model.estimator.max_iter=5", "k=1", "explainer=[random,omission,lime]",
    "explainer.lime.n_samples=50",
    "judge=[tree,logistic]", "judge.tree.distill=true", "metric=[comprehensiveness,validity_soft,recall]",
    "explainer_stability=0",
    "reparametrisations=0", "n_explain=17", "truth=[shapley,signed]", "truth.shapley.budget=50",
    "bounds=0", "resamples=100", "reference=20", "figures=[]", "report=false", "cache=off", "n_jobs=1",
)  # fmt: skip
CHUNKS = 2  # that an explainer takes for the run's own model, and again for each judge


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("judges")


def words(toy, folder):
    return ["run", *toy.arguments, *SETTINGS, f"hydra.run.dir={folder}"]


def tables(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and ".hydra" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.name not in TIMES}


@pytest.fixture(scope="module")
def full_run_tables(toy, make_run):
    contents = tables(make_run(toy, *SETTINGS))
    assert {"recommendation.json", "judges/tree/metrics.csv", "judges/logistic/scores.parquet"} <= set(contents)
    return contents


SLOW_PLACES = [
    Place("chunk", "explain: lime", CHUNKS + 1), Place("chunk", "explain: omission", 3 * CHUNKS),
    Place("chunk", "search: lime", 2), Place("chunk", "truth: shapley", 2), Place("written", "model.npz", 1),
    Place("written", "metrics.csv", 1), Place("written", "metrics.csv", 2), Place("begun", "scores.parquet", 2),
    Place("written", "recommendation.json", 1), Place("begun", "tables.md", 2), Place("call", "conclude", 500),
]  # fmt: skip


@pytest.mark.parametrize(
    "at",
    [
        Place("chunk", "explain: lime", 2 * CHUNKS + 1),  # while the second judge is explained
        *(pytest.param(place, marks=pytest.mark.slow) for place in SLOW_PLACES),
    ],
    ids=str,
)
def test_killed_anywhere(toy, place, full_run_tables, at):
    folder = place / f"{at.kind}-{at.name}-{at.number}".replace(": ", "-")
    follow_command(words(toy, folder), place, at)
    assert json.loads((folder / "run.json").read_text())["status"] == "running"
    run_cfeval("run", "--resume", str(folder), *toy.arguments, SETTINGS[1], cwd=place)
    assert tables(folder) == full_run_tables
