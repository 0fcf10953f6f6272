"""Claims over seeds: right as often as they say, and against what is written out by hand."""

import numpy as np
import pytest
from scipy import stats

from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.metrics_over_seeds import _RESAMPLES, COLUMNS, compare_metrics_over_seeds
from cfeval_cli.statistics.seeds import resample_seed_means


def sweep(rng, seeds, mean, between, within, draws=60):
    """τ of each seed, and of resamples of its instances."""
    true = rng.normal(mean, between, size=(seeds, len(mean)))
    values = true + rng.normal(scale=within, size=true.shape)
    return values, [value + rng.normal(scale=within, size=(draws, len(mean))) for value in values]


def test_where_nothing_is_there_hardly_anything_is_found():
    """Of 120 sweeps of eight metrics without any agreement, some metric is called better than chance in about 5 %."""
    rng = np.random.default_rng(0)
    wrong = 0
    for number in range(120):
        found = compare_metrics_over_seeds(*sweep(rng, 9, np.zeros(8), 0.3, 0.1), str(number))
        wrong += bool((found["p_holm"] < 0.05).any())
    assert wrong <= 12


def test_what_is_there_is_found_and_what_comes_first_is_told_apart():
    rng = np.random.default_rng(1)
    mean = np.array([0.9, 0.3, 0.0])
    found = compare_metrics_over_seeds(*sweep(rng, 15, mean, 0.1, 0.05), "x")
    assert (found["p_holm"][:2] < 0.05).all() and found["p_holm"][2] > 0.05
    assert (found["low"] < found["high"]).all() and found["low"][0] > found["high"][1]
    assert found["behind"][0] == 0 and np.isnan(found["p_behind"][0]) and (found["p_behind"][1:] < 0.05).all()
    assert found["needed"][2] > 15 >= found["needed"][0]


@pytest.mark.parametrize("left", [0.0, 1e-11])
def test_seeds_that_cancel_out_need_no_number_or_a_very_large_one(left):
    values = np.array([[0.1, 0.4], [0.2, 0.5], [-0.3 + left, 0.6]])
    found = compare_metrics_over_seeds(values, [np.repeat(value[None], 5, axis=0) for value in values], "x")
    assert found["p"].notna().all() and (np.isnan(found["needed"][0]) if not left else found["needed"][0] > 1e18)


@pytest.mark.parametrize("number", range(5))
def test_every_column_written_out(number):
    rng = np.random.default_rng(number)
    seeds, many = int(rng.integers(2, 12)), int(rng.integers(1, 6))
    values, draws = sweep(rng, seeds, rng.uniform(-0.5, 0.9, many), 0.2, 0.1)
    values, draws = np.column_stack([values, values[:, 0]]), [np.column_stack([d, d[:, 0]]) for d in draws]  # a twin
    found = compare_metrics_over_seeds(values, draws, "key")
    drawn = resample_seed_means(values, draws, _RESAMPLES, make_stream(0, "seeds.key"))
    p = {}
    for j in range(many):
        beyond = min((drawn[:, j] <= 0).sum(), (drawn[:, j] >= 0).sum())
        p[j] = max(
            min(1, 2 * (1 + beyond) / (1 + _RESAMPLES)), 2 * 0.5**seeds, stats.ttest_1samp(values[:, j], 0).pvalue
        )
        wider = (seeds / (seeds - 1)) ** 0.5 * stats.t.ppf(0.975, seeds - 1) / stats.norm.ppf(0.975)
        centre = drawn[:, j].mean()
        for end, percent in (("low", 2.5), ("high", 97.5)):
            expected = centre + wider * (np.percentile(drawn[:, j], percent) - centre)
            assert found[end][j] == pytest.approx(min(1, max(-1, expected)), abs=1e-12)
        assert found["p"][j] == pytest.approx(p[j])
        assert found["behind"][j] == pytest.approx(values.mean(axis=0).max() - values[:, j].mean())
    order, largest = sorted(p, key=p.get), 0.0
    for place, j in enumerate(order):
        largest = max(largest, min(1, p[j] * (many - place)))
        assert found["p_holm"][j] == pytest.approx(largest)
    for column in COLUMNS:
        np.testing.assert_equal(found[column][many], found[column][0])  # the twin adds no test


def test_one_seed_and_metrics_without_a_figure_say_nothing():
    values = np.array([[0.5, np.nan], [0.4, 0.1], [0.6, 0.2]])
    found = compare_metrics_over_seeds(values, [np.empty((0, 2))] * 3, "x")
    assert found.loc[1].isna().all() and found.loc[0, "p"] == 0.25
    assert compare_metrics_over_seeds(values[:1], [np.empty((0, 2))], "x").isna().all(axis=None)


def test_only_metrics_that_rank_the_same_explainers_are_compared():
    """Each group has its own best, as if it were alone; what is tested against zero is corrected over all."""
    rng = np.random.default_rng(5)
    values, draws = sweep(rng, 10, np.array([0.9, 0.5, 0.1, 0.6, 0.2]), 0.1, 0.05)
    ranked = ["a b c", "a b", "a b c", "a b", "a b"]
    found = compare_metrics_over_seeds(values, draws, "x", ranked)
    mean = values.mean(axis=0)
    assert found["behind"].to_numpy() == pytest.approx(
        [0, max(mean[[1, 3, 4]]) - mean[1], mean[0] - mean[2], max(mean[[1, 3, 4]]) - mean[3], mean[3] - mean[4]]
    )
    assert np.isnan(found["p_behind"]).tolist() == [True, False, False, True, False]
    everyone = compare_metrics_over_seeds(values, draws, "x")
    assert (found[["low", "high", "p", "p_holm", "needed"]] == everyone[["low", "high", "p", "p_holm", "needed"]]).all(
        axis=None
    )
    # the same τ over other explainers is no twin
    values, draws = np.column_stack([values, values[:, 0]]), [np.column_stack([d, d[:, 0]]) for d in draws]
    found = compare_metrics_over_seeds(values, draws, "x", [*ranked, "a b"])
    assert found["p_holm"][2] == pytest.approx(
        min(1, compare_metrics_over_seeds(values[:, :5], [d[:, :5] for d in draws], "x")["p"][2])
    )
    assert found["behind"][5] == 0 and found["behind"][3] == pytest.approx(mean[0] - mean[3])
