"""Values under reparametrisations, against runs with each reparametrised model, and against proofs."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.core import Cost, ExplainerResult, Explanation, ModelSpec, Probabilistic
from cfeval_cli.errors import Failure
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.pipeline import explain, reparametrisation
from cfeval_cli.pipeline.context import create_context
from cfeval_cli.pipeline.score import compute_scores
from cfeval_cli.pipeline.search import search_explained_instances
from cfeval_cli.report.notes import NOT_IDENTIFIABLE_NOTE
from cfeval_cli.report.page import build
from cfeval_cli.results.read import read_results
from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.bootstrap import Bootstrap
from cfeval_cli.statistics.invariance import ALL_CHANGES
from cfeval_cli.statistics.run_statistics import compute_statistics
from cfeval_cli.statistics.scores import Scores
from tests.conftest import FEW_METRICS, drop_overridden
from tests.inside import make_plan
from tests.problems import draw_linear, make_dataset, make_text
from tests.statistics.tables import compute_kendall_tau

CHANGES = ("constant", "orthogonal", "scale")
N = 24  # instances
TABLE = make_dataset([3, 4, 2, 3, 5], n=N, seed=1)
SMALL_TABLE = make_dataset([3, 4, 2, 3, 5], n=8, seed=1)  # for the search that takes long
TEXT = make_text(width=6, words=9, n=N, seed=2)


@dataclass
class ScoredRun:
    """A run in memory, up to its scores."""

    context: object
    explanations: dict
    selected: dict
    edits: dict
    scores: Scores
    summary: pd.DataFrame

    def reparametrise(self):
        return reparametrisation.compute_reparametrised_scores(
            self.context, self.explanations, self.selected, self.edits, self.scores, lambda _: None
        )

    def conclude(self, reparametrised):
        return compute_statistics(self.scores, self.summary, Bootstrap(0, n_resamples=0), reparametrised=reparametrised)


def score_explanations(context, explanations):
    """Run the stages after the explanations."""
    selected = {name: explain.select_top_k(context, name, result) for name, result in explanations.items()}
    edits = {
        name: search_explained_instances(context, features, name, lambda _: None) for name, features in selected.items()
    }
    truth = {name: context.compute_importance(name) for name in context.plan.truths}
    scores, summary = compute_scores(context, truth, explanations, selected, edits)
    return ScoredRun(context, explanations, selected, edits, scores, summary)


def score_run(dataset, model, *overrides):
    fixed = ["cache=off", "n_jobs=1", "explainer=[random,omission,lr]", "reparametrisations=2"]
    plan = make_plan(*fixed, *drop_overridden([FEW_METRICS], overrides), *overrides)
    context = create_context(plan.restrict_to(ModelSpec(dataset, type(model))), dataset, model)
    return score_explanations(
        context, {name: explain.explain_instances(context, name, {}, lambda _: None) for name in plan.explainers}
    )


def compute_values(run):
    """Return the value of each metric, variant and explainer from the scores alone."""
    groups = run.scores.to_frame().groupby(["metric", "variant", "explainer"], observed=True)
    sums = groups[["numerator", "denominator"]].sum()
    return (sums["numerator"] / sums["denominator"]).where(sums["denominator"] != 0).to_dict()


def compute_tau(values, explainers, better, metric, variant, truth, agreement):
    """Return Kendall's τ of a metric with a truth over the explainers with values of both."""
    pairs = []
    for side in ((metric, variant), (agreement, truth)):
        sign = 1 if better[side] == "higher" else -1
        pairs.append([sign * round(values.get((*side, name), np.nan), 9) for name in explainers])
    pairs = [pair for pair in zip(*pairs, strict=True) if not np.isnan(sum(pair))]
    return compute_kendall_tau(*zip(*pairs, strict=True)) if len(pairs) > 1 else np.nan


