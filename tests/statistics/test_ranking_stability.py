from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.statistics.ranking_stability import RankingStability, RunPairs


def sign(x):
    return int(x > 0) - int(x < 0)


@given(st.integers(0, 9999), st.integers(2, 5), st.integers(2, 5), st.sampled_from(["higher", "lower"]))
def test_stability_equals_a_loop_over_pairs_of_runs(seed, runs, explainers, better):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 4, (runs, explainers)).astype(float)
    values[rng.random(values.shape) < 0.15] = np.nan
    pairs = RunPairs.from_settings(rng.integers(0, 2, (runs, 2)))
    stability = RankingStability.compute(values, better, pairs)
    for i, (first, second) in enumerate(combinations(range(runs), 2)):
        assert (pairs.first[i], pairs.second[i]) == (first, second)
        common = [e for e in range(explainers) if not np.isnan(values[[first, second], e]).any()]
        assert stability.has_both[i] == (not np.isnan(values[first]).all() and not np.isnan(values[second]).all())
        if len(common) < 2:
            assert np.isnan(stability.tau[i])
            continue
        a, b = values[first, common], values[second, common]
        signs = [(sign(a[e] - a[f]), sign(b[e] - b[f])) for e, f in combinations(range(len(common)), 2)]
        if all(x == y == 0 for x, y in signs):
            assert np.isnan(stability.tau[i])
        else:
            assert stability.tau[i] == pytest.approx(np.mean([x * y + (x == y == 0) for x, y in signs]))
        assert stability.same_ranks[i] == all(x == y for x, y in signs)
        best = max if better == "higher" else min
        assert stability.same_best[i] == ((a == best(a)) == (b == best(b))).all()


def test_pairs_that_differ_in_one_setting_only():
    pairs = RunPairs.from_settings(np.array([[0, 0], [0, 1], [1, 1]]))
    assert pairs.differ_only_in(0).tolist() == [False, False, True]
    assert pairs.differ_only_in(1).tolist() == [True, False, False]


def test_summary_of_selected_pairs():
    stability = RankingStability(
        np.array([True, True, True, False]), np.array([1.0, 0.0, np.nan, np.nan]),
        np.array([True, False, False, False]), np.array([True, True, False, False]),
    )  # fmt: skip
    assert stability.summarise(np.ones(4, bool)) == {
        "pairs": 2, "left_out": 1, "tau": 0.5, "tau_lowest": 0.0, "same": 0.5, "same_best": 1.0,
    }  # fmt: skip
    assert stability.summarise(np.array([False, False, True, True])) == {"pairs": 0, "left_out": 1}
