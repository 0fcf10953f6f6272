"""The t-interval against its formula, and its coverage with few units."""

import numpy as np
import pytest
from scipy.stats import t

from cfeval_cli.statistics.student_t import compute_t_interval


@pytest.mark.parametrize("size", [2, 5, 8])
def test_interval_and_p_equal_their_formulas(size):
    values = np.random.default_rng(size).normal(0.3, 1, size)
    estimate, error = compute_t_interval(values), values.std(ddof=1) / np.sqrt(size)
    half_width = t.ppf(0.975, size - 1) * error
    assert (estimate.low, estimate.high) == pytest.approx((values.mean() - half_width, values.mean() + half_width))
    assert estimate.p == pytest.approx(2 * t.sf(abs(values.mean()) / error, size - 1))


def test_the_interval_of_five_units_covers_the_mean():
    rng = np.random.default_rng(0)
    estimates = [compute_t_interval(rng.normal(0.1, 1, 5)) for _ in range(2000)]
    assert 0.935 < np.mean([estimate.low <= 0.1 <= estimate.high for estimate in estimates]) < 0.965


def test_few_or_equal_units():
    assert np.isnan(compute_t_interval(np.zeros(0)).mean)
    single = compute_t_interval(np.ones(1))
    assert single.mean == 1 and np.isnan([single.low, single.high, single.p]).all()
    equal = compute_t_interval(np.full(4, 0.2))
    assert (equal.low, equal.high, equal.p) == pytest.approx((0.2, 0.2, 0.0))
    assert compute_t_interval(np.zeros(4)).p == 1
