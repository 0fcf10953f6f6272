"""`sys.exit()` in a user's code ends a run as a failure, wherever that code runs."""

import json
import sys
import time

import pytest

from cfeval_cli.api import evaluate
from cfeval_cli.core import Access, Metric
from cfeval_cli.errors import Failure, refuse_exit, refuse_system_exit
from cfeval_cli.explainer.random import Random
from cfeval_cli.pipeline.time_limit import TimeLimitExceeded, limit_time
from tests.conftest import run_cfeval
from tests.tables import QUICK, make_loans, predict_proba

DATASET = """\
_target_: cfeval_cli.dataset.tabular.TabularData
name: data
file: {_target_: cfeval_cli.dataset.sources.DataFile, name: train.parquet}
split: {test: {_target_: cfeval_cli.dataset.sources.DataFile, name: test.parquet}}
balance: false
label: paid
classes: ["no", "yes"]
features: {age: number, home: category, member: category, income: number}
"""
SCORE = """\
import sys

calls = 0

def f(rows):
    global calls
    calls += 1
    if calls > 45:
        sys.exit(0)
    return (rows["age"].astype(float) > 45).to_numpy() * 0.5 + 0.2

class Aborted(BaseException):
    pass
"""


class LeavingMetric(Metric):
    name = "leaving"
    title = "Leaving"
    display_order = 45
    better = "lower"
    range = (0.0, 1.0)
    access = Access.LABEL

    def score(self, case):
        sys.exit()


class LeavingExplainer(Random):
    def fit(self, dataset, model):
        def explain(batch):
            sys.exit(3)

        return explain


class LeavingModel:
    """Answers some calls, then ends the process."""

    def __init__(self, calls):
        self.calls = calls

    def __call__(self, rows):
        self.calls -= 1
        if self.calls < 0:
            sys.exit(0)
        return predict_proba(rows)


@pytest.mark.parametrize("code", [0, None, 3, "a text"])
def test_an_exit_is_a_failure_that_names_its_place(code):
    with pytest.raises(Failure, match=r"test_exit.py, line \d+ ended the process by sys.exit"), refuse_exit():
        sys.exit(code)


@pytest.mark.parametrize(
    ("model", "components"),
    [
        (LeavingModel(0), {}),
        (LeavingModel(25), {}),
        (predict_proba, {"explainers": [LeavingExplainer()]}),
        (predict_proba, {"metrics": [LeavingMetric(), "recall"]}),
    ],
)
def test_an_exit_within_evaluate_is_a_failure(tmp_path, monkeypatch, model, components):
    table = make_loans()
    defaults = {"explainers": ["omission"], "metrics": ["validity", "recall"], "n_explain": 10}
    with pytest.raises(Failure, match=r"ended the process by sys.exit"):
        evaluate(model, table[:150], table[150:], label="paid", settings=QUICK, into=tmp_path, **defaults | components)
    record = tmp_path / "run.json"
    assert not record.exists() or json.loads(record.read_text())["status"] == "failed"


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        ("sys.exit(0)", "score.py, line 9 ended the process by sys.exit(0): the command is not complete."),
        ("raise Aborted('done')", "Aborted: done (score.py:9): the command is not complete."),
    ],
)
def test_the_command_ends_with_code_1_and_the_run_has_failed(tmp_path, ending, message):
    table = make_loans()
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    (tmp_path / "conf" / "dataset" / "loans.yaml").write_text(DATASET)
    table[:150].to_parquet(tmp_path / "train.parquet", index=False)
    table[150:].to_parquet(tmp_path / "test.parquet", index=False)
    (tmp_path / "score.py").write_text(SCORE.replace("sys.exit(0)", ending))
    process = run_cfeval(
        "run", "dataset=loans", "data_dir=.", "model=function", "model.path=score.py:f", "explainer=[random,omission]",
        "metric=[validity,recall]", "n_explain=10", "n_jobs=1", "figures=[]", "report=false",
        "explainer_stability=0", "bounds=0",
        "cache=off", "hydra.run.dir=out", cwd=tmp_path, code=1,
    )  # fmt: skip
    assert message in process.stderr
    assert json.loads((tmp_path / "out" / "run.json").read_text())["status"] == "failed"


def test_a_time_limit_and_ctrl_c_are_not_turned_into_failures():
    with pytest.raises(TimeLimitExceeded), limit_time(0.01), refuse_system_exit():
        time.sleep(1)
    with pytest.raises(KeyboardInterrupt), refuse_exit():
        raise KeyboardInterrupt