def rerun(run, changes, number):
    """Score the same explanations in a run with a reparametrised model."""
    context = run.context
    rng = make_stream(context.plan.settings.seed, "reparametrisation", number)
    model = context.model.reparametrise(context.dataset, changes, rng)
    return score_explanations(create_context(context.plan, context.dataset, model), run.explanations)


ONE_DRAW = ["reparametrisations=1"]
SETTINGS = [
    (TABLE, 4, ["k=1", "metric=field", *ONE_DRAW], 1e-9),
    (TABLE, 4, ["k=2", "search.pick=nearest", "removal=[zero,mask,mean,marginal]", "metric=field", *ONE_DRAW], 1e-9),
    (TABLE, 3, ["k=2", "distance=cosine", "distance.space=embedding", "incomplete=keep", *ONE_DRAW], 1e-9),
    (TABLE, 2, ["distance=mahalanobis", "access=probability", *ONE_DRAW], 1e-9),
    (TABLE, 4, ["search=exact", *ONE_DRAW], 1e-9),
    (
        SMALL_TABLE,
        4,
        ["search=continuous", "search.restarts=12", "search.tolerance=1e-6", "reparametrisations=1"],
        1e-3,
    ),
    (TABLE, 4, ["access=label", "distance.space=scaled", *ONE_DRAW], 1e-9),
    (TEXT, 3, ["k=1", "removal=[zero,mask,mean,marginal]", "metric=field"], 1e-9),
    (TEXT, 8, ["k=2", "search=exact", "support=own", *ONE_DRAW], 1e-9),
]
IDS = [" ".join([dataset.kind, str(dim), *settings]) for dataset, dim, settings, _ in SETTINGS]


@pytest.mark.parametrize(("dataset", "dim", "settings", "close"), SETTINGS, ids=IDS)
def test_values_and_ranges_are_those_of_runs_with_other_parameters(dataset, dim, settings, close):
    run = score_run(dataset, draw_linear(dataset, 7, dim), *settings)
    result = run.reparametrise()
    changes = run.context.model.list_changes(padded=dataset.padded)
    assert set(result.changed) == ({ALL_CHANGES, *changes} if len(changes) > 1 else set(changes))
    assert result.n_instances == len(dataset.test)
    base = compute_values(run)
    for (i, row), (j, name) in ((a, b) for a in enumerate(result.metrics) for b in enumerate(result.explainers)):
        assert result.values[i, j] == pytest.approx(base.get((*row, name), np.nan), rel=close, abs=close, nan_ok=True)
    table = run.conclude(result).invariance.set_index(["metric", "variant", "truth", "agreement"])
    lows, highs = table["tau"].copy(), table["tau"].copy()
    better = run.summary.drop_duplicates(["metric", "variant"]).set_index(["metric", "variant"])["better"].to_dict()
    for name, tables in result.changed.items():
        for number, values in enumerate(tables):
            expected = compute_values(rerun(run, changes if name == ALL_CHANGES else [name], number))
            for i, row in enumerate(result.metrics):
                if row[0] == "converged":  # a fact about the search, which is not repeated
                    continue
                row_values = [expected.get((*row, explainer), np.nan) for explainer in result.explainers]
                assert values[i] == pytest.approx(row_values, rel=close, abs=close, nan_ok=True), (name, number, row)
            taus = [compute_tau(expected, result.explainers, better, *line) for line in table.index]
            lows, highs = np.fmin(lows, taus), np.fmax(highs, taus)
    if close < 1e-6:  # a search that stops early may order two explainers otherwise than its optimum
        assert table["tau_lowest"].to_numpy() == pytest.approx(lows.to_numpy())
        assert table["tau_highest"].to_numpy() == pytest.approx(highs.to_numpy())
        assert (table["not_identifiable"].to_numpy() == (highs - lows > 1e-9).to_numpy()).all()


