"""The t-interval against scipy's test, and its coverage with few units."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from cfeval_cli.statistics.student_t import compute_t_interval


@pytest.mark.parametrize("size", [2, 5, 8])
def test_interval_and_p_are_those_of_the_t_test(size):
    values = np.random.default_rng(size).normal(0.3, 1, size)
    found, test = compute_t_interval(values), ttest_1samp(values, 0.0)
    assert found.p == pytest.approx(test.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(test.confidence_interval(0.95)))


def test_of_five_units_the_interval_covers_the_mean_as_often_as_promised():
    rng = np.random.default_rng(0)
    found = [compute_t_interval(rng.normal(0.1, 1, 5)) for _ in range(2000)]
    assert 0.935 < np.mean([one.low <= 0.1 <= one.high for one in found]) < 0.965


def test_few_or_equal_units():
    assert np.isnan(compute_t_interval(np.zeros(0)).mean)
    alone = compute_t_interval(np.ones(1))
    assert alone.mean == 1 and np.isnan([alone.low, alone.high, alone.p]).all()
    same = compute_t_interval(np.full(4, 0.2))
    assert (same.low, same.high, same.p) == pytest.approx((0.2, 0.2, 0.0))
    assert compute_t_interval(np.zeros(4)).p == 1
