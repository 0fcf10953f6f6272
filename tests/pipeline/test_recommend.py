"""Judges beside a run: folders of their own, found again, and the recommendation that rests on them."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from cfeval_cli.api.experiment import run_experiment
from cfeval_cli.errors import UserError
from cfeval_cli.pipeline import run as pipeline
from cfeval_cli.pipeline.progress import Progress
from cfeval_cli.pipeline.recommend import plan_judge
from cfeval_cli.report.page.build import Report
from cfeval_cli.results import read as folders
from cfeval_cli.results.folder import RunFolder
from tests import inside
from tests.conftest import SMALL_RUN

CHOSEN = ("model=estimator", "+model.estimator.max_iter=5", "explainer=[random,omission,lime]",
          "explainer.lime.n_samples=50", "truth.shapley.budget=60", "judge=[tree]", "judge.tree.distill=true",
          "metric=[comprehensiveness,validity_soft,recall]")  # fmt: skip


@pytest.fixture(scope="module")
def run(toy, make_run):
    return make_run(toy, *CHOSEN, "n_explain=30")


def test_a_judge_has_a_folder_of_its_own_with_the_same_instances_and_explainers(run):
    own_values, package_values = (
        json.loads((folder / "run.json").read_text()) for folder in (run, run / "judges" / "tree")
    )
    assert (
        package_values["status"] == "complete"
        and package_values["fidelity"]["test"] > 0.5
        and "fidelity" not in own_values
    )
    assert list(package_values["explainers"]) == list(own_values["explainers"])
    component, second = (pd.read_parquet(f / "instances.parquet")["instance"] for f in (run, run / "judges" / "tree"))
    assert component.tolist() == second.tolist()
    assert "tables.md" in package_values["files"] and "recommendation.json" in own_values["files"]


def test_the_recommendation_leads_and_rests_on_the_truth_the_rule_and_the_judge(run):
    result = json.loads((run / "recommendation.json").read_text())["questions"]
    assert {name: component["believed"] for name, component in result.items()} == {
        "contribution": "reference",
        "change": "reference",
    }
    for component in result.values():
        assert [judge["judge"] for judge in component["judges"]] == ["tree"] and component["judges"][0]["fidelity"][
            "test"
        ] > 0.5
        assert set(component["reference"]["values"]) == {"omission", "lime"}
    metrics = pd.read_csv(run / "metrics.csv").set_index(["metric", "variant", "explainer"])["value"]
    for question, truth in (("contribution", "shapley"), ("change", "contrast")):
        for name, value in result[question]["reference"]["values"].items():
            assert value == pytest.approx(metrics["recall", truth, name])
    first = (run / "tables.md").read_text().splitlines()[0]
    assert first == "**Which explainer to use on this model**"
    report = Report(folders.read_results(run))
    assert len(report.recommendation.headlines) == 2 and "What contributed?" in report.render_page({}, [])


def test_the_explained_model_is_trained_once_and_what_a_judge_has_finished_is_not_computed_again(
    toy, tmp_path, monkeypatch
):
    overrides = [*toy.arguments[2:], *SMALL_RUN, *CHOSEN, "n_explain=10", "resamples=0"]
    plan = inside.make_plan(*overrides, folder=toy.folder / "conf")
    received = []
    train = pipeline.train_model
    monkeypatch.setattr(
        pipeline, "train_model", lambda plan, *remainder: received.append(plan.model) or train(plan, *remainder)
    )

    def again():
        folder = RunFolder(tmp_path, ["cfeval", "run"])
        with folder.open():
            assert run_experiment(plan, folder, Progress())
        names = ("recommendation.json", "metrics.csv", "scores.parquet", "judges/tree/metrics.csv")
        return {name: (tmp_path / name).read_bytes() for name in names}

    first = again()
    assert received == [plan.model, plan.judges["tree"].make_trainable(plan.model)]
    record = json.loads((tmp_path / "run.json").read_text())
    record["status"] = "stopped"
    (tmp_path / "run.json").write_text(json.dumps(record))
    received.clear()
    assert again() == first
    assert received == [plan.model]  # the judge's folder is complete


def test_who_explains_one_model_only_explains_no_judge(toy):
    plan = inside.make_plan(*toy.arguments[2:], "judge=[tree]", folder=toy.folder / "conf")
    with pytest.raises(UserError, match="no explainer of this run can explain another model"):
        plan_judge(replace(plan, explainers={"mine": _Only()}), plan.judges["tree"])


class _Only:
    portable = False