def test_common_support_limits_the_sample_to_common_instances():
    run = score_run(TEXT, draw_linear(TEXT, 7, 8), "k=2", "search=exact")
    is_covered = np.logical_and.reduce([(features != -1).any(axis=1) for features in run.selected.values()])
    result = run.reparametrise()
    assert result.n_instances == is_covered.sum() < N
    scores = run.scores.select_frame(np.flatnonzero(is_covered))
    sums = scores.groupby(["metric", "variant", "explainer"], observed=True)[["numerator", "denominator"]].sum()
    for (i, row), (j, name) in ((a, b) for a in enumerate(result.metrics) for b in enumerate(result.explainers)):
        if row[0] in ("c", "validity", "comprehensiveness") and (*row, name) in sums.index:
            n, d = sums.loc[(*row, name)]
            assert result.values[i, j] == pytest.approx(n / d)


def find_movers(result):
    """Return for each metric and variant the changes that alone move a value of some explainer."""
    has_moved = {
        name: ~np.isclose(values, result.values, rtol=1e-9, atol=1e-9, equal_nan=True)
        for name, values in result.changed.items()
        if name != ALL_CHANGES
    }
    return {row: {name for name, mask in has_moved.items() if mask[:, i].any()} for i, row in enumerate(result.metrics)}


@pytest.mark.parametrize("seed", range(3))
def test_values_of_tables_move_as_proved(seed):
    truths = "truth=[signed,shapley,contrast,absolute]"
    run = score_run(TABLE, draw_linear(TABLE, seed, 4), "k=2", "removal=[zero,mean,marginal]", truths)
    by = find_movers(run.reparametrise())
    for metric in ("comprehensiveness", "sufficiency"):
        assert by[metric, "del"] == {"constant"} and not by[metric, "mean"] and not by[metric, "marginal"]
    assert by["dfr", "del"] <= {"constant"} and not by["dfr", "mean"] and not by["dfr", "marginal"]
    for truth in ("signed", "absolute"):
        assert by["recall", truth] == {"constant"}
    for truth in ("shapley", "contrast"):
        assert not by["recall", truth] and not by["hit", truth]
    assert not by["validity", "label"] and not by["validity", "probability"] and not by["validity_soft", "probability"]
    assert not by["proximity", "label"] and not by["c", "label"]
    for metric in ("proximity", "c", "c_soft"):
        assert by[metric, "probability"] == {"orthogonal", "scale"}


def test_on_texts_only_distances_move():
    run = score_run(TEXT, draw_linear(TEXT, 3, 4), "k=1", "removal=[zero,mask,mean,marginal]", "metric=[core,naopc]")
    by = find_movers(run.reparametrise())
    movers = {row for row, changes in by.items() if changes}
    assert movers == {(metric, "probability") for metric in ("proximity", "proximity_flips", "c", "c_soft")}
    assert {change for row in movers for change in by[row]} == {"scale"}


@dataclass(frozen=True)
class AdaptedLinearModel(LinearModel):
    """A linear model that passes each reparametrised model through a function."""

    adapt: Callable

    @staticmethod
    def from_model(model, adapt):
        return AdaptedLinearModel(model.bias, model.weights, model.tables, model.means, adapt)

    def reparametrise(self, dataset, changes, rng):
        other = super().reparametrise(dataset, changes, rng)
        return self.adapt(LinearModel(other.bias, other.weights, other.tables, other.means), changes)


def test_values_that_depend_on_predictions_only_are_not_recomputed():
    drawn_changes = []
    model = AdaptedLinearModel.from_model(
        draw_linear(TABLE, 0, 4), lambda other, changes: drawn_changes.append(changes) or other
    )
    run = score_run(TABLE, model, "access=label", "removal=[marginal]", "truth=[contrast]")
    result = run.reparametrise()
    # contrast needs effects of single values, and nothing needs embeddings
    assert {tuple(changes) for changes in drawn_changes} == {("constant",)}
    assert not any(find_movers(result).values())
    assert not run.conclude(result).invariance["not_identifiable"].any()


