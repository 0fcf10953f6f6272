"""The answer of a run, and judges beside it in folders of their own."""

import html
import json
from dataclasses import replace

import numpy as np
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
from cfeval_cli.results.read import read_recommendation
from tests import inside
from tests.conftest import SMALL_RUN

ARGUMENTS = ("model=estimator", "+model.estimator.max_iter=5", "k=1", "min_per_class=0",
          "explainer=[random,omission,lime]",
          "explainer.lime.n_samples=50", "truth.shapley.budget=60", "judge=[tree]", "judge.tree.distill=true",
          "metric=[comprehensiveness,validity_soft,recall]")  # fmt: skip


@pytest.fixture(scope="module")
def run(toy, make_run):
    return make_run(toy, *ARGUMENTS, "n_explain=30")


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


def test_answer_follows_from_the_explanations_and_the_reference_attributions(run):
    recommendation = read_recommendation(run)
    truth = pd.read_parquet(run / "truth.parquet")
    explanations = pd.read_parquet(run / "explanations.parquet").set_index(["explainer", "instance"])["features"]
    for question, name in (("contribution", "shapley"), ("change", "contrast")):
        answer = recommendation.answers[question]
        rows = truth[truth["truth"] == name].dropna().set_index("instance")
        importance = np.stack(rows["importance"].to_list())
        assert answer.truth == name and answer.n_instances == len(rows) == 30
        for score in answer.scores:
            shares = []
            for instance, values in zip(rows.index, importance, strict=True):
                selected = list(explanations[score.explainer, instance])[: recommendation.k]
                is_best = values == values.max()
                shares.append(is_best[selected].sum() / is_best.sum())
            assert score.recall[0] == pytest.approx(np.mean(shares)), (question, score.explainer)


def test_judges_and_metrics_are_checks_of_the_answer(run):
    for answer in read_recommendation(run).answers.values():
        sources = {check.source: check for check in answer.checks}
        assert set(sources) == {"metric", "judge"} and sources["judge"].name == "tree"
        assert sources["judge"].fidelity > 0.5
        for check in answer.checks:
            assert check.agrees == bool(set(check.first) & set(answer.confidence_set))


def test_answer_leads_tables_page_and_log(run):
    results = folders.read_results(run)
    report = Report(results)
    assert (run / "tables.md").read_text().startswith("**Contribution: agreement with the reference attributions**")
    page = html.unescape(report.render_page({}, []))
    assert all(answer.statement in page for answer in report.recommendation.answers.values())
    assert report.headlines[0].startswith("Contribution: ") and report.headlines[1].startswith("Change: ")


def test_answer_is_announced_before_the_search(toy, tmp_path, caplog):
    plan = inside.make_plan(*toy.arguments[2:], *SMALL_RUN, *ARGUMENTS[:-3], "n_explain=10", folder=toy.folder / "conf")
    folder = RunFolder(tmp_path, ["cfeval", "run"])
    with caplog.at_level("INFO"), folder.open():
        run_experiment(plan, folder, Progress())
    lines = [record.getMessage() for record in caplog.records]
    first_search = next(i for i, line in enumerate(lines) if line.startswith("search"))
    assert [line.partition(":")[0] for line in lines[:first_search]][-2:] == ["Contribution", "Change"]


def test_the_explained_model_is_trained_once_and_what_a_judge_has_finished_is_not_computed_again(
    toy, tmp_path, monkeypatch
):
    overrides = [*toy.arguments[2:], *SMALL_RUN, *ARGUMENTS, "n_explain=10", "resamples=0"]
    plan = inside.make_plan(*overrides, folder=toy.folder / "conf")
    received = []
    train = pipeline.train_model
    monkeypatch.setattr(
        pipeline, "train_model", lambda plan, *remainder: received.append(plan.model) or train(plan, *remainder)
    )

    def compute():
        folder = RunFolder(tmp_path, ["cfeval", "run"])
        with folder.open():
            assert run_experiment(plan, folder, Progress())
        names = ("recommendation.json", "metrics.csv", "scores.parquet", "judges/tree/metrics.csv")
        return {name: (tmp_path / name).read_bytes() for name in names}

    first = compute()
    assert received == [plan.model, plan.judges["tree"].make_trainable(plan.model)]
    record = json.loads((tmp_path / "run.json").read_text())
    record["status"] = "stopped"
    (tmp_path / "run.json").write_text(json.dumps(record))
    received.clear()
    assert compute() == first
    assert received == [plan.model]  # the judge's folder is complete


def test_who_explains_one_model_only_explains_no_judge(toy):
    plan = inside.make_plan(*toy.arguments[2:], "judge=[tree]", folder=toy.folder / "conf")
    with pytest.raises(UserError, match="no explainer of this run can explain another model"):
        plan_judge(replace(plan, explainers={"mine": _Only()}), plan.judges["tree"])


class _Only:
    portable = False
