from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.statistics.ranking_stability import RankingStability, RunPairs


def sign(x):
    return int(x > 0) - int(x < 0)


@given(st.integers(0, 9999), st.integers(2, 5), st.integers(2, 5), st.sampled_from(["higher", "lower"]))
def test_likeness_of_every_two_runs_written_out(seed, runs, explainers, better):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 4, (runs, explainers)).astype(float)
    values[rng.random(values.shape) < 0.15] = np.nan
    pairs = RunPairs.of(rng.integers(0, 2, (runs, 2)))
    found = RankingStability.of(values, better, pairs)
    for place, (one, other) in enumerate(combinations(range(runs), 2)):
        assert (pairs.one[place], pairs.other[place]) == (one, other)
        both = [e for e in range(explainers) if not np.isnan(values[[one, other], e]).any()]
        assert found.there[place] == (not np.isnan(values[one]).all() and not np.isnan(values[other]).all())
        if len(both) < 2:
            assert np.isnan(found.tau[place])
            continue
        a, b = values[one, both], values[other, both]
        signs = [(sign(a[i] - a[j]), sign(b[i] - b[j])) for i, j in combinations(range(len(both)), 2)]
        if all(x == y == 0 for x, y in signs):
            assert np.isnan(found.tau[place])  # two rankings that say nothing
        else:
            assert found.tau[place] == pytest.approx(np.mean([x * y + (x == y == 0) for x, y in signs]))
        assert found.same[place] == all(x == y for x, y in signs)
        best = max if better == "higher" else min
        assert found.same_best[place] == ((a == best(a)) == (b == best(b))).all()


def test_pairs_that_differ_in_one_setting_only():
    pairs = RunPairs.of(np.array([[0, 0], [0, 1], [1, 1]]))
    assert pairs.only(0).tolist() == [False, False, True] and pairs.only(1).tolist() == [True, False, False]


def test_a_line_tells_of_some_of_the_pairs():
    likeness = RankingStability(
        np.array([True, True, True, False]), np.array([1.0, 0.0, np.nan, np.nan]),
        np.array([True, False, False, False]), np.array([True, True, False, False]),
    )  # fmt: skip
    told = likeness.line(np.ones(4, bool))
    assert told == {"pairs": 2, "left_out": 1, "tau": 0.5, "tau_lowest": 0.0, "same": 0.5, "same_best": 1.0}
    assert likeness.line(np.array([False, False, True, True])) == {"pairs": 0, "left_out": 1}
