"""Means over data sets, judges, truths and seeds: against loops, and against simulations with a known mean."""

import math

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.hierarchical import (
    MIN_FACTOR_LEVELS,
    CrossedValues,
    list_factor_levels,
)


def some_rows(seed, missing=0.2, sizes=(4, 3, 2, 3), ks=(1, 3)):
    rng = np.random.default_rng(seed)
    lines = [
        (f"d{d}", f"j{j}", f"t{t}", s, k, rng.normal())
        for d in range(sizes[0]) for j in range(sizes[1]) for t in range(sizes[2]) for s in range(sizes[3]) for k in ks
        if rng.random() > missing
    ]  # fmt: skip
    rows = pd.DataFrame(lines, columns=["data", "judge", "truth", "seed", "k", "value"])
    rows.loc[rng.random(len(rows)) < 0.1, "value"] = np.nan
    return rows


def compute_mean_of_means(rows, names=("data", "judge", "truth", "seed")):
    """The mean of means, by recursion."""
    if not names:
        return rows["value"].mean()
    return np.mean([compute_mean_of_means(part, names[1:]) for _, part in rows.groupby(names[0])])


@pytest.mark.parametrize("seed", range(5))
def test_the_mean_is_a_mean_of_means_over_existing_values(seed):
    rows = some_rows(seed)
    expected = pytest.approx(compute_mean_of_means(rows.dropna()))
    assert CrossedValues.from_rows(rows, "value").compute_mean() == expected
    levels = [*list_factor_levels(rows)]
    levels[0] = [*levels[0], "without values"]
    assert CrossedValues.from_rows(rows, "value", levels).compute_mean() == expected


def resample_with_loops(values, n_resamples):
    """Return means of means of the same draws, by loops over the drawn levels."""
    sets, judges, truths, seeds = values.shape
    rng, is_defined = make_stream(0, "hierarchical"), ~np.isnan(values)

    def draw_counts(mask):
        size = int(mask.sum())
        counts = np.zeros((n_resamples, len(mask)), dtype=int)
        if size:
            counts[:, mask] = rng.multinomial(max(1, size - 1), np.full(size, 1 / size), size=n_resamples)
        return counts

    of_sets, of_judges = draw_counts(is_defined.any(axis=(1, 2, 3))), draw_counts(is_defined.any(axis=(0, 2, 3)))
    of_truths = [draw_counts(mask) for mask in is_defined.any(axis=(0, 3))]
    of_seeds = [draw_counts(mask) for mask in is_defined.any(axis=(1, 2))]
    means = []
    for b in range(n_resamples):
        outer = []
        for d in np.repeat(range(sets), of_sets[b]):
            middle = []
            for j in np.repeat(range(judges), of_judges[b]):
                inner = []
                for t in np.repeat(range(truths), of_truths[j][b]):
                    drawn_values = [values[d, j, t, s] for s in np.repeat(range(seeds), of_seeds[d][b])]
                    drawn_values = [value for value in drawn_values if not math.isnan(value)]
                    inner += [np.mean(drawn_values)] if drawn_values else []
                middle += [np.mean(inner)] if inner else []
            outer += [np.mean(middle)] if middle else []
        means.append(np.mean(outer) if outer else np.nan)
    return np.array(means)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_resampled_means_equal_those_of_loops(missing):
    cells = CrossedValues.from_rows(some_rows(3, missing), "value")
    assert cells.resample_mean(n_resamples=60) == pytest.approx(resample_with_loops(cells.values, 60), nan_ok=True)


def test_resamples_of_the_same_levels_are_paired():
    rows = some_rows(1, 0.0)
    rows["other"] = rows["value"] + 0.25
    levels = list_factor_levels(rows)
    rows = rows.dropna()
    means, shifted_means = (
        CrossedValues.from_rows(rows, name, levels).resample_mean(n_resamples=50) for name in ("value", "other")
    )
    assert shifted_means - means == pytest.approx(np.full(50, 0.25))


def test_intervals_need_variance_and_enough_data_sets_and_judges():
    rows = some_rows(2, 0.0).assign(value=0.5)
    estimate = CrossedValues.from_rows(rows, "value").estimate_mean(n_resamples=200)
    assert (estimate.mean, estimate.low, estimate.high, estimate.has_interval) == (0.5, 0.5, 0.5, True)
    for name in ("data", "judge"):
        level_rows = rows[rows[name].isin(sorted(set(rows[name]))[: MIN_FACTOR_LEVELS - 1])]
        estimate = CrossedValues.from_rows(level_rows, "value").estimate_mean(n_resamples=200)
        assert not estimate.has_interval and estimate.mean == 0.5 and estimate.n_rows == len(level_rows)
    empty = CrossedValues.from_rows(rows.assign(value=np.nan), "value")
    estimate = empty.estimate_mean()
    assert np.isnan(empty.resample_mean(n_resamples=5)).all() and math.isnan(estimate.mean)
    assert (estimate.n_rows, estimate.n_data_sets, estimate.n_judges) == (0, 0, 0)


DEVIATIONS = {  # between data sets, judges, truths, seeds, data sets by judges, and of the residuals
    "all": (0.2, 0.2, 0.1, 0.1, 0.1, 0.1), "data sets": (0.3, 0, 0, 0.1, 0, 0.1), "judges": (0, 0.3, 0.1, 0.1, 0, 0.1),
    "both at once": (0, 0, 0, 0, 0.3, 0.2),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", DEVIATIONS)
def test_the_interval_covers_the_mean_over_many_data_sets_and_judges(case):
    of_set, of_judge, of_truth, of_seed, of_both, residual = DEVIATIONS[case]
    rng, hits = np.random.default_rng(0), 0
    for _ in range(300):
        values = 0.3 + rng.normal(0, residual, (7, 4, 2, 5)) + rng.normal(0, of_set, (7, 1, 1, 1))
        values += rng.normal(0, of_judge, (1, 4, 1, 1)) + rng.normal(0, of_truth, (1, 4, 2, 1))
        values += rng.normal(0, of_seed, (7, 1, 1, 5)) + rng.normal(0, of_both, (7, 4, 1, 1))
        estimate = CrossedValues(values, values.size).estimate_mean(n_resamples=500)
        hits += estimate.low <= 0.3 <= estimate.high
    assert hits / 300 >= 0.86  # nominal 0.95; with four judges the coverage is lower, as docs/statistics.md states
