"""What other parameters move, against a run that is made anew for each of them, and against what can be proved."""

import json
import re
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.core import Cost, ExplainerResult, Explanation, ModelSpec
from cfeval_cli.errors import Failure
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.pipeline import explain, reparametrisation
from cfeval_cli.pipeline.context import create_context
from cfeval_cli.pipeline.score import compute_scores
from cfeval_cli.pipeline.search import find_explained, search_counterfactuals
from cfeval_cli.report.page import build
from cfeval_cli.results.read import read_results
from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.bootstrap import Bootstrap
from cfeval_cli.statistics.findings import compute_findings
from cfeval_cli.statistics.invariance import TOGETHER
from cfeval_cli.statistics.scores import Scores
from tests.conftest import SCORED, unless
from tests.inside import planned
from tests.problems import make_dataset, make_text, random_linear
from tests.statistics.tables import tau

ALL = ("constant", "orthogonal", "scale")
N = 24  # instances
TABLE = make_dataset([3, 4, 2, 3, 5], n=N, seed=1)
FEW = make_dataset([3, 4, 2, 3, 5], n=8, seed=1)  # for the search that takes long
TEXT = make_text(width=6, words=9, n=N, seed=2)


@dataclass
class Ran:
    """A run in memory, up to its scores."""

    context: object
    explained: dict
    chosen: dict
    edits: dict
    scores: Scores
    order: pd.DataFrame

    def found(self):
        return reparametrisation.compute_reparametrised_scores(
            self.context, self.explained, self.chosen, self.edits, self.scores, lambda _: None
        )

    def of(self, found):
        return compute_findings(self.scores, self.order, Bootstrap(0, resamples=0), reparametrised=found)


def searched(context, explained):
    """Everything after the explanations, as a run does it."""
    chosen = {name: explain.select_top_k(context, name, done) for name, done in explained.items()}
    edits = {}
    for name, features in chosen.items():
        rows = find_explained(features)
        edits[name] = search_counterfactuals(
            context, context.rows.take(rows), features[rows], "s.{level}", lambda _: None, use_cache=False
        )
    truth = {name: context.truth(name) for name in context.plan.truths}
    return Ran(context, explained, chosen, edits, *compute_scores(context, truth, explained, chosen, edits))


def ran(dataset, model, *overrides):
    fixed = ["cache=off", "n_jobs=1", "explainer=[random,omission,lr]", "reparametrisations=2"]
    plan = planned(*fixed, *unless([SCORED], overrides), *overrides)
    context = create_context(plan.restrict_to(ModelSpec(dataset, type(model))), dataset, model)
    return searched(
        context, {name: explain.explain_instances(context, name, {}, lambda _: None) for name in plan.explainers}
    )


def values(run):
    """(metric, variant, explainer): value, from the scores alone."""
    groups = run.scores.to_frame().groupby(["metric", "variant", "explainer"], observed=True)
    sums = groups[["numerator", "denominator"]].sum()
    return (sums["numerator"] / sums["denominator"]).where(sums["denominator"] != 0).to_dict()


def agreed(values, explainers, better, metric, variant, truth, agreement):
    """Kendall's τ of a metric with a truth, of those explainers that have values of both."""
    both = []
    for side in ((metric, variant), (agreement, truth)):
        sign = 1 if better[side] == "higher" else -1
        both.append([sign * round(values.get((*side, name), np.nan), 9) for name in explainers])
    both = [(one, two) for one, two in zip(*both, strict=True) if not np.isnan(one + two)]
    return tau(*zip(*both, strict=True)) if len(both) > 1 else np.nan


def made_anew(run, changes, number):
    """The same explanations under explicitly built parameters, by everything that a run calls."""
    context = run.context
    rng = make_stream(context.plan.settings.seed, "reparametrisation", number)
    model = context.model.reparametrise(context.dataset, changes, rng)
    return searched(create_context(context.plan, context.dataset, model), run.explained)


