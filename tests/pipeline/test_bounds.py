"""Bounds against brute force: every explanation of every instance, and every combination of them."""

from dataclasses import replace
from itertools import permutations, product
from math import prod

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier

from cfeval_cli.core import ABSENT, ModelSpec
from cfeval_cli.model.estimator import Estimator
from cfeval_cli.pipeline import bounds
from cfeval_cli.pipeline.bounds import FeatureSetBounds, Objective, ScoredSets, compute_bounds
from cfeval_cli.pipeline.context import create_context
from tests.inside import make_plan
from tests.problems import draw_linear, logit, make_dataset, make_linear, sigmoid


def make_context(dataset, model, *overrides):
    plan = make_plan("cache=off", "n_jobs=1", "explainer=[random,lr]", *overrides)
    return create_context(plan.restrict_to(ModelSpec(dataset, type(model))), dataset, model)


def compute_truths(context):
    return {name: context.compute_importance(name) for name in context.plan.truths}


@st.composite
def scored_sets(draw):
    """Draw a few instances with a few sets each; scores are small integers, so that ties are exact."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    total = sum(sizes)
    numbers = st.lists(st.integers(-3, 3).map(float), min_size=total, max_size=total)
    weights = st.lists(st.integers(0, 3).map(float), min_size=total, max_size=total)
    return sizes, np.array(draw(numbers)), np.array(draw(weights)), draw(st.sampled_from(["higher", "lower"]))


@settings(max_examples=300)
@given(scored_sets(), st.booleans())
def test_the_extreme_ratio_is_that_of_all_combinations(draws, worst):
    sizes, n, d, better = draws
    d = d + 0.5  # a set without distance cannot be compared
    objective = Objective(("c", "label"), better)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    sets = ScoredSets(owner, np.zeros((len(owner), 1), dtype=int), {objective: (n, d)}, {})
    instances = np.arange(len(sizes)) % 3 != 1
    value, is_optimal = sets.find_extreme(objective, instances, worst=worst)
    ranges = [np.flatnonzero(owner == i) for i in np.flatnonzero(instances)]
    ratios = {choice: n[list(choice)].sum() / d[list(choice)].sum() for choice in product(*ranges)}
    extreme = max if (better == "higher") != worst else min
    expected = extreme(ratios.values())
    assert value == pytest.approx(expected)
    best = [choice for choice, ratio in ratios.items() if ratio == pytest.approx(expected, abs=1e-9)]
    assert set(np.flatnonzero(is_optimal)) == {row for choice in best for row in choice}


@settings(max_examples=200)
@given(scored_sets(), st.data(), st.booleans())
def test_truth_shares_are_means_over_all_instances_and_over_those_whose_sets_differ(draws, data, ratio):
    sizes, n, d, better = draws
    d = d + 0.5 if ratio else np.ones(len(d))
    objective = Objective(("c" if ratio else "dfr", "label"), better)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    truth = np.array(data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=len(n), max_size=len(n))))
    # one feature each, so that all sets of an instance differ
    features = np.concatenate([np.arange(size) for size in sizes])[:, None]
    sets = ScoredSets(owner, features, {objective: (n, d)}, {"signed": truth})
    bounds = FeatureSetBounds(sets, np.arange(len(sizes)), True)
    line, agreement = bounds.tabulate().iloc[0], bounds.tabulate_truth().iloc[0]
    ranges = [np.flatnonzero(owner == i) for i in range(len(sizes))]
    ratios = {choice: n[list(choice)].sum() / d[list(choice)].sum() for choice in product(*ranges)}
    extreme = (max if better == "higher" else min)(ratios.values())
    best = [choice for choice, value in ratios.items() if value == pytest.approx(extreme, abs=1e-9)]
    optima = [{choice[i] for choice in best} for i in range(len(sizes))]
    informative = [i for i, rows in enumerate(ranges) if len(optima[i]) < len(rows)]
    if not ratio:
        assert informative == [i for i, rows in enumerate(ranges) if len(set(n[rows])) > 1]
    shares = [np.mean([truth[row] for row in rows]) for rows in optima]
    assert line["informative"] == len(informative) and agreement["share"] == pytest.approx(np.mean(shares))
    if informative:
        assert agreement["share_informative"] == pytest.approx(np.mean([shares[i] for i in informative]))
    else:
        assert np.isnan(agreement["share_informative"])


def test_without_distance_or_instances_there_is_no_extreme():
    objective = Objective(("c", "label"), "higher")
    sets = ScoredSets(np.array([0, 0]), np.zeros((2, 1), dtype=int), {objective: (np.zeros(2), np.zeros(2))}, {})
    assert np.isnan(sets.find_extreme(objective, np.array([True]))[0]) and np.isnan(
        sets.find_extreme(objective, np.array([False]))[0]
    )


def enumerate_scores(dataset, model, k):
    """Return comprehensiveness, and drop, flip and distance of the largest drop, by instance and ordered set."""
    scores = {}
    for i, row in enumerate(dataset.test.codes):
        sign = 1 if logit(model, row) > 0 else -1
        before = sigmoid(sign * logit(model, row))
        for features in permutations(np.flatnonzero(row != ABSENT).tolist(), k):
            erased = row.copy()
            erased[list(features)] = ABSENT
            edits = []
            for values in product(*(dataset.candidates[j].tolist() for j in features)):
                edited = row.copy()
                edited[list(features)] = values
                if (edited == row).all():
                    continue
                after = sigmoid(sign * logit(model, edited))
                moves = [model.tables[j][row[j]] - model.tables[j][edited[j]] for j in features]
                flip = (logit(model, edited) > 0) != (sign > 0)
                changed = sum(edited != row)
                edits.append(
                    (
                        round(after, 12),
                        changed,
                        len(edits),
                        before - after,
                        flip,
                        np.sqrt(sum((m**2).sum() for m in moves)),
                    )
                )
            *_, drop, flip, distance = min(edits)
            scores[i, features] = (before - sigmoid(sign * logit(model, erased)), drop, float(flip), distance)
    return scores


@given(st.integers(0, 10_000), st.sampled_from([1, 2]))
@example(seed=713, k=1)  # a feature that is absent in all training rows
def test_all_sets_are_enumerated_and_scored(seed, k):
    dataset = make_dataset([2, 3, 2, 3], n=5, seed=seed, absent=0.2)
    model = make_linear(dataset, seed=seed + 1, dim=2)
    context = make_context(dataset, model, f"k={k}", "distance.space=embedding")
    bounds_of_all = compute_bounds(context, compute_truths(context), lambda _: None)
    expected_scores = enumerate_scores(dataset, model, k)
    eligible = [i for i, row in enumerate(dataset.test.codes) if (row != ABSENT).sum() >= k]
    assert bounds_of_all.is_exact and bounds_of_all.instances.tolist() == eligible
    assert len(bounds_of_all.sets.owner) == len({key for key in expected_scores if key[0] in eligible})
    table = bounds_of_all.tabulate().set_index(["metric", "variant"])
    sets = {(i, frozenset(features)) for i, features in expected_scores if i in eligible}
    assert (table["sets"] == len(sets)).all()  # whatever the order
    best = {i: max(score[0] for (row, _), score in expected_scores.items() if row == i) for i in eligible}
    optima = {
        (i, frozenset(f)) for (i, f), score in expected_scores.items() if i in eligible and score[0] >= best[i] - 1e-12
    }
    assert table.loc[("comprehensiveness", "del"), "optima"] == pytest.approx(len(optima) / len(eligible))

    def options(i, *columns):
        return [[score[c] for c in columns] for (row, _), score in expected_scores.items() if row == i]

    for name, variant, column in (
        ("comprehensiveness", "del", 0),
        ("validity_soft", "probability", 1),
        ("proximity", "probability", 3),
    ):
        ends = [(min(x for (x,) in options(i, column)), max(x for (x,) in options(i, column))) for i in eligible]
        low, high = np.mean([a for a, _ in ends]), np.mean([b for _, b in ends])
        line = table.loc[(name, variant)]
        expected = (high, low) if name == "proximity" else (low, high)
        assert (line["worst"], line["best"]) == pytest.approx(expected, abs=1e-9)
    # the ratio by bisection: a ratio over r exists exactly if the best of n - r·d adds up to more than zero
    if all(d > 0 for i in eligible for (d,) in options(i, 3)):
        low, high = -100.0, 100.0
        for _ in range(80):
            middle = (low + high) / 2
            over = sum(max(n - middle * d for n, d in options(i, 1, 3)) for i in eligible) > 0
            low, high = (middle, high) if over else (low, middle)
        assert table.loc[("c_soft", "probability"), "best"] == pytest.approx(low, abs=1e-9)


def test_greedy_bounds_are_never_beyond_those_of_all_sets():
    dataset = make_dataset([3, 2, 3, 2, 2], n=12, seed=3)
    model = make_linear(dataset, seed=4)
    fixed = ("k=2", "removal=[zero,mask]", "metric=paper")  # what others have is drawn otherwise for texts
    context = make_context(dataset, model, *fixed)
    exact = compute_bounds(context, compute_truths(context), lambda _: None).tabulate()
    text = make_context(dataset, model, *fixed)
    object.__setattr__(text.dataset, "kind", "text")  # pairs are enumerated for tables only
    bounds_of_text = compute_bounds(text, compute_truths(text), lambda _: None)
    greedy = bounds_of_text.tabulate()
    assert (
        not bounds_of_text.is_exact and set(greedy["method"]) == {"greedy"} and set(exact["method"]) == {"enumerated"}
    )
    assert len(bounds_of_text.sets.owner) < 12 * 20  # of the 20 ordered pairs of an instance
    for row, greedy_row in zip(exact.itertuples(), greedy.itertuples(), strict=True):
        sign = 1 if row.better == "higher" else -1
        assert sign * (row.best - greedy_row.best) >= -1e-9
        assert sign * (greedy_row.worst - row.worst) >= -1e-9
    # if the logit is a sum, the best single deletion is part of the best pair
    comp = [
        table.set_index(["metric", "variant"]).loc[("comprehensiveness", "del"), "best"] for table in (exact, greedy)
    ]
    assert comp[0] == pytest.approx(comp[1])


def test_instances_are_sampled_and_sets_are_scored_in_chunks(monkeypatch):
    dataset = make_dataset([2, 2, 2], n=30)
    model = make_linear(dataset)
    assert len(compute_bounds(make_context(dataset, model, "bounds=7"), {}, lambda _: None).instances) == 7
    monkeypatch.setattr(bounds, "_MAX_SETS", 60)
    assert len(compute_bounds(make_context(dataset, model, "k=2"), {}, lambda _: None).instances) == 10  # 6 pairs each
    context = make_context(dataset, model)
    monkeypatch.setattr(bounds, "_MAX_SETS", 1 << 19)
    expected = compute_bounds(context, compute_truths(context), lambda _: None).tabulate()
    monkeypatch.setattr(bounds, "_MAX_SETS_PER_CALL", 7)
    pd.testing.assert_frame_equal(compute_bounds(context, compute_truths(context), lambda _: None).tabulate(), expected)


@pytest.mark.parametrize("arguments", [["k=1"], ["k=2"], ["k=1", "search=continuous"]], ids=" ".join)
def test_explainers_of_a_run_are_between_the_bounds(toy, make_run, arguments):
    folder = make_run(
        toy,
        "explainer=[random,omission,anchor,lr]",
        "explainer.anchor.threshold=0.8",
        "truth=[signed]",
        "support=own",
        "n_explain=15",
        "model.max_epochs=10",
        "resamples=0",
        "bounds=2000",
        *arguments,
    )
    metrics, bounds = pd.read_csv(folder / "metrics.csv"), pd.read_csv(folder / "bounds.csv")
    places = metrics["normalised"].dropna()
    assert len(places) > 40 and places.between(-1e-6, 1 + 1e-6).all()
    result_of_all = metrics[(metrics["coverage"] == 1) & (metrics["better"] != "none")].merge(
        bounds, on=["metric", "variant"]
    )
    expected = (result_of_all["value"] - result_of_all["worst"]) / (result_of_all["best"] - result_of_all["worst"])
    is_present = (result_of_all["best"] - result_of_all["worst"]).abs() > 1e-9
    assert result_of_all["normalised"][is_present].to_numpy() == pytest.approx(expected[is_present].to_numpy())
    table = bounds.set_index(["metric", "variant"])
    agreement = pd.read_csv(folder / "bounds_truth.csv").set_index(["metric", "variant", "truth"])["share"]
    assert (table.loc[("recall", "signed"), "best"], agreement["recall", "signed", "signed"]) == (1, 1)
    if "k=1" in arguments:  # deleting a feature takes its whole effect: the best to delete is the truth
        assert agreement["comprehensiveness", "del", "signed"] == pytest.approx(1)
        assert metrics.query("metric == 'comprehensiveness' and variant == 'del' and explainer == 'lr'")[
            "normalised"
        ].item() == pytest.approx(1)
    assert bounds["informative"].between(0, bounds["instances"]).all() and bounds["informative"].max() == 15
    if arguments != ["k=1"]:
        return
    text = (folder / "tables.md").read_text()
    assert "Bounds of each metric" in text and "on which not all sets score the same" in " ".join(text.split())


def test_without_bounds_there_is_no_file(toy, make_run):
    folder = make_run(toy, "explainer=[random,lr]", "n_explain=5", "bounds=0", "metric=[recall]", "resamples=0")
    assert not (folder / "bounds.csv").exists() and not (folder / "bounds_truth.csv").exists()
    assert "normalised" not in pd.read_csv(folder / "metrics.csv")


def measure_share(scores, importance, k):
    """Return the mean share of the truth's top k in the best sets, over instances whose sets differ, and their number.

    `scores` are by instance and ordered set, the larger the better.
    """
    shares = []
    for i, row in enumerate(importance):
        by_set = {features: score for (instance, features), score in scores.items() if instance == i}
        best = max(by_set.values())
        # Features that tie with the last of the top k share the open ranks.
        last = np.sort(row)[-k]
        weights = (row > last) + (row == last) * (k - (row > last).sum()) / (row == last).sum()
        best_sets = [features for features, score in by_set.items() if score >= best - 1e-12]
        if len(best_sets) < len(by_set):
            shares.append(np.mean([weights[list(features)].sum() / k for features in best_sets]))
    return np.mean(shares), len(shares)


@pytest.mark.parametrize("k", [1, 2])
def test_circularity_of_an_additive_model_is_that_of_all_sets(k):
    dataset = make_dataset([2, 3, 4, 3], n=60)
    model = draw_linear(dataset, seed=3, dim=2)
    context = make_context(dataset, model, f"k={k}", "removal=[zero,marginal]", "truth=[signed,shapley,contrast]")
    truth = compute_truths(context)
    measured = compute_bounds(context, truth, lambda _: None).measure_circularity()
    scores = enumerate_scores(dataset, model, k)
    for metric, column in ((("comprehensiveness", "del"), 0), (("validity_soft", "probability"), 1)):
        of_metric = {key: score[column] for key, score in scores.items()}
        for name, importance in truth.items():
            share, count = measure_share(of_metric, importance, k)
            assert count >= 30 and measured[*metric, name] == pytest.approx(share)
    # Deletion takes the effects of features from the logit; the logit of an edit is additive, too.
    for metric, name in (("comprehensiveness", "signed"), ("sufficiency", "signed")):
        assert measured[metric, "del", name] == 1
    # A second feature does not count where no value of it lowers the probability: then several sets are best.
    assert measured["validity_soft", "probability", "contrast"] > (0.9 if k == 2 else 1 - 1e-9)
    assert min(measured.values()) < 0.8


@pytest.mark.parametrize("k", [1, 2])
def test_circularity_of_a_boosted_model_is_that_of_all_sets(k):
    dataset = make_dataset([3, 4, 3, 3], n=80, seed=2)
    codes = dataset.train.codes
    labels = (codes[:, 0] * codes[:, 1] + codes[:, 2] > 3).astype(int)
    dataset = replace(dataset, train=replace(dataset.train, labels=labels))
    model = Estimator(HistGradientBoostingClassifier(max_iter=20, min_samples_leaf=3)).fit(dataset, 0)
    context = make_context(dataset, model, f"k={k}", "truth=[contrast]", "explainer=[random]", "metric=[validity_soft]")
    truth, rows = compute_truths(context), context.rows
    measured = compute_bounds(context, truth, lambda _: None).measure_circularity()
    drops = {}
    for i, row in enumerate(rows.codes):
        for features in permutations(range(4), k):
            edits = np.repeat(row[None], prod(len(dataset.candidates[j]) for j in features), axis=0)
            edits[:, list(features)] = list(product(*(dataset.candidates[j] for j in features)))
            drops[i, features] = -model.predict_proba(edits)[:, rows.predicted_classes[i]].min()
    share, count = measure_share(drops, truth["contrast"], k)
    assert count >= 30 and measured == {("validity_soft", "probability", "contrast"): pytest.approx(share)}
    assert share == 1 if k == 1 else share < 1


def test_circularity_is_not_measured_on_few_instances_or_greedily():
    dataset = make_dataset([2, 3, 2, 3], n=29)
    context = make_context(dataset, draw_linear(dataset, seed=1, dim=2), "k=1")
    bounds_of_few = compute_bounds(context, compute_truths(context), lambda _: None)
    assert bounds_of_few.is_exact and not bounds_of_few.measure_circularity()
    dataset = make_dataset([2, 3, 2, 3], n=40)
    context = make_context(dataset, draw_linear(dataset, seed=1, dim=2), "k=3")
    greedy = compute_bounds(context, compute_truths(context), lambda _: None)
    assert not greedy.is_exact and not greedy.measure_circularity()
