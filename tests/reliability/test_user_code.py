"""What a user's model may do to the process that it runs in does not change results, or is noticed."""

import json

import pytest

from tests.conftest import cfeval
from tests.reliability.test_exit import DATASET
from tests.tables import loans

CHANGES_FOLDER = """\
import os

def f(rows):
    os.chdir("/")
    return (rows["age"].astype(float) > 45).to_numpy() * 0.5 + 0.2
"""
KNOWS_ITS_PROCESS = """\
import os

def f(rows):
    p = (rows["age"].astype(float) > 45).to_numpy() * 0.5 + 0.2
    return 1 - p if os.environ.get("HOME_PROCESS") != str(os.getpid()) else p

os.environ.setdefault("HOME_PROCESS", str(os.getpid()))
"""
USUAL = (
    "dataset=loans", "data_dir=.", "model=function", "model.path=score.py:f", "metric=[validity,recall]",
    "figures=[]", "report=false", "noise=0", "bounds=0", "cache=off", "resamples=0",
)  # fmt: skip


@pytest.fixture
def place(tmp_path):
    table = loans()
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    (tmp_path / "conf" / "dataset" / "loans.yaml").write_text(DATASET)
    table[:150].to_parquet(tmp_path / "train.parquet", index=False)
    table[150:].to_parquet(tmp_path / "test.parquet", index=False)
    return tmp_path


def test_a_model_that_changes_the_current_folder_moves_no_results(place):
    (place / "score.py").write_text(CHANGES_FOLDER)
    words = ("explainer=[random,omission]", "n_explain=10", "n_jobs=1", "hydra.sweep.dir=sweep")
    cfeval("run", "--multirun", *USUAL, *words, "seed=1,2", cwd=place)
    for job in "01":
        assert json.loads((place / "sweep" / job / "run.json").read_text())["status"] == "complete"


def test_a_model_that_answers_differently_in_worker_processes_is_noticed(place):
    (place / "score.py").write_text(KNOWS_ITS_PROCESS)
    words = ("explainer=[random,lime]", "n_jobs=2", "executor.min_seconds=0", "truth=[contrast]", "gold=contrast")
    done = cfeval("run", *USUAL, *words, "hydra.run.dir=out", cwd=place, code=1)
    assert "from a worker process" in done.stderr and "Use n_jobs=1" in done.stderr
    assert json.loads((place / "out" / "run.json").read_text())["status"] == "failed"