ONE = ["reparametrisations=1"]  # draw of each change, where two would show the same
SETTINGS = [
    (TABLE, 4, ["k=1", "metric=field", *ONE], 1e-9),
    (TABLE, 4, ["k=2", "search.pick=nearest", "removal=[zero,mask,mean,marginal]", "metric=field", *ONE], 1e-9),
    (TABLE, 3, ["k=2", "distance=cosine", "distance.space=embedding", "incomplete=keep", *ONE], 1e-9),
    (TABLE, 2, ["distance=mahalanobis", "access=probability", *ONE], 1e-9),
    (TABLE, 4, ["search=exact", *ONE], 1e-9),
    (FEW, 4, ["search=continuous", "search.restarts=12", "search.tolerance=1e-6", "reparametrisations=1"], 1e-3),
    (TABLE, 4, ["access=label", "distance.space=scaled", *ONE], 1e-9),
    (TEXT, 3, ["k=1", "removal=[zero,mask,mean,marginal]", "metric=field"], 1e-9),
    (TEXT, 8, ["k=2", "search=exact", "support=own", *ONE], 1e-9),
]
IDS = [" ".join([dataset.kind, str(dim), *settings]) for dataset, dim, settings, _ in SETTINGS]


@pytest.mark.parametrize(("dataset", "dim", "settings", "close"), SETTINGS, ids=IDS)
def test_values_and_ranges_are_those_of_runs_made_anew(dataset, dim, settings, close):
    run = ran(dataset, random_linear(dataset, 7, dim), *settings)
    found = run.found()
    changes = run.context.model.list_changes(padded=dataset.padded)
    expected = {TOGETHER, *changes} if len(changes) > 1 else set(changes)
    assert set(found.changed) == expected and found.n_instances == len(dataset.test)
    base = values(run)
    for (i, row), (j, name) in ((a, b) for a in enumerate(found.metrics) for b in enumerate(found.explainers)):
        assert found.values[i, j] == pytest.approx(base.get((*row, name), np.nan), rel=close, abs=close, nan_ok=True)
    table = run.of(found).invariance.set_index(["metric", "variant", "truth", "agreement"])
    lows, highs = table["tau"].copy(), table["tau"].copy()
    better = run.order.drop_duplicates(["metric", "variant"]).set_index(["metric", "variant"])["better"].to_dict()
    for name, tables in found.changed.items():
        for number, one in enumerate(tables):
            again = made_anew(run, changes if name == TOGETHER else [name], number)
            anew = values(again)
            for i, row in enumerate(found.metrics):
                if row[0] == "converged":  # which says how the search went, and is not searched again
                    continue
                mine = [anew.get((*row, explainer), np.nan) for explainer in found.explainers]
                assert one[i] == pytest.approx(mine, rel=close, abs=close, nan_ok=True), (name, number, row)
            taus = [agreed(anew, found.explainers, better, *line) for line in table.index]
            lows, highs = np.fmin(lows, taus), np.fmax(highs, taus)
    if close < 1e-6:  # a search that stops early may order two explainers otherwise than its optimum
        assert table["tau_lowest"].to_numpy() == pytest.approx(lows.to_numpy())
        assert table["tau_highest"].to_numpy() == pytest.approx(highs.to_numpy())
        assert (table["moves"].to_numpy() == (highs - lows > 1e-9).to_numpy()).all()


def test_explainers_that_are_compared_on_common_instances_are_so_here():
    run = ran(TEXT, random_linear(TEXT, 7, 8), "k=2", "search=exact")
    covered = np.logical_and.reduce([(features != -1).any(axis=1) for features in run.chosen.values()])
    found = run.found()
    assert found.n_instances == covered.sum() < N
    scores = run.scores.select_frame(np.flatnonzero(covered))
    sums = scores.groupby(["metric", "variant", "explainer"], observed=True)[["numerator", "denominator"]].sum()
    for (i, row), (j, name) in ((a, b) for a in enumerate(found.metrics) for b in enumerate(found.explainers)):
        if row[0] in ("c", "validity", "comprehensiveness") and (*row, name) in sums.index:
            n, d = sums.loc[(*row, name)]
            assert found.values[i, j] == pytest.approx(n / d)


def moved(found):
    """(metric, variant): the changes that alone move a value of some explainer."""
    alone = {name: values for name, values in found.changed.items() if name != TOGETHER}
    apart = {
        name: ~np.isclose(values, found.values, rtol=1e-9, atol=1e-9, equal_nan=True) for name, values in alone.items()
    }
    return {row: {name for name, gap in apart.items() if gap[:, i].any()} for i, row in enumerate(found.metrics)}


