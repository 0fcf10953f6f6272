"""Values aggregated over seeds: their mean, their spread, and how much of the spread sampling instances explains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import pandas as pd

from cfeval_cli.core import Floats
from cfeval_cli.statistics.bootstrap import compute_percentile_interval
from cfeval_cli.statistics.hypothesis_tests import SIGNIFICANCE_LEVEL, compute_bootstrap_p_values

COLUMNS = ["seeds", "mean", "deviation", "within", "between"]

_ROUNDING = 1e-12  # tolerance of a mean that is zero except for rounding


def aggregate_over_seeds(rows: pd.DataFrame, by: Sequence[str], value: str, error: str) -> pd.DataFrame:
    """Return a row for each key in the columns `by`, in their first order, from one row for each key and seed.

    `error` is the standard error over instances within one seed. Rows without a value count as no seed.
    """
    variance = np.where(rows[value].isna(), np.nan, rows[error] ** 2)
    grouped = rows.assign(variance=variance).groupby(list(by), sort=False)
    table = grouped[value].agg(seeds="count", mean="mean", deviation="std")
    table["within"] = np.sqrt(grouped["variance"].mean())
    # A variance cannot be negative, its estimate can.
    table["between"] = np.sqrt(np.maximum(0, table["deviation"] ** 2 - table["within"] ** 2))
    return table.reset_index()[[*by, *COLUMNS]]


def resample_seed_means(values: Floats, resamples: Sequence[Floats], n_means: int, rng: np.random.Generator) -> Floats:
    """Return means (R, J) over resampled seeds, with resampled instances within each.

    `values` (S, J) has a row for each seed; `resamples` has for each seed the values (B, J) in resamples of its
    instances. A seed without resamples keeps its values. Columns are paired: all have the same seeds and instances.
    """
    n_seeds = len(values)
    drawn_seeds = rng.integers(n_seeds, size=(n_means, n_seeds))
    total = np.zeros((n_means, values.shape[1]))
    for seed, (value, resampled) in enumerate(zip(values, resamples, strict=True)):
        for position in range(n_seeds):
            rows = np.flatnonzero(drawn_seeds[:, position] == seed)
            total[rows] += resampled[rng.integers(len(resampled), size=len(rows))] if len(resampled) else value
    return total / n_seeds


def compute_seed_p_values(values: Floats, means: Floats) -> Floats:
    """Return the two-sided p (J,) that a mean over seeds is zero, from its values (S, J) and resampled means (R, J).

    Resampled means of few seeds vary too little. So p is at least that of the t-test of the values, and at least that
    of a sign test in which all seeds agree.
    """
    from scipy import stats

    n_seeds, deviation = len(values), values.std(axis=0, ddof=1)
    scaled_mean = np.abs(values.mean(axis=0)) * math.sqrt(n_seeds)
    t = np.divide(scaled_mean, deviation, out=np.where(scaled_mean > 0, np.inf, 0.0), where=deviation > 0)
    p_t_test, p_sign_test = 2 * stats.t.sf(t, n_seeds - 1), min(1.0, 0.5 ** (n_seeds - 1))
    return np.asarray(np.maximum(np.maximum(compute_bootstrap_p_values(means), p_t_test), p_sign_test))


def compute_seed_interval(values: Floats, means: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Return both ends (J,) of the interval of a mean over seeds: that of the resampled means (R, J), widened.

    It is widened by the bias of the standard deviation of few values, and by the ratio of Student's quantile to the
    normal one.
    """
    from scipy import stats

    n_seeds, level = len(values), (1 + confidence) / 2
    ratio = float(stats.t.ppf(level, n_seeds - 1) / stats.norm.ppf(level))
    factor = math.sqrt(n_seeds / (n_seeds - 1)) * ratio
    centre = means.mean(axis=0)
    return compute_percentile_interval(centre + factor * (means - centre), confidence)


def compute_required_seeds(
    mean: float, deviation: float, n_tests: int, level: float = SIGNIFICANCE_LEVEL
) -> int | None:
    """Return how many seeds with this mean and deviation make the mean significant among so many tests.

    None if no number does.
    """
    if abs(mean) < _ROUNDING:
        return None
    by_sign_test = 1 + math.log2(n_tests / level)
    by_deviation = (NormalDist().inv_cdf(1 - level / n_tests / 2) * deviation / mean) ** 2
    return math.ceil(max(by_sign_test + 1e-9, by_deviation))
