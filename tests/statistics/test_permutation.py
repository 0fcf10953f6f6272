"""p-values against a full enumeration, and against scipy where it has the same definition."""

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from cfeval_cli.statistics import permutation
from cfeval_cli.statistics.ranking import compute_ranks


def compute_p_values(u, v):
    """Return the p of τ and of ρ of two lists of values."""
    p_tau, p_rho = permutation.compute_permutation_p_values(*(compute_ranks(side[None], "lower") for side in (u, v)))
    return p_tau[0, 0], p_rho[0, 0]


def sign(x):
    return int(x > 0) - int(x < 0)


def tau(u, v):
    pairs = list(combinations(range(len(u)), 2))
    return sum(sign(u[i] - u[j]) * sign(v[i] - v[j]) for i, j in pairs) / len(pairs)


def average_ranks(values):
    return [np.mean([place for place, y in enumerate(sorted(values), 1) if y == value]) for value in values]


@st.composite
def pairs(draw):
    n = draw(st.integers(2, 5))
    side = st.lists(st.integers(-2, 2).map(float), min_size=n, max_size=n)
    return np.array(draw(side)), np.array(draw(side))


@given(pairs())
def test_p_values_enumerate_all_orders_with_ties(pair):
    u, v = pair
    orders = list(permutations(v.tolist()))
    expected = np.mean([tau(u, order) >= tau(u, v) - 1e-9 for order in orders])
    p_tau, p_rho = compute_p_values(u, v)
    assert p_tau == pytest.approx(expected)
    assume(len(set(u)) > 1 and len(set(v)) > 1)
    rho = np.corrcoef(average_ranks(u), average_ranks(v))[0, 1]
    rhos = [np.corrcoef(average_ranks(u), average_ranks(order))[0, 1] for order in orders]
    assert p_rho == pytest.approx(np.mean([r >= rho - 1e-9 for r in rhos]))


@given(st.permutations(range(6)), st.permutations(range(6)))
def test_p_of_tau_without_ties_is_that_of_scipy(u, v):
    a, b = np.array(u, float), np.array(v, float)
    assert compute_p_values(a, b)[0] == pytest.approx(
        stats.kendalltau(a, b, method="exact", alternative="greater").pvalue
    )


def test_p_of_two_swaps_among_six_explainers():
    """τ = 11/15 = 0.733 has a one-sided p of 20/720."""
    u, v = np.arange(6.0), np.array([1.0, 0, 3, 2, 4, 5])
    assert tau(u, v) == pytest.approx(11 / 15)
    assert compute_p_values(u, v)[0] == pytest.approx(20 / 720)
    assert compute_p_values(u, u) == pytest.approx((1 / 720, 1 / 720))


def test_constant_values_have_p_one():
    p_tau, p_rho = compute_p_values(np.ones(4), np.arange(4.0))
    assert p_tau == 1 and np.isnan(p_rho)


def test_orders_of_more_than_eight_explainers_are_sampled():
    rng = np.random.default_rng(0)
    u = np.arange(10.0)
    assert 0 < compute_p_values(u, u)[0] < 1e-3 and compute_p_values(u, u) == compute_p_values(u, u.copy())
    for _ in range(3):
        v = u + rng.normal(scale=4, size=10)
        exact = stats.kendalltau(u, v, method="exact", alternative="greater").pvalue
        assert compute_p_values(u, v)[0] == pytest.approx(exact, abs=0.012)


def test_p_values_of_several_rankings_are_those_of_each_pair():
    rng = np.random.default_rng(0)
    for size in (5, 9):
        ranks, references = (compute_ranks(rng.integers(0, 4, (n, size)).astype(float), "higher") for n in (3, 2))
        p_tau, p_rho = permutation.compute_permutation_p_values(ranks, references)
        for i in range(3):
            for j in range(2):
                assert (p_tau[i, j], p_rho[i, j]) == pytest.approx(compute_p_values(ranks[i], references[j]))
    max_pairs = 2 * 81 * 700  # in blocks of 700 orders, the last one of fewer
    assert permutation.compute_permutation_p_values(ranks, references, max_pairs)[0] == pytest.approx(p_tau)