@pytest.mark.parametrize("seed", range(3))
def test_on_tables_moves_what_can_be_proved_to_move(seed):
    truths = "truth=[signed,shapley,contrast,absolute]"
    run = ran(TABLE, random_linear(TABLE, seed, 4), "k=2", "removal=[zero,mean,marginal]", truths)
    by = moved(run.found())
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


def test_on_texts_the_constant_is_fixed_by_padding_and_only_distances_move():
    run = ran(TEXT, random_linear(TEXT, 3, 4), "k=1", "removal=[zero,mask,mean,marginal]", "metric=core")
    by = moved(run.found())
    movers = {row for row, changes in by.items() if changes}
    assert movers == {(metric, "probability") for metric in ("proximity", "proximity_flips", "c", "c_soft")}
    assert {change for row in movers for change in by[row]} == {"scale"}


def test_nothing_that_only_predictions_decide_is_computed_again(monkeypatch):
    run = ran(TABLE, random_linear(TABLE, 0, 4), "access=label", "removal=[marginal]",
              "truth=[contrast]")  # fmt: skip
    asked = []
    real = LinearModel.reparametrise
    monkeypatch.setattr(LinearModel, "reparametrise", lambda *of: asked.append(of[2]) or real(*of))
    found = run.found()
    assert {tuple(one) for one in asked} == {("constant",)}  # contrast asks for effects, and nothing for embeddings
    assert not any(moved(found).values())
    assert not run.of(found).invariance["moves"].any()


def test_a_change_of_predictions_is_a_failure(monkeypatch):
    run = ran(TABLE, random_linear(TABLE, 0, 3))
    real = LinearModel.reparametrise

    def wrong(self, *of):
        other = real(self, *of)
        return LinearModel(other.bias + 1e-6, other.weights, other.tables, other.means)

    monkeypatch.setattr(LinearModel, "reparametrise", wrong)
    with pytest.raises(Failure, match="changes a logit by 1e-06"):
        run.found()

    def inconsistent(self, *of):  # right effects, and embeddings that do not have them
        other = real(self, *of)
        effects = other._effects
        bad = LinearModel(other.bias, other.weights, tuple(2 * table for table in other.tables), other.means)
        vars(bad)["_effects"] = effects
        return bad

    monkeypatch.setattr(LinearModel, "reparametrise", inconsistent)
    with pytest.raises(Failure, match="may change no prediction"):
        run.found()


def test_a_large_run_is_sampled_with_the_seed_and_told_so(monkeypatch):
    run = ran(TABLE, random_linear(TABLE, 5, 4), "k=2", "incomplete=skip")
    monkeypatch.setattr(reparametrisation, "_MOST", 15)
    one, two = run.found(), run.found()
    assert one.n_instances == 15 and (one.values == two.values).all()
    assert all((one.changed[name] == two.changed[name]).all() for name in one.changed)
    sample = make_stream(0, "reparametrisation.instances").choice(N, 15, replace=False)
    expected = values(replace(run, scores=Scores.from_frame(run.scores.select_frame(sample))))
    for i, row in enumerate(one.metrics):
        mine = [expected.get((*row, name), np.nan) for name in one.explainers]
        assert one.values[i] == pytest.approx(mine, nan_ok=True)


def test_searches_that_have_to_be_repeated_are_fewer(monkeypatch):
    run = ran(TABLE, random_linear(TABLE, 5, 4), "search.pick=nearest", "reparametrisations=5")
    monkeypatch.setattr(reparametrisation, "_FEW", 12)
    monkeypatch.setattr(reparametrisation, "_SEARCHES", 2)
    found = run.found()
    assert found.n_instances == 12 and {len(values) for values in found.changed.values()} == {2}
    for settings in (["search=exact"], ["search.pick=largest_drop"]):
        found = ran(TABLE, random_linear(TABLE, 5, 4), *settings, "reparametrisations=5").found()
        assert found.n_instances == N and {len(values) for values in found.changed.values()} == {5}


def test_distances_that_take_long_to_prepare_are_drawn_less_often(monkeypatch):
    run = ran(TABLE, random_linear(TABLE, 5, 4), "distance=mahalanobis", "reparametrisations=9")
    size = 5 * 4
    assert run.context.plan.distance.preparing(TABLE, run.context.model, 2) == size * size * (N + size)
    monkeypatch.setattr(reparametrisation, "_PREPARING", 3 * 4 * size * size * (N + size))
    assert run.found().changed["scale"].shape[0] == 3
    monkeypatch.setattr(reparametrisation, "_PREPARING", 1)
    assert run.found().changed["scale"].shape[0] == 2


