"""Comparisons over seeds: error rates in simulations, and every column computed by hand."""

import numpy as np
import pytest
from scipy import stats

from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.metrics_over_seeds import _N_MEANS, COLUMNS, compare_metrics_over_seeds
from cfeval_cli.statistics.seeds import resample_seed_means


def simulate_sweep(rng, seeds, mean, between, within, draws=60):
    """τ of each seed, and of resamples of its instances."""
    true = rng.normal(mean, between, size=(seeds, len(mean)))
    values = true + rng.normal(scale=within, size=true.shape)
    return values, [value + rng.normal(scale=within, size=(draws, len(mean))) for value in values]


def test_without_agreement_few_metrics_are_significant():
    """In about 5 % of 120 sweeps of eight metrics without any agreement, some metric is significant."""
    rng = np.random.default_rng(0)
    wrong = 0
    for number in range(120):
        table = compare_metrics_over_seeds(*simulate_sweep(rng, 9, np.zeros(8), 0.3, 0.1), str(number))
        wrong += bool((table["p_holm"] < 0.05).any())
    assert wrong <= 12


def test_large_agreement_and_large_differences_are_significant():
    rng = np.random.default_rng(1)
    mean = np.array([0.9, 0.3, 0.0])
    table = compare_metrics_over_seeds(*simulate_sweep(rng, 15, mean, 0.1, 0.05), "x")
    assert (table["p_holm"][:2] < 0.05).all() and table["p_holm"][2] > 0.05
    assert (table["low"] < table["high"]).all() and table["low"][0] > table["high"][1]
    assert table["behind"][0] == 0 and np.isnan(table["p_behind"][0]) and (table["p_behind"][1:] < 0.05).all()
    assert table["needed"][2] > 15 >= table["needed"][0]


@pytest.mark.parametrize("deviation", [0.0, 1e-11])
def test_required_seeds_of_a_mean_near_zero(deviation):
    values = np.array([[0.1, 0.4], [0.2, 0.5], [-0.3 + deviation, 0.6]])
    table = compare_metrics_over_seeds(values, [np.repeat(value[None], 5, axis=0) for value in values], "x")
    assert table["p"].notna().all() and (np.isnan(table["needed"][0]) if not deviation else table["needed"][0] > 1e18)


@pytest.mark.parametrize("number", range(5))
def test_every_column_equals_its_definition(number):
    rng = np.random.default_rng(number)
    seeds, n_metrics = int(rng.integers(2, 12)), int(rng.integers(1, 6))
    values, draws = simulate_sweep(rng, seeds, rng.uniform(-0.5, 0.9, n_metrics), 0.2, 0.1)
    values, draws = (
        np.column_stack([values, values[:, 0]]),
        [np.column_stack([d, d[:, 0]]) for d in draws],
    )  # a duplicate
    table = compare_metrics_over_seeds(values, draws, "key")
    means = resample_seed_means(values, draws, _N_MEANS, make_stream(0, "seeds.key"))
    p = {}
    for j in range(n_metrics):
        beyond = min((means[:, j] <= 0).sum(), (means[:, j] >= 0).sum())
        p[j] = max(min(1, 2 * (1 + beyond) / (1 + _N_MEANS)), 2 * 0.5**seeds, stats.ttest_1samp(values[:, j], 0).pvalue)
        factor = (seeds / (seeds - 1)) ** 0.5 * stats.t.ppf(0.975, seeds - 1) / stats.norm.ppf(0.975)
        centre = means[:, j].mean()
        for end, percent in (("low", 2.5), ("high", 97.5)):
            expected = centre + factor * (np.percentile(means[:, j], percent) - centre)
            assert table[end][j] == pytest.approx(min(1, max(-1, expected)), abs=1e-12)
        assert table["p"][j] == pytest.approx(p[j])
        assert table["behind"][j] == pytest.approx(values.mean(axis=0).max() - values[:, j].mean())
    order, largest = sorted(p, key=p.get), 0.0
    for rank, j in enumerate(order):
        largest = max(largest, min(1, p[j] * (n_metrics - rank)))
        assert table["p_holm"][j] == pytest.approx(largest)
    for column in COLUMNS:
        np.testing.assert_equal(table[column][n_metrics], table[column][0])  # the duplicate adds no test


def test_one_seed_and_metrics_without_a_value_have_empty_rows():
    values = np.array([[0.5, np.nan], [0.4, 0.1], [0.6, 0.2]])
    table = compare_metrics_over_seeds(values, [np.empty((0, 2))] * 3, "x")
    assert table.loc[1].isna().all() and table.loc[0, "p"] == 0.25
    assert compare_metrics_over_seeds(values[:1], [np.empty((0, 2))], "x").isna().all(axis=None)


def test_only_metrics_that_rank_the_same_explainers_are_compared():
    """Each group has its own best, as if it were alone; what is tested against zero is corrected over all."""
    rng = np.random.default_rng(5)
    values, draws = simulate_sweep(rng, 10, np.array([0.9, 0.5, 0.1, 0.6, 0.2]), 0.1, 0.05)
    ranked = ["a b c", "a b", "a b c", "a b", "a b"]
    table = compare_metrics_over_seeds(values, draws, "x", ranked)
    mean = values.mean(axis=0)
    assert table["behind"].to_numpy() == pytest.approx(
        [0, max(mean[[1, 3, 4]]) - mean[1], mean[0] - mean[2], max(mean[[1, 3, 4]]) - mean[3], mean[3] - mean[4]]
    )
    assert np.isnan(table["p_behind"]).tolist() == [True, False, False, True, False]
    joint_table = compare_metrics_over_seeds(values, draws, "x")
    assert (
        table[["low", "high", "p", "p_holm", "needed"]] == joint_table[["low", "high", "p", "p_holm", "needed"]]
    ).all(axis=None)
    # the same τ over other explainers is another hypothesis
    values, draws = np.column_stack([values, values[:, 0]]), [np.column_stack([d, d[:, 0]]) for d in draws]
    table = compare_metrics_over_seeds(values, draws, "x", [*ranked, "a b"])
    assert table["p_holm"][2] == pytest.approx(
        min(1, compare_metrics_over_seeds(values[:, :5], [d[:, :5] for d in draws], "x")["p"][2])
    )
    assert table["behind"][5] == 0 and table["behind"][3] == pytest.approx(mean[0] - mean[3])
