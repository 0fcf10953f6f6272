"""A run with its judges, tables, figures and page, called as a function."""

import json

from cfeval_cli.api.experiment import run_experiment
from cfeval_cli.pipeline.progress import Progress
from cfeval_cli.results.folder import RunFolder
from tests import inside
from tests.conftest import SMALL_RUN


def test_complete_run_is_not_computed_again(toy, tmp_path):
    settings = (
        *toy.arguments[2:],
        *SMALL_RUN,
        "explainer=[random,lr]",
        "metric=[c,recall]",
        "n_explain=20",
        "judge=[tree]",
    )
    plan = inside.make_plan(*settings, folder=toy.folder / "conf")
    for is_first in (True, False):
        folder = RunFolder(tmp_path, ["cfeval", "run"])
        with folder.open():
            report = run_experiment(plan, folder, Progress())
        assert (report is not None) == is_first
        record = json.loads((tmp_path / "run.json").read_text())
        assert record["status"] == "complete" and {"tables.md", "metrics.csv"} <= set(record["files"])
        judge = json.loads((tmp_path / "judges" / "tree" / "run.json").read_text())
        assert judge["status"] == "complete" and "tables.md" in judge["files"]
