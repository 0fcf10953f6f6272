"""Scores by slabs of instances: whatever their size, they are those of all instances at once."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.core import NO_FEATURE, Cost, ExplainerResult, Explanation, ModelSpec, scratch
from cfeval_cli.pipeline import explain
from cfeval_cli.pipeline.context import create_context
from cfeval_cli.pipeline.score import compute_scores
from cfeval_cli.pipeline.search import search_explained_instances
from tests.inside import make_plan
from tests.problems import draw_linear, make_dataset

N = 22  # three slabs of seven and one of one
DATASET = make_dataset([3, 4, 2, 3, 5], n=N, seed=1)
MODEL = draw_linear(DATASET, 3, 2)
SETTINGS = ("cache=off", "n_jobs=1", "explainer=[random,omission,lr]", "metric=field", "k=2", "metric.naopc.rows=500")


def score_explainers(without_explanation):
    """Score three explainers, of which one returns no explanation of some instances."""
    plan = make_plan(*SETTINGS)
    context = create_context(plan.restrict_to(ModelSpec(DATASET, type(MODEL))), DATASET, MODEL)
    results = {name: explain.explain_instances(context, name, {}, lambda _: None) for name in context.plan.explainers}
    explanation = results["lr"].explanation
    features = np.where(np.isin(np.arange(N), without_explanation)[:, None], NO_FEATURE, explanation.features)
    results["lr"] = ExplainerResult(Explanation(features, explanation.scores), Cost(), 0)
    selected = {name: explain.select_top_k(context, name, result) for name, result in results.items()}
    edits = {
        name: search_explained_instances(context, features, name, lambda _: None) for name, features in selected.items()
    }
    truth = {name: context.compute_importance(name) for name in context.plan.truths}
    truth["contrast"] = np.where(np.arange(N)[:, None] % 3 == 0, np.nan, truth["contrast"])  # not computed for all
    scores, summary = compute_scores(context, truth, results, selected, edits)
    return scores, summary, context


@pytest.mark.parametrize(
    ("without_explanation", "sizes"), [([], [21]), ([0, 5, *range(7, 14), 21], [7, 21]), (list(range(N)), [7])]
)
def test_slabs_of_any_size_give_the_same_scores_remarks_and_costs(monkeypatch, without_explanation, sizes):
    scores, summary, context = score_explainers(without_explanation)
    assert summary["method"].str.contains("on a sample of").any()
    assert not (summary["method"] + summary["remark"]).str.contains("{", regex=False).any()
    assert len(scores) == len(scores.to_frame()) > 0 and (scores.ids == DATASET.test.ids).all()
    for size in sizes:
        monkeypatch.setattr(scratch, "_SLAB_INSTANCES", size)
        parts, rows, by_slabs = score_explainers(without_explanation)
        pd.testing.assert_frame_equal(parts.to_frame(), scores.to_frame(), check_exact=True)
        pd.testing.assert_frame_equal(rows, summary, check_exact=True)
        assert by_slabs.ledger.n_evaluations == context.ledger.n_evaluations
        pieces = pd.concat([parts.to_frame(start, start + 100) for start in range(0, len(parts), 100)])
        pd.testing.assert_frame_equal(pieces.reset_index(drop=True), scores.to_frame(), check_exact=True)
        positions = np.array([0, 8, 21])
        expected = scores.to_frame()[scores.to_frame()["instance"].isin(scores.ids[positions])].reset_index(drop=True)
        pd.testing.assert_frame_equal(parts.select_frame(positions), expected, check_exact=True)


def test_metrics_receive_slabs_and_the_number_of_all_instances(monkeypatch):
    slab_sizes = []

    class Watching:
        def __init__(self, metric):
            self.metric = metric

        def __getattr__(self, name):
            return getattr(self.metric, name)

        def score(self, case):
            slab_sizes.append((len(case.complete), case.total))
            return self.metric.score(case)

    monkeypatch.setattr(scratch, "_SLAB_INSTANCES", 8)
    plan = make_plan(*SETTINGS)
    context = create_context(plan.restrict_to(ModelSpec(DATASET, type(MODEL))), DATASET, MODEL)
    metrics = {"coverage": Watching(context.plan.metrics["coverage"])}
    context = replace(context, plan=replace(context.plan, metrics=metrics))
    explanations = {"random": explain.explain_instances(context, "random", {}, lambda _: None)}
    selected = {"random": explain.select_top_k(context, "random", explanations["random"])}
    scores, _ = compute_scores(context, {}, explanations, selected, {"random": {}})
    assert slab_sizes == [(8, N), (8, N), (6, N)] and len(scores) == N


def test_a_run_in_slabs_of_seven_leaves_the_same_files(toy, make_run, monkeypatch):
    settings = ("n_explain=15", "explainer_stability=8", "reparametrisations=1", "explainer=[random,anchor,lr]",
                "explainer.anchor.threshold=0.8", "model.max_epochs=10",
                "metric=[comprehensiveness,dfr,proximity,c_soft,recall]")  # fmt: skip
    reference = make_run(toy, *settings)
    monkeypatch.setattr(scratch, "_SLAB_INSTANCES", 7)
    parts = make_run(toy, *settings, "seed=0")  # equal settings, but another run folder
    names = {path.name for path in reference.iterdir() if path.suffix in (".csv", ".parquet", ".tex", ".json")}
    names -= {"run.json", "costs.csv"}  # these contain seconds
    assert {
        "scores.parquet",
        "truth.parquet",
        "metrics.csv",
        "explainer_stability_metrics.csv",
        "invariance.csv",
    } <= names
    for name in names:
        assert (parts / name).read_bytes() == (reference / name).read_bytes(), name
    first, second = (json.loads((folder / "run.json").read_text()) for folder in (reference, parts))
    assert first["truths"] == second["truths"]
