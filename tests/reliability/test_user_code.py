"""What a user's model may do to the process that it runs in does not change results, or is noticed."""

import json
import os
from pathlib import Path

import pytest

from cfeval_cli.errors import Failure
from tests import inside
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
"""
USUAL = (
    "dataset=loans", "data_dir=.", "model=function", "model.path=score.py:f", "metric=[validity,recall]",
    "figures=[]", "report=false", "explainer_stability=0", "bounds=0", "cache=off", "resamples=0",
)  # fmt: skip


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = loans()
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    (tmp_path / "conf" / "dataset" / "loans.yaml").write_text(DATASET)
    table[:150].to_parquet(tmp_path / "train.parquet", index=False)
    table[150:].to_parquet(tmp_path / "test.parquet", index=False)
    return tmp_path


def test_a_model_that_changes_the_current_folder_moves_no_results(place):
    (place / "score.py").write_text(CHANGES_FOLDER)
    for seed in (1, 2):
        folder = Path(f"run-{seed}")
        folder.mkdir()
        words = ("explainer=[random,omission]", "n_explain=10", "n_jobs=1", f"seed={seed}")
        inside.run(folder, *USUAL, *words, folder=place / "conf")
        assert Path.cwd() == place
        assert json.loads((place / folder / "run.json").read_text())["status"] == "complete"


def test_a_model_that_answers_differently_in_worker_processes_is_noticed(place, monkeypatch):
    monkeypatch.setenv("HOME_PROCESS", str(os.getpid()))
    (place / "score.py").write_text(KNOWS_ITS_PROCESS)
    (place / "out").mkdir()
    words = ("explainer=[random,lime]", "n_jobs=2", "executor.min_seconds=0", "truth=[contrast]")
    with pytest.raises(Failure, match=r"from a worker process.*Use n_jobs=1"):
        inside.run(place / "out", *USUAL, *words, folder=place / "conf")