def test_a_model_without_such_changes_or_no_wish_for_them_has_none():
    class Box:
        def __init__(self, model):
            self.model = model

        def predict_proba(self, codes):
            return self.model.predict_proba(codes)

    run = ran(TABLE, Box(random_linear(TABLE, 0, 2)), "explainer=[random,omission]")
    assert run.found() is None
    run = ran(TABLE, random_linear(TABLE, 0, 2), "reparametrisations=0")
    assert run.found() is None and run.of(None).correlations["moves"].isna().all()


def test_explainers_that_name_nothing_have_no_values_and_nothing_fails():
    run = ran(TABLE, random_linear(TABLE, 0, 2), "removal=[zero,mean,marginal]")
    named = {name: ExplainerResult(Explanation(done.explanation.features * 0 - 1, done.explanation.scores), Cost(), 0)
             for name, done in run.explained.items()}  # fmt: skip
    nobody = searched(run.context, named)
    found = nobody.found()
    assert all(np.isnan(found.values[i]).all() for i, row in enumerate(found.metrics) if row[0] != "coverage")
    assert not found.find_moved().any() and nobody.of(found).invariance.empty
    one = searched(run.context, {**named, "omission": run.explained["omission"]})
    moves = one.of(one.found()).metrics.set_index(["metric", "variant", "explainer"])["moves"]
    assert moves["c", "probability", "omission"] is True and moves["c", "probability", "lr"] is None


def test_a_run_writes_the_ranges_and_marks_what_moves(toy, made):
    four = "explainer=[random,omission,decision_boundary,lr]"
    folder = made(toy, four, "reparametrisations=2", "n_explain=20", "resamples=0", "model.max_epochs=10")
    assert json.loads((folder / "run.json").read_text())["invariance_absent"] == ""
    table = pd.read_csv(folder / "invariance.csv", keep_default_na=False)
    assert set(table["reparametrisations"]) == {2} and set(table["instances"]) == {20}
    assert ((table["tau_lowest"] <= table["tau"]) & (table["tau"] <= table["tau_highest"])).all()
    assert (table["moves"] == (table["tau_highest"] - table["tau_lowest"] > 1e-9)).all()
    assert ((table["moved_by"] != "") == (table["moves"] & (table["subset"] == "all"))).all()
    assert table.loc[table["subset"] == "without_controls", "moves"].any()
    keys = ["metric", "variant", "truth", "agreement", "subset"]
    both = pd.read_csv(folder / "correlations.csv").merge(table, on=keys, suffixes=("", "_of"))
    assert len(both) == len(table) and (both["moves"] == both["moves_of"]).all()
    assert both["tau"].to_numpy() == pytest.approx(both["tau_of"].to_numpy())  # all instances are in the sample
    still = table[table["truth"].isin(["shapley", "contrast"]) & (table["variant"].isin(["marginal", "label"]))]
    assert len(still) and not still["moves"].any()
    metrics = pd.read_csv(folder / "metrics.csv")
    by = metrics[metrics["value"].notna()].groupby(["metric", "variant"])["moves"].any()
    assert by["proximity", "probability"] and by["c_soft", "probability"] and by["comprehensiveness", "del"]
    assert not by["validity_soft", "probability"] and not by["comprehensiveness", "marginal"]
    tables, tex = ((folder / name).read_text() for name in ("tables.md", "tables.tex"))
    page = build.Report(read_results(folder)).render_page({}, [])
    for text in (tables, tex, page):
        assert "depends on an arbitrary constant of the model, not on its predictions" in text
        assert "What an arbitrary constant of the model moves" in text
    assert "| Proximity (probability) ↓ § |" in tables
    assert re.search(r"\| Validity \((label / )?probability\) ↑ \|", tables)
    assert r"Proximity (probability) $\downarrow$ \S{}" in tex and "↓ §" in page


def test_families_are_those_of_the_run():
    run = ran(TABLE, random_linear(TABLE, 0, 3), "explainer=[random,lr,ladder]", "explainer.ladder.rungs=4")
    done = run.of(run.found())
    assert set(done.invariance["agreement"]) == {"recall", "hit", "order"}
    told = done.correlations.dropna(subset="tau")
    assert len(told) == len(done.invariance) and told["moves"].notna().all()