def test_a_reparametrisation_that_changes_predictions_fails():
    model = draw_linear(TABLE, 0, 3)

    def shift_bias(other, _changes):
        return replace(other, bias=other.bias + 1e-6)

    with pytest.raises(Failure, match="changes a logit by 1e-06"):
        score_run(TABLE, AdaptedLinearModel.from_model(model, shift_bias)).reparametrise()

    def double_embeddings(other, _changes):  # the effects stay, so that only embeddings disagree with them
        faulty = replace(other, tables=tuple(2 * table for table in other.tables))
        vars(faulty)["_effects"] = other._effects
        return faulty

    with pytest.raises(Failure, match="may change no prediction"):
        score_run(TABLE, AdaptedLinearModel.from_model(model, double_embeddings)).reparametrise()


def test_a_large_run_is_sampled_with_the_seed(monkeypatch):
    run = score_run(TABLE, draw_linear(TABLE, 5, 4), "k=2", "incomplete=skip")
    monkeypatch.setattr(reparametrisation, "_MAX_INSTANCES", 15)
    first, second = run.reparametrise(), run.reparametrise()
    assert first.n_instances == 15 and (first.values == second.values).all()
    assert all((first.changed[name] == second.changed[name]).all() for name in first.changed)
    sample = make_stream(0, "reparametrisation.instances").choice(N, 15, replace=False)
    expected = compute_values(replace(run, scores=Scores.from_frame(run.scores.select_frame(sample))))
    for i, row in enumerate(first.metrics):
        row_values = [expected.get((*row, name), np.nan) for name in first.explainers]
        assert first.values[i] == pytest.approx(row_values, nan_ok=True)


def test_searches_that_must_be_repeated_have_fewer_instances_and_draws(monkeypatch):
    run = score_run(TABLE, draw_linear(TABLE, 5, 4), "search.pick=nearest", "reparametrisations=5")
    monkeypatch.setattr(reparametrisation, "_MAX_SEARCHED_INSTANCES", 12)
    monkeypatch.setattr(reparametrisation, "_MAX_SEARCHED_DRAWS", 2)
    result = run.reparametrise()
    assert result.n_instances == 12 and {len(values) for values in result.changed.values()} == {2}
    for settings in (["search=exact"], ["search.pick=largest_drop"]):
        result = score_run(TABLE, draw_linear(TABLE, 5, 4), *settings, "reparametrisations=5").reparametrise()
        assert result.n_instances == N and {len(values) for values in result.changed.values()} == {5}


def test_expensive_distances_have_fewer_draws(monkeypatch):
    run = score_run(TABLE, draw_linear(TABLE, 5, 4), "distance=mahalanobis", "reparametrisations=9")
    size = 5 * 4
    assert run.context.plan.distance.estimate_fit_cost(TABLE, run.context.model, 2) == size * size * (N + size)
    monkeypatch.setattr(reparametrisation, "_MAX_MULTIPLICATIONS", 3 * 4 * size * size * (N + size))
    assert run.reparametrise().changed["scale"].shape[0] == 3
    monkeypatch.setattr(reparametrisation, "_MAX_MULTIPLICATIONS", 1)
    assert run.reparametrise().changed["scale"].shape[0] == 2


def test_models_without_changes_are_not_reparametrised():
    class Box(Probabilistic):
        def __init__(self, model):
            self.model = model

        def predict_proba(self, codes):
            return self.model.predict_proba(codes)

    run = score_run(TABLE, Box(draw_linear(TABLE, 0, 2)), "explainer=[random,omission]")
    assert run.reparametrise() is None
    run = score_run(TABLE, draw_linear(TABLE, 0, 2), "reparametrisations=0")
    assert run.reparametrise() is None and run.conclude(None).correlations["not_identifiable"].isna().all()


