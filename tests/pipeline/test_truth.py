"""Truths are computed in chunks, cached, and equal for any executor."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.cache.disk import Disk
from cfeval_cli.core import ModelSpec, TruthEstimate
from cfeval_cli.executor.local import Local
from cfeval_cli.pipeline import truth as truth_stage
from cfeval_cli.pipeline.context import create_context
from cfeval_cli.pipeline.truth import compute_truth, select_instances
from cfeval_cli.results import read as folders
from cfeval_cli.truth.contrast import Contrast
from cfeval_cli.truth.shapley import Shapley
from tests.inside import make_plan
from tests.problems import make_mixed
from tests.truth.models import PredictionsOnlyModel, make_random_tree


def compute_truth_of(model, dataset, *overrides):
    selection = (
        "truth=[shapley,contrast,responsibility]",
        "explainer=[random]",
        "truth.shapley.budget=60",
    )
    plan = make_plan("cache=off", "n_jobs=1", *selection, *overrides).restrict_to(ModelSpec(dataset, type(model)))
    return create_context(plan, dataset, model)


def compute_truths(context):
    return {
        name: compute_truth(context, name, select_instances(context, truth), lambda _: None)
        for name, truth in context.plan.truths.items()
    }


@pytest.fixture(scope="module")
def box():
    dataset = make_mixed(1, n=40, categories=3, tried=3)
    return make_random_tree(dataset, 1, splits=25), dataset


def check_results_are_equal(first_result, second):
    for name, truth_estimate in first_result.items():
        assert (
            np.array_equal(truth_estimate.importance, second[name].importance)
            and truth_estimate.method == second[name].method
        )
        assert (truth_estimate.standard_error is None) == (second[name].standard_error is None)
        assert truth_estimate.standard_error is None or np.array_equal(
            truth_estimate.standard_error, second[name].standard_error, equal_nan=True
        )


def test_chunks_and_workers_give_the_values_of_one_call(box, monkeypatch):
    model, dataset = box
    context = compute_truth_of(PredictionsOnlyModel(model), dataset)
    result_of_all = compute_truths(context)
    assert not result_of_all["shapley"].method.startswith("exact") and result_of_all[
        "shapley"
    ].standard_error.shape == (40,)
    for name, truth_estimate in result_of_all.items():
        assert np.array_equal(truth_estimate.importance, context.compute_importance(name))
    monkeypatch.setattr(truth_stage, "_CHUNK_SIZE", 7)
    monkeypatch.setattr(truth_stage, "_CHUNK_SIZE_WITHOUT_EVALUATIONS", 9)
    check_results_are_equal(compute_truths(context), result_of_all)
    second = replace(context, plan=replace(context.plan, executor=Local(n_jobs=2, min_seconds=0)))
    check_results_are_equal(compute_truths(second), result_of_all)


def test_values_are_cached_for_equal_settings_only(box, tmp_path, monkeypatch):
    model, dataset = box
    context = compute_truth_of(model, dataset)
    cached = replace(context, cache=Disk(str(tmp_path)))
    first = compute_truths(cached)
    computed, compute = [], truth_stage._compute_chunk

    def record(job, positions):
        computed.append((job.truth.name, len(positions)))
        return compute(job, positions)

    monkeypatch.setattr(truth_stage, "_compute_chunk", record)
    check_results_are_equal(compute_truths(cached), first)
    # two are computed from the tree without evaluations; contrast was cached, and a sample is verified
    assert computed == [("shapley", 40), ("contrast", 3), ("responsibility", 40)]
    other = replace(context, cache=cached.cache, plan=replace(context.plan, truths={"contrast": Contrast(budget=999)}))
    compute_truths(other)
    assert {name for name, _ in computed[3:]} == {"contrast"} and len(
        computed
    ) > 4  # other settings have other cache keys


def test_partly_sampled_values_have_errors_and_a_method(box):
    model, dataset = box
    context = compute_truth_of(PredictionsOnlyModel(model), dataset)

    class PartlySampledShapley(Shapley):
        def estimate(self, dataset, client, rows):
            importance = np.ones(rows.codes.shape)
            if rows.ids[0] == context.rows.ids[0]:
                return TruthEstimate(importance)
            return TruthEstimate(importance, np.full(len(rows), 2.0), "sampled ünusually")

    plan = replace(context.plan, truths={"shapley": PartlySampledShapley()})
    truth_estimate = compute_truths(replace(context, plan=plan))["shapley"]
    assert truth_estimate.standard_error.tolist() == [0] * 16 + [2] * 24
    assert truth_estimate.method == "exact; sampled ünusually"


def test_runs_of_a_tree_and_of_a_blind_model_have_tables_by_question(toy, make_run):
    all_settings = (
        "truth=[shapley,contrast,responsibility,used]",
        "explainer=[random,omission,lr]",
        "explainer.lr.evaluates_model=true",
        "metric=[comprehensiveness,recall]",
        "n_explain=20",
        "resamples=0",
    )
    for model, exact, names in (
        (["model=tree"], True, ["shapley", "contrast", "responsibility"]),
        (["model=estimator", "+model.estimator.max_iter=5", "model.blind=0.5", "truth.shapley.budget=20"], False,
         ["shapley", "contrast", "responsibility", "used"]),
    ):  # fmt: skip
        folder = make_run(toy, *model, *all_settings)
        record = folders.read_results(folder).record
        assert list(record.truths) == names == record.settings.truth
        estimate_record = record.truths["shapley"]
        assert estimate_record.exact == exact and (exact or 0 < estimate_record.error <= estimate_record.largest_error)
        assert ("used" in record.truths_absent) == exact
        truth = pd.read_parquet(folder / "truth.parquet")
        errors = truth.groupby("truth")["error"].max()
        assert (errors["shapley"] > 0) == (not exact) and errors["contrast"] == 0
        estimate_record = record.truths["responsibility"]
        assert estimate_record.exact == exact and estimate_record.error is None
        assert estimate_record.method.startswith("exact" if exact else "searched up to sets of two")
        assert np.isnan(errors["responsibility"]) == (not exact)
        correlations = pd.read_csv(folder / "correlations.csv")
        assert {"shapley", "contrast"} <= set(correlations["truth"])
        metrics = pd.read_csv(folder / "metrics.csv").set_index(["metric", "variant", "explainer"])
        assert metrics.loc[("recall", "shapley", "lr"), "value"] > metrics.loc[("recall", "shapley", "random"), "value"]
        tables = (folder / "tables.md").read_text()
        assert "τ contribution" in tables and "τ contrast" in tables and "τ responsibility" in tables


def test_evaluations_are_limited_to_a_seeded_sample_with_the_same_values(box):
    model, dataset = box
    result_of_all = compute_truths(compute_truth_of(PredictionsOnlyModel(model), dataset, "reference=null"))
    context = compute_truth_of(PredictionsOnlyModel(model), dataset, "reference=20")
    part = compute_truths(context)
    for name, truth_estimate in part.items():
        sampled = np.flatnonzero(~np.isnan(truth_estimate.importance).all(axis=1))
        assert len(sampled) == 20 and np.array_equal(sampled, select_instances(context, context.plan.truths[name]))
        assert np.array_equal(truth_estimate.importance[sampled], result_of_all[name].importance[sampled])
        assert truth_estimate.method == result_of_all[name].method
        assert truth_estimate.standard_error is None or np.array_equal(
            truth_estimate.standard_error[sampled], result_of_all[name].standard_error[sampled], equal_nan=True
        )
    exact = compute_truth_of(model, dataset, "reference=20")  # needs no evaluations
    assert not np.isnan(compute_truths(exact)["shapley"].importance).any()


def test_the_budget_limits_the_instances_and_the_truths(box):
    model, dataset = box
    context = compute_truth_of(PredictionsOnlyModel(model), dataset, "truth.budget=600")
    assert len(select_instances(context, context.plan.truths["shapley"])) == 10  # of 60 rows each
    with_less = compute_truth_of(PredictionsOnlyModel(model), dataset, "truth.budget=59")
    assert "shapley" not in with_less.plan.truths
    assert "truth.budget=59" in with_less.plan.absent.truths["shapley"]


def test_a_truth_of_a_sample_gives_scores_of_the_sample(toy, make_run):
    boosting = ("model=estimator", "+model.estimator.max_iter=5", "explainer=[random,omission]", "k=1", "resamples=0")
    boosting += ("metric=[comprehensiveness,c,recall]", "truth.shapley.budget=20", "n_explain=12")
    subset, all_settings = make_run(toy, *boosting, "reference=8"), make_run(toy, *boosting, "reference=null")
    first_result, second = (pd.read_parquet(folder / "scores.parquet") for folder in (subset, all_settings))
    recall = first_result[first_result["metric"] == "recall"]
    assert recall.groupby(["explainer", "variant"], observed=True).size().eq(8).all()
    keys = ["instance", "explainer", "metric", "variant"]
    joined_pair = recall.merge(second, on=keys)
    assert len(joined_pair) == len(recall) and (joined_pair["numerator_x"] == joined_pair["numerator_y"]).all()
    assert "on 8 of 12 instances" in (subset / "tables.md").read_text()
    remainder = first_result[first_result["metric"] != "recall"].reset_index(drop=True)
    assert remainder.equals(second[second["metric"] != "recall"].reset_index(drop=True))


def test_responsibility_of_an_additive_model_is_not_labelled_exact(toy, make_run):
    folder = make_run(
        toy, "truth=[shapley,responsibility]", "explainer=[random,omission]",
        "metric=[comprehensiveness,recall]", "n_explain=10", "resamples=0",
    )  # fmt: skip
    estimate_record = json.loads((folder / "run.json").read_text())["truths"]
    assert estimate_record["shapley"]["exact"] and not estimate_record["responsibility"]["exact"]
    assert estimate_record["responsibility"]["method"].startswith("searched up to sets of two")
    truth = pd.read_parquet(folder / "truth.parquet").groupby("truth")["error"]
    assert (truth.max()["shapley"] == 0) and truth.apply(lambda error: error.isna().all())["responsibility"]
    assert "responsibility searched up to sets of two" in (folder / "tables.md").read_text()
