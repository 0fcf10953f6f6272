"""Explainers compared pair by pair, against loops over resamples written out."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.bootstrap import Bootstrap, choose_n_resamples
from cfeval_cli.statistics.explainer_comparison import compare_explainers
from cfeval_cli.statistics.scores import Scores

ROW = ("recall", "shapley")
HOW = Bootstrap(3, 500)


def table(values, ids=None, weights=None):
    """Scores by explainer; NaN where it says nothing."""
    lines = []
    for name, of in values.items():
        for place, value in enumerate(of):
            if not np.isnan(value):
                weight = 1.0 if weights is None else weights[name][place]
                lines.append((place if ids is None else ids[place], name, *ROW, value, weight))
    columns = ["instance", "explainer", "metric", "variant", "numerator", "denominator"]
    return Scores.from_frame(pd.DataFrame(lines, columns=columns))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("better", ["higher", "lower"])
def test_values_intervals_and_p_are_those_of_a_loop(seed, better):
    rng = np.random.default_rng(seed)
    names, n = ["a", "b", "c", "d"], 40
    values = {name: rng.integers(0, 2, n) * 1.0 + 0.3 * i for i, name in enumerate(names)}
    weights = {name: rng.integers(1, 4, n) * 1.0 for name in names}
    values["b"][:5] = np.nan  # not all cover all
    found = compare_explainers(table(values, weights=weights), ROW, names, better, HOW)
    shared = np.arange(5, n)
    sign = 1 if better == "higher" else -1
    real = {name: values[name][shared].sum() / weights[name][shared].sum() for name in names}
    order = sorted(names, key=lambda name: -sign * real[name])
    assert list(found.values) == order and found.values == pytest.approx(real) and found.instances == 35
    times = max(500, choose_n_resamples(4, 0, 0))
    drawn = make_stream(HOW.seed, "bootstrap").integers(0, 35, (times, 35))
    p, gaps = [], {}
    pairs = list(combinations(order, 2))
    for one, two in pairs:
        some = shared[drawn]
        first, second = (values[name][some].sum(axis=1) / weights[name][some].sum(axis=1) for name in (one, two))
        gap = gaps[one, two] = np.where(abs(first - second) < 1e-12, 0.0, sign * (first - second))
        beyond = min((gap <= 0).sum(), (gap >= 0).sum())
        p.append(min(1.0, 2 * (1 + beyond) / (1 + times)))
    adjusted, largest = {}, 0.0
    for rank, place in enumerate(np.argsort(p, kind="stable")):
        largest = max(largest, min(1.0, p[place] * (len(p) - rank)))
        adjusted[pairs[place]] = largest
    for duel in found.duels:
        pair = (duel.better, duel.worse)
        assert duel.p == pytest.approx(adjusted[pair]) and duel.sure == (adjusted[pair] < 0.05)
        assert (duel.low, duel.high) == pytest.approx(tuple(np.quantile(gaps[pair], [0.025, 0.975])))
        spread, wanted = np.std(gaps[pair], ddof=1), norm.ppf(1 - 0.05 / 12) + norm.ppf(0.8)
        needed = max(30, np.ceil(35 * (wanted * spread / duel.difference) ** 2))
        assert duel.needed == needed
    assert found.tied == [order[0], *(two for one, two in pairs if one == order[0] and adjusted[one, two] >= 0.05)]


def test_as_many_instances_as_it_says_would_show_the_difference_four_times_in_five():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.1, 1, 100), rng.normal(0, 1, 100)
    found = compare_explainers(table({"a": a, "b": b}), ROW, ["a", "b"], "higher", HOW)
    (duel,) = found.duels
    spread = np.std(a - b, ddof=1) if duel.better == "a" else np.std(b - a, ddof=1)
    seen = 0
    for _ in range(400):
        gaps = rng.normal(duel.difference, spread, duel.needed)
        seen += abs(gaps.mean()) / (gaps.std(ddof=1) / len(gaps) ** 0.5) > norm.ppf(0.975)
    assert 0.72 < seen / 400 < 0.88


def test_who_is_silent_about_most_is_left_out_and_leaves_the_others_theirs():
    values = {"a": np.ones(40), "b": np.zeros(40), "c": np.where(np.arange(40) < 19, 1.0, np.nan)}
    found = compare_explainers(table(values), ROW, ["a", "b", "c"], "higher", HOW)
    assert found.left_out == ["c"] and found.instances == 40 and found.tied == ["a"] and found.decides


def test_what_cannot_be_told_is_not():
    same = compare_explainers(table({"a": np.ones(40), "b": np.ones(40)}), ROW, ["a", "b"], "higher", HOW)
    assert same.tied == ["a", "b"] and not same.decides and same.needed is None
    few = compare_explainers(table({"a": np.ones(29), "b": np.zeros(29)}), ROW, ["a", "b"], "higher", HOW)
    assert not few.decides
    none = compare_explainers(table({"a": np.ones(40), "b": np.zeros(40)}), ROW, ["a", "b"], "higher", Bootstrap(0, 0))
    assert not none.decides
    assert compare_explainers(table({"a": np.ones(40)}), ROW, ["a", "b"], "higher", HOW) is None
    apart = {"a": np.where(np.arange(40) < 20, 1.0, np.nan), "b": np.where(np.arange(40) < 20, np.nan, 1.0)}
    assert compare_explainers(table(apart), ROW, ["a", "b"], "higher", HOW) is None
