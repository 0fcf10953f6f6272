"""Stability across explainer seeds, against counts and closed forms."""

from itertools import product
from math import isnan, sqrt

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import sem

from cfeval_cli.core import NO_FEATURE, Cost, ExplainerResult, Explanation
from cfeval_cli.statistics.bootstrap import Bootstrap
from cfeval_cli.statistics.explainer_stability import (
    COLUMNS,
    RepeatedExplanations,
    compare_explanations,
    compare_feature_sets,
    compare_values,
    compute_seed_errors,
)
from cfeval_cli.statistics.scores import Scores

LISTS = st.lists(st.permutations(range(4)).flatmap(lambda p: st.integers(0, 4).map(lambda size: p[:size])), min_size=1)


def make_result(rows, scores=None, faults=()):
    lists = [[(j, float(-i)) for i, j in enumerate(row)] for row in rows] if scores is None else scores
    return ExplainerResult(Explanation.from_lists(lists), Cost(), 0, dict.fromkeys(faults, "failed"))


def pad_sets(rows, k):
    return np.array([[*row[:k], *[NO_FEATURE] * (k - len(row))] for row in rows])


@given(LISTS, st.data(), st.integers(1, 4))
def test_feature_sets_are_compared_as_sets(rows, data, k):
    other = data.draw(st.permutations(rows))
    common, larger, is_equal = compare_feature_sets(pad_sets(rows, k), pad_sets(other, k))
    for i, (a, b) in enumerate(zip(rows, other, strict=True)):
        a, b = set(a[:k]), set(b[:k])
        assert (common[i], larger[i], is_equal[i]) == (len(a & b), max(len(a), len(b)), a == b)


@given(LISTS, st.data(), st.integers(1, 4))
def test_the_table_counts_instances_explained_with_both_seeds(rows, data, k):
    other = data.draw(st.permutations(rows))
    failures = [set(data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=2))) for _ in range(2)]
    positions = np.arange(len(rows)) * 2 + 1  # every other instance was explained again
    all_rows = [row for pair in zip([[0]] * len(rows), rows, strict=True) for row in pair]
    first = {"x": make_result(all_rows, faults=[2 * i + 1 for i in failures[0]] + [0])}
    line = compare_explanations(first, {"x": make_result(other, faults=failures[1])}, positions, k, 0.95).iloc[0]
    positions_of_both = [i for i in range(len(rows)) if i not in failures[0] | failures[1]]
    pairs = [(rows[i], other[i]) for i in positions_of_both if rows[i] or other[i]]
    assert (line["n_requested"], line["instances"]) == (len(rows), len(pairs))
    if not pairs:
        assert isnan(line["same_features"]) and isnan(line["low"]) and line["deterministic"] == ""
        return
    sets = [(set(a[:k]), set(b[:k])) for a, b in pairs]
    assert line["same_features"] == pytest.approx(np.mean([a == b for a, b in sets]))
    assert line["overlap"] == pytest.approx(np.mean([len(a & b) / max(len(a), len(b)) for a, b in sets]))
    assert line["same_order"] == pytest.approx(np.mean([list(a) == list(b) for a, b in pairs]))
    assert line["low"] <= line["same_features"] <= line["high"]
    assert (line["deterministic"] == "yes") == all(list(a) == list(b) for a, b in pairs)


def test_equal_features_with_different_scores_are_not_deterministic():
    first, second = make_result([[1]], [[(1, 0.5)]]), make_result([[1]], [[(1, 0.25)]])
    for repeated, deterministic in ((first, "yes"), (second, "no")):
        line = compare_explanations({"x": first}, {"x": repeated}, np.array([0]), 1, 0.95).iloc[0]
        assert line["same_features"] == line["same_order"] == 1 and line["deterministic"] == deterministic
    assert list(compare_explanations({}, {}, np.array([0]), 1, 0.95)) == COLUMNS


def test_errors_of_a_mean_equal_their_formulas():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 37))
    errors = compute_seed_errors(first, np.ones(37), second, np.ones(37))
    assert (errors["value"], errors["value_again"]) == pytest.approx((first.mean(), second.mean()))
    assert errors["difference"] == pytest.approx(second.mean() - first.mean()) and errors["se"] == pytest.approx(
        sem(first)
    )
    assert errors["explainer_se"] == pytest.approx(sqrt(np.mean((first - second) ** 2) / 2 / 37))