def test_explainers_that_select_no_feature_have_no_values():
    run = score_run(TABLE, draw_linear(TABLE, 0, 2), "removal=[zero,mean,marginal]")
    empty = {
        name: ExplainerResult(Explanation(np.full_like(of.explanation.features, -1), of.explanation.scores), Cost(), 0)
        for name, of in run.explanations.items()
    }
    empty_run = score_explanations(run.context, empty)
    result = empty_run.reparametrise()
    assert all(np.isnan(result.values[i]).all() for i, row in enumerate(result.metrics) if row[0] != "coverage")
    assert not result.find_changed().any() and empty_run.conclude(result).invariance.empty
    single_run = score_explanations(run.context, {**empty, "omission": run.explanations["omission"]})
    moves = single_run.conclude(single_run.reparametrise()).metrics.set_index(["metric", "variant", "explainer"])[
        "not_identifiable"
    ]
    assert moves["c", "probability", "omission"] is True and moves["c", "probability", "lr"] is None


def test_a_run_writes_the_ranges_and_marks_moving_values(toy, make_run):
    four = "explainer=[random,omission,decision_boundary,lr]"
    folder = make_run(toy, four, "reparametrisations=2", "n_explain=20", "resamples=0", "model.max_epochs=10")
    assert json.loads((folder / "run.json").read_text())["invariance_absent"] == ""
    table = pd.read_csv(folder / "invariance.csv", keep_default_na=False)
    assert set(table["reparametrisations"]) == {2} and set(table["instances"]) == {20}
    assert ((table["tau_lowest"] <= table["tau"]) & (table["tau"] <= table["tau_highest"])).all()
    assert (table["not_identifiable"] == (table["tau_highest"] - table["tau_lowest"] > 1e-9)).all()
    assert ((table["changed_by"] != "") == (table["not_identifiable"] & (table["subset"] == "all"))).all()
    assert table.loc[table["subset"] == "without_controls", "not_identifiable"].any()
    keys = ["metric", "variant", "truth", "agreement", "subset"]
    joined = pd.read_csv(folder / "correlations.csv").merge(table, on=keys, suffixes=("", "_of"))
    assert len(joined) == len(table) and (joined["not_identifiable"] == joined["not_identifiable_of"]).all()
    assert joined["tau"].to_numpy() == pytest.approx(joined["tau_of"].to_numpy())  # all instances are in the sample
    still = table[table["truth"].isin(["shapley", "contrast"]) & (table["variant"].isin(["marginal", "label"]))]
    assert len(still) and not still["not_identifiable"].any()
    metrics = pd.read_csv(folder / "metrics.csv")
    by = metrics[metrics["value"].notna()].groupby(["metric", "variant"])["not_identifiable"].any()
    assert by["proximity", "probability"] and by["c_soft", "probability"] and by["comprehensiveness", "del"]
    assert not by["validity_soft", "probability"] and not by["comprehensiveness", "marginal"]
    tables, tex = ((folder / name).read_text() for name in ("tables.md", "tables.tex"))
    page = build.Report(read_results(folder)).render_page({}, [])
    assert all(NOT_IDENTIFIABLE_NOTE in text for text in (tables, tex, page))
    assert "| Proximity (probability) ↓ § |" in tables
    assert re.search(r"\| Validity \((label / )?probability\) ↑ \|", tables)
    assert r"Proximity (probability) $\downarrow$ \S{}" in tex and "↓ §" in page


def test_families_are_those_of_the_run():
    run = score_run(
        TABLE, draw_linear(TABLE, 0, 3), "explainer=[random,lr,graded]", "explainer.graded.quality_levels=4"
    )
    statistics = run.conclude(run.reparametrise())
    assert set(statistics.invariance["agreement"]) == {"recall", "hit", "order"}
    correlations = statistics.correlations.dropna(subset="tau")
    assert len(correlations) == len(statistics.invariance) and correlations["not_identifiable"].notna().all()
