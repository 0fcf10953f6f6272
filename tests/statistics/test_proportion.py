"""The exact interval of a share, against its definition: both tails of the binomial, by whole numbers."""

from math import comb, isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.statistics.proportion import compute_proportion_interval


def tail(share, of, counts):
    return sum(comb(of, i) * share**i * (1 - share) ** (of - i) for i in counts)


@given(st.integers(1, 40), st.data(), st.sampled_from([0.5, 0.9, 0.95]))
def test_interval_ends_have_the_nominal_tail_probability(of, data, confidence):
    hits, rare = data.draw(st.integers(0, of)), (1 - confidence) / 2
    low, high = compute_proportion_interval(hits, of, confidence)
    assert low == 0 if hits == 0 else tail(low, of, range(hits, of + 1)) == pytest.approx(rare, rel=1e-6)
    assert high == 1 if hits == of else tail(high, of, range(hits + 1)) == pytest.approx(rare, rel=1e-6)


def test_no_trials_have_no_interval():
    assert all(isnan(end) for end in compute_proportion_interval(0, 0, 0.95))
