import numpy as np
import pandas as pd
import pytest
from scipy import stats

from cfeval_cli.statistics.seeds import (
    aggregate_over_seeds,
    compute_required_seeds,
    compute_seed_interval,
    compute_seed_p_values,
    resample_seed_means,
)


def test_mean_and_deviations_within_and_between_seeds():
    rows = pd.DataFrame(
        [("b", 1.0, 0.1), ("a", 2.0, 0.5), ("b", 3.0, 0.3), ("a", np.nan, 9.0), ("b", 5.0, 0.2)],
        columns=["name", "value", "error"],
    )
    table = aggregate_over_seeds(rows, ["name"], "value", "error")
    assert table["name"].tolist() == ["b", "a"] and table["seeds"].tolist() == [3, 1]
    assert table["mean"].tolist() == [3.0, 2.0]
    within = ((0.01 + 0.09 + 0.04) / 3) ** 0.5
    assert table["deviation"][0] == pytest.approx(2.0) and np.isnan(table["deviation"][1])
    assert table["within"].tolist() == pytest.approx([within, 0.5])
    assert table["between"][0] == pytest.approx((4.0 - within**2) ** 0.5)


def test_the_deviation_between_seeds_is_at_least_zero():
    rows = pd.DataFrame({"name": "a", "value": [1.0, 1.1], "error": [0.5, 0.5]})
    assert aggregate_over_seeds(rows, ["name"], "value", "error")["between"].tolist() == [0.0]


@pytest.mark.parametrize("number", range(4))
def test_means_over_seeds_and_instances_have_the_spread_of_both(number):
    rng = np.random.default_rng(number)
    seeds, columns, n_means = 5, 3, 40_000
    values = rng.normal(size=(seeds, columns))
    draws = [value + rng.normal(scale=0.7, size=(300, columns)) for value in values]
    draws[0] = np.empty((0, columns))  # one that was not resampled
    resampled = resample_seed_means(values, draws, n_means, np.random.default_rng(1))
    # by hand: a seed's mean and variance, of which one of five is drawn each time
    centre = np.array([d.mean(axis=0) if len(d) else v for d, v in zip(draws, values, strict=True)])
    inside = np.array([d.var(axis=0) if len(d) else np.zeros(columns) for d in draws])
    variance = (inside.mean(axis=0) + centre.var(axis=0)) / seeds
    np.testing.assert_allclose(resampled.mean(axis=0), centre.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(resampled.var(axis=0), variance, rtol=0.05)
    pair = np.mean([np.cov(d.T, bias=True) if len(d) else np.zeros((columns, columns)) for d in draws], axis=0)
    np.testing.assert_allclose(
        np.cov(resampled.T), (pair + np.cov(centre.T, bias=True)) / seeds, atol=0.05 * variance.max()
    )  # columns stay paired


def test_p_values_of_few_seeds_are_limited():
    clear = np.full((999, 1), 0.9)
    p_values = [compute_seed_p_values(np.full((seeds, 1), 0.9), clear)[0] for seeds in (2, 5, 6, 20)]
    assert p_values == [0.5, 0.0625, 0.03125, 2 / 1000]
    assert compute_seed_p_values(np.zeros((20, 1)), np.linspace(-1, 1, 999)[:, None])[0] == 1
    values = np.random.default_rng(0).normal(0.5, 1, size=(7, 3))
    assert (compute_seed_p_values(values, np.full((999, 3), 0.9)) >= stats.ttest_1samp(values, 0).pvalue - 1e-12).all()


def test_the_interval_over_seeds_covers_the_mean():
    rng = np.random.default_rng(5)
    is_covered = []
    for _ in range(300):
        true = rng.normal(0.2, 0.3, size=(5, 4))
        draws = [value + rng.normal(scale=0.05, size=(60, 4)) for value in true]
        low, high = compute_seed_interval(true, resample_seed_means(true, draws, 400, rng), 0.95)
        is_covered += ((low <= 0.2) & (high >= 0.2)).tolist()
    assert 0.92 < np.mean(is_covered) <= 0.99


@pytest.mark.parametrize("tests", [1, 8])
def test_the_required_number_of_seeds_is_the_smallest_that_is_significant(tests):
    for mean, deviation in ((0.4, 0.3), (-0.05, 0.6), (0.9, 0.01)):
        required = compute_required_seeds(mean, deviation, tests)

        def compute_p(seeds, mean=mean, deviation=deviation):
            z = abs(mean) / (deviation / np.sqrt(seeds))
            return max(2 * stats.norm.sf(z), 2 * stats.binomtest(seeds, seeds, alternative="greater").pvalue) * tests

        assert compute_p(required) <= 0.05 < compute_p(required - 1) + 1e-12
    assert compute_required_seeds(0.0, 0.3, tests) is None
    assert compute_required_seeds((0.1 + 0.2 - 0.3) / 3, 0.3, tests) is None  # zero but for rounding
