"""What several seeds say of one figure: its mean, its spread, and how much of the spread sampling explains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import pandas as pd

from cfeval_cli.core import Floats
from cfeval_cli.statistics.bootstrap import compute_percentile_interval
from cfeval_cli.statistics.hypothesis_tests import compute_bootstrap_p_values

COLUMNS = ["seeds", "mean", "deviation", "within", "between"]

_NOTHING = 1e-12  # a mean that rounding makes of values whose sum is zero


def aggregate_over_seeds(rows: pd.DataFrame, by: Sequence[str], value: str, error: str) -> pd.DataFrame:
    """One line for each key in the columns `by`, in their first order, from one row for each key and seed.

    `error` is the standard error over instances within one seed. Rows without a value count as no seed.
    """
    told = rows.assign(variance=np.where(rows[value].isna(), np.nan, rows[error] ** 2))
    grouped = told.groupby(list(by), sort=False)
    found = grouped[value].agg(seeds="count", mean="mean", deviation="std")
    found["within"] = np.sqrt(grouped["variance"].mean())
    # a variance cannot be negative, its estimate can
    found["between"] = np.sqrt(np.maximum(0, found["deviation"] ** 2 - found["within"] ** 2))
    return found.reset_index()[[*by, *COLUMNS]]


def resample_seed_means(values: Floats, draws: Sequence[Floats], resamples: int, rng: np.random.Generator) -> Floats:
    """Means (R, J) over seeds as they might have come out: other seeds, and other instances within each.

    `values` (S, J) has a row for each seed, `draws` for each seed what resamples of its instances gave (B, J); a seed
    without any keeps its values. Columns stay paired: all see the same seeds and the same instances.
    """
    chosen = rng.integers(len(values), size=(resamples, len(values)))
    total = np.zeros((resamples, values.shape[1]))
    for seed, (value, drawn) in enumerate(zip(values, draws, strict=True)):
        for place in range(len(values)):
            here = np.flatnonzero(chosen[:, place] == seed)
            total[here] += drawn[rng.integers(len(drawn), size=len(here))] if len(drawn) else value
    return total / len(values)


def compute_seed_p_values(values: Floats, means: Floats) -> Floats:
    """Two-sided p (J,) that a mean over seeds is zero, from its values (S, J) and the resamples (R, J) of their mean.

    Resamples of few seeds vary too little. So never below Student's p of the values, nor below that of a sign test in
    which all seeds agree: however clear two seeds are, two are few.
    """
    from scipy import stats

    seeds, spread = len(values), values.std(axis=0, ddof=1)
    size = np.abs(values.mean(axis=0)) * math.sqrt(seeds)
    t = np.divide(size, spread, out=np.where(size > 0, np.inf, 0.0), where=spread > 0)
    student = 2 * stats.t.sf(t, seeds - 1)
    return np.asarray(np.maximum(np.maximum(compute_bootstrap_p_values(means), student), min(1.0, 0.5 ** (seeds - 1))))


def compute_seed_interval(values: Floats, means: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Both ends (J,) of an interval for a mean over seeds: that of its resamples (R, J), wider for few seeds.

    By what a deviation of few values is too small, and by what Student's quantile is beyond the normal one.
    """
    from scipy import stats

    seeds, level = len(values), (1 + confidence) / 2
    wider = math.sqrt(seeds / (seeds - 1)) * float(stats.t.ppf(level, seeds - 1) / stats.norm.ppf(level))
    centre = means.mean(axis=0)
    return compute_percentile_interval(centre + wider * (means - centre), confidence)


def compute_required_seeds(mean: float, deviation: float, tests: int, level: float = 0.05) -> int | None:
    """How many seeds of this mean and spread would tell it from zero among so many tests; None if no number would."""
    if abs(mean) < _NOTHING:
        return None
    for_signs = 1 + math.log2(tests / level)
    for_spread = (NormalDist().inv_cdf(1 - level / tests / 2) * deviation / mean) ** 2
    return math.ceil(max(for_signs + 1e-9, for_spread))
