from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from cfeval_cli.statistics.ranking import compute_rank_correlations, compute_ranks


def coefficients(u, v):
    """τ and ρ of two lists of values."""
    tau, rho = compute_rank_correlations(*(compute_ranks(side, "lower")[None] for side in (u, v)))
    return tau[0, 0], rho[0, 0]


def kendall(u, v):
    return coefficients(u, v)[0]


def spearman(u, v):
    return coefficients(u, v)[1]


values = st.lists(st.integers(-3, 3).map(float), min_size=2, max_size=7)


@st.composite
def pairs(draw):
    n = draw(st.integers(2, 7))
    side = st.lists(st.integers(-3, 3).map(float), min_size=n, max_size=n)
    return np.array(draw(side)), np.array(draw(side))


@given(pairs())
def test_kendall_counts_pairs_one_by_one(pair):
    u, v = pair
    concordant = discordant = 0
    for i, j in combinations(range(len(u)), 2):
        if (u[i] > u[j] and v[i] > v[j]) or (u[i] < u[j] and v[i] < v[j]):
            concordant += 1
        elif (u[i] > u[j] and v[i] < v[j]) or (u[i] < u[j] and v[i] > v[j]):
            discordant += 1
    n = len(u)
    assert kendall(u, v) == pytest.approx((concordant - discordant) / (n * (n - 1) / 2))


@given(st.permutations(range(6)), st.permutations(range(6)))
def test_without_ties_both_are_scipys_and_the_papers_formula(u, v):
    a, b = np.array(u, float), np.array(v, float)
    assert kendall(a, b) == pytest.approx(stats.kendalltau(a, b).statistic)
    assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
    assert spearman(a, b) == pytest.approx(1 - 6 * ((a - b) ** 2).sum() / (6 * 35))


@given(pairs())
def test_spearman_with_ties_is_the_correlation_of_average_ranks(pair):
    u, v = pair
    assume(len(set(u)) > 1 and len(set(v)) > 1)

    def average_ranks(x):
        return [np.mean([place for place, y in enumerate(sorted(x), 1) if y == value]) for value in x]

    assert spearman(u, v) == pytest.approx(np.corrcoef(average_ranks(u), average_ranks(v))[0, 1])


def test_spearman_of_a_constant_is_undefined_and_kendall_is_zero():
    u, v = np.ones(4), np.arange(4.0)
    assert np.isnan(spearman(u, v))
    assert kendall(u, v) == 0


@given(values)
def test_ranks_count_the_better_ones(xs):
    for better, beats in (("higher", lambda a, b: a > b), ("lower", lambda a, b: a < b)):
        expected = [1 + sum(beats(y, x) for y in xs) + (xs.count(x) - 1) / 2 for x in xs]
        assert compute_ranks(np.array(xs), better).tolist() == expected


def test_noise_in_the_last_bits_is_a_tie_and_nan_has_no_rank():
    assert compute_ranks(np.array([0.1 + 0.2, 0.3, np.nan, 0.1]), "higher").tolist()[:2] == [1.5, 1.5]
    assert np.isnan(compute_ranks(np.array([0.3, np.nan]), "higher")[1])
    assert compute_ranks(np.array([1e-17, -1e-17, 0.0, 0.5]), "higher").tolist() == [3, 3, 3, 1]
    edge = 0.1234567890125  # wherever a rounding edge lies, neighbours are tied
    assert compute_ranks(np.array([edge, np.nextafter(edge, 1), np.nextafter(edge, 0)]), "lower").tolist() == [2, 2, 2]
    assert compute_ranks(np.array([0.1, 0.1 + 1e-10]), "lower").tolist() == [1, 2]


# Table 1 of the paper, Adults: values of Random, Omission, LIME, Anchor, DecisionBoundary, LogisticRegression,
# and the τ and ρ that its Table 2 prints for them (0.8285 there is 0.8286 cut short).
TRUTH = [0.0746, 0.1033, 0.6466, 0.2334, 0.3173, 1.0]
PAPER_VALUES = {
    "Comp. (del.)": ([0.0217, 0.0314, 0.1228, 0.1372, 0.1396, 0.1661], 1, 0.7333, 0.8286),
    "Suff. (del.)": ([0.2744, 0.2546, 0.1536, 0.1483, 0.1466, 0.1096], -1, 0.7333, 0.8286),
    "DFR": ([0.0587, 0.0436, 0.2378, 0.3163, 0.3812, 0.3807], 1, 0.4667, 0.6571),
    "C (disc.)": ([0.0483, 0.0487, 0.2012, 0.1466, 0.1935, 0.2521], 1, 1.0, 1.0),
    "C_soft (disc.)": ([0.0069, 0.0092, 0.0462, 0.0281, 0.0453, 0.0667], 1, 1.0, 1.0),
}


@pytest.mark.parametrize("metric", PAPER_VALUES)
def test_the_papers_values_give_the_papers_correlations(metric):
    paper_values, sign, tau, rho = PAPER_VALUES[metric]
    assert kendall(sign * np.array(paper_values), np.array(TRUTH)) == pytest.approx(tau, abs=5e-5)
    assert spearman(sign * np.array(paper_values), np.array(TRUTH)) == pytest.approx(rho, abs=5e-5)