@pytest.mark.parametrize("seed", range(4))
def test_the_explainer_error_is_the_variance_over_all_possible_draws(seed):
    """Each instance draws one of a few explanations; all pairs of draws of all instances are enumerated."""
    rng = np.random.default_rng(seed)
    options = [rng.normal(size=size) for size in (1, 2, 3, 2)]
    chances = [rng.dirichlet(np.ones(len(alternatives))) for alternatives in options]
    unit_weights = np.ones(len(options))
    draws = [
        (np.array([option[i] for option, i in zip(options, choice, strict=True)]),
         np.prod([chance[i] for chance, i in zip(chances, choice, strict=True)]))
        for choice in product(*(range(len(option)) for option in options))
    ]  # fmt: skip
    means, weights = np.array([draw.mean() for draw, _ in draws]), np.array([weight for _, weight in draws])
    variance = weights @ (means - weights @ means) ** 2  # of the value, over seeds of the explainer
    expected = sum(
        p * q * compute_seed_errors(a, unit_weights, b, unit_weights)["explainer_se"] ** 2
        for a, p in draws
        for b, q in draws
    )
    assert expected == pytest.approx(variance)


def test_errors_of_a_ratio_equal_those_of_simulated_draws():
    """Compare with resampled instances, and with explainer draws on fixed instances."""
    rng = np.random.default_rng(3)
    base, far = rng.uniform(0.2, 0.8, 400), rng.uniform(1, 2, 400)

    def draw():
        edit = rng.random(400) < 0.5
        return (rng.random(400) < base).astype(float), np.where(edit, far, far + 1)

    simulated_draws = [draw() for _ in range(1500)]
    values = np.array([n.sum() / d.sum() for n, d in simulated_draws])
    errors = [
        compute_seed_errors(*first, *second)
        for first, second in zip(simulated_draws[:200], simulated_draws[200:400], strict=True)
    ]
    noise = sqrt(np.mean([line["explainer_se"] ** 2 for line in errors]))
    assert noise == pytest.approx(values.std(ddof=1), rel=0.06)
    n, d = simulated_draws[0]
    rows = rng.integers(0, 400, (3000, 400))
    assert errors[0]["se"] == pytest.approx((n[rows].sum(axis=1) / d[rows].sum(axis=1)).std(ddof=1), rel=0.06)
    assert errors[0]["value"] == n.sum() / d.sum()


def test_a_zero_denominator_gives_no_value():
    zeros, unit = np.zeros(3), np.ones(3)
    errors = compute_seed_errors(zeros, zeros, unit, unit)
    assert isnan(errors["value"]) and errors["value_again"] == 1
    assert isnan(errors["difference"]) and isnan(errors["se"]) and isnan(errors["explainer_se"])
    alone = compute_seed_errors(unit[:1], unit[:1], zeros[:1], unit[:1])
    assert alone["difference"] == -1 and isnan(alone["se"]) and alone["explainer_se"] == pytest.approx(sqrt(0.5))


def table(rows):
    return pd.DataFrame(rows, columns=["instance", "explainer", "metric", "variant", "numerator", "denominator"])


def test_values_are_compared_on_instances_with_scores_of_both_seeds():
    first = table([(i, name, "c", "label", 1.0 + i, 2.0) for name in "ab" for i in range(6)])
    second = table([(i, name, "c", "label", 3.0 * i, 1.0) for name in "ab" for i in (1, 3, 5) if name == "a" or i > 1])
    facts = [(i, "a", "coverage", "all", 1.0, 1.0) for i in range(6)]
    first, second = (
        pd.concat([frame, table(facts)]).astype({"metric": "category", "explainer": "category"})
        for frame in (first[first["instance"] != 5], second)
    )
    summary = pd.DataFrame([{"metric": "c", "role": "judged"}, {"metric": "coverage", "role": "fact"}])
    table_of_values = compare_values(first, second, summary, min_instances=2).set_index("explainer")
    assert table_of_values["metric"].tolist() == ["c", "c"] and table_of_values["instances"].to_dict() == {
        "a": 2,
        "b": 1,
    }
    assert table_of_values.loc["a", ["value", "value_again", "difference"]].tolist() == [6 / 4, 12 / 2, 6 - 1.5]
    assert table_of_values["se"].notna().to_dict() == {"a": True, "b": False}  # one instance is too few
    names = {"x": make_result([[0], [1]] * 3)}
    repeated = RepeatedExplanations(np.arange(6), names, Scores.from_frame(second))
    tables = repeated.build_tables(names, Scores.from_frame(first), summary, 1, Bootstrap(0))
    values = tables["explainer_stability_metrics"]
    assert list(tables) == ["explainer_stability", "explainer_stability_metrics"] and values["se"].isna().all()
    assert values[["explainer", "value"]].to_numpy().tolist() == [["a", 6 / 4], ["b", 4 / 2]]
