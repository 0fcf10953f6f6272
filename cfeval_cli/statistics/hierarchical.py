"""Means over data sets, judges, truths and seeds, with intervals that resample each factor as it was sampled.

Data sets and judges are crossed: every judge is trained on every data set, and each is one of many that could have been
used. Truths are nested in judges. Seeds are nested in data sets: they draw the split, which all judges share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from cfeval_cli.core import Bools, Floats
from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.bootstrap import compute_percentile_interval, divide_or_nan

FACTORS = ["data", "judge", "truth", "seed"]
MIN_FACTOR_LEVELS = 3  # of data sets, and of judges, for an interval
N_RESAMPLES = 2000

FactorLevels = Sequence[Sequence[object]]  # the values of each factor


@dataclass(frozen=True)
class HierarchicalMean:
    """A mean with its interval, and the numbers of rows, data sets and judges."""

    mean: float
    low: float
    high: float
    n_rows: int
    n_data_sets: int
    n_judges: int

    @property
    def has_interval(self) -> bool:
        """Whether there are enough data sets and judges for an interval."""
        return not np.isnan(self.low)


def list_factor_levels(rows: pd.DataFrame) -> FactorLevels:
    """Return the values of each factor in some rows, sorted."""
    return [sorted(set(rows[name])) for name in FACTORS]


@dataclass(frozen=True)
class CrossedValues:
    """Values by data set, judge, truth and seed (D, J, T, S); NaN where there is none."""

    values: Floats
    n_rows: int = 0

    @staticmethod
    def from_rows(rows: pd.DataFrame, name: str, levels: FactorLevels | None = None) -> CrossedValues:
        """Return the values of a column, averaged over what is not a factor, such as k.

        Values with the same levels are resampled alike, so that their differences are paired.
        """
        rows = rows[rows[name].notna()]
        levels = list_factor_levels(rows) if levels is None else levels
        shape = [len(level) for level in levels]
        indices = [
            pd.Index(list(level), dtype=object).get_indexer(pd.Index(rows[factor], dtype=object))
            for factor, level in zip(FACTORS, levels, strict=True)
        ]
        size = int(np.prod(shape))
        cells = np.ravel_multi_index(tuple(indices), shape) if len(rows) else np.zeros(0, dtype=np.int64)
        totals = np.bincount(cells, rows[name].to_numpy(float), size).astype(float)
        counts = np.bincount(cells, None, size).astype(float)
        return CrossedValues(divide_or_nan(totals, counts).reshape(shape), len(rows))

    @property
    def is_defined(self) -> Bools:
        """Where there is a value."""
        return ~np.isnan(self.values)

    @property
    def n_data_sets(self) -> int:
        """The number of data sets with a value."""
        return int(self.is_defined.any(axis=(1, 2, 3)).sum())

    @property
    def n_judges(self) -> int:
        """The number of judges with a value."""
        return int(self.is_defined.any(axis=(0, 2, 3)).sum())

    def compute_mean(self) -> float:
        """Return the mean over data sets of the means over judges of the means over truths of the means over seeds."""
        n_sets, n_judges, n_truths, n_seeds = self.values.shape
        shapes = (1, n_sets), (1, n_judges), (1, n_judges, n_truths), (1, n_sets, n_seeds)
        return float(_compute_nested_means(self.values, *map(np.ones, shapes))[0])

    def estimate_mean(
        self, seed: int = 0, confidence: float = 0.95, n_resamples: int = N_RESAMPLES
    ) -> HierarchicalMean:
        """Return the mean with its interval; NaN with too few data sets or judges."""
        low = high = float("nan")
        if n_resamples and min(self.n_data_sets, self.n_judges) >= MIN_FACTOR_LEVELS:
            resampled = self.resample_mean(seed, n_resamples)
            low, high = (float(end) for end in compute_percentile_interval(resampled, confidence))
        return HierarchicalMean(self.compute_mean(), low, high, self.n_rows, self.n_data_sets, self.n_judges)

    def resample_mean(self, seed: int = 0, n_resamples: int = N_RESAMPLES) -> Floats:
        """Return the mean (B,) of resampled data sets, judges, truths within judges and seeds within data sets.

        NaN where no value was drawn.
        """
        if not self.is_defined.any():
            return np.full(n_resamples, np.nan)
        masks = [np.asarray(self.is_defined.any(axis=axes)) for axes in ((1, 2, 3), (0, 2, 3), (0, 3), (1, 2))]
        counts = _draw_factor_counts(seed, n_resamples, *((mask.tobytes(), mask.shape) for mask in masks))
        return _compute_nested_means(self.values, *counts)


@lru_cache(maxsize=16)
def _draw_factor_counts(seed: int, n_resamples: int, *masks: tuple[bytes, tuple[int, ...]]) -> tuple[Floats, ...]:
    """Return how often each data set, judge, truth of a judge and seed of a data set is drawn, where it has values."""
    rng = make_stream(seed, "hierarchical")
    sets, judges, truths, seeds = (np.frombuffer(mask, dtype=bool).reshape(shape) for mask, shape in masks)
    set_counts, judge_counts = _draw_counts(rng, n_resamples, sets), _draw_counts(rng, n_resamples, judges)
    truth_counts = np.stack([_draw_counts(rng, n_resamples, of_judge) for of_judge in truths], axis=1)
    seed_counts = np.stack([_draw_counts(rng, n_resamples, of_set) for of_set in seeds], axis=1)
    return set_counts, judge_counts, truth_counts, seed_counts


def _draw_counts(rng: np.random.Generator, n_resamples: int, is_defined: Bools) -> Floats:
    """Return how often each level (n,) with values is drawn (B, n).

    One fewer is drawn than there are: with as many, resampled means would vary less than the mean does, which matters
    with four judges.
    """
    size = int(is_defined.sum())
    counts = np.zeros((n_resamples, len(is_defined)))
    if size:
        counts[:, is_defined] = rng.multinomial(max(1, size - 1), np.full(size, 1 / size), size=n_resamples)
    return counts


def _compute_nested_means(values: Floats, sets: Floats, judges: Floats, truths: Floats, seeds: Floats) -> Floats:
    """Return means (B,) of means, each over the levels with values, weighted by how often they were drawn."""
    is_defined = ~np.isnan(values)
    by_set = seeds.swapaxes(0, 1)  # (D, B, S): one matrix product for all resamples of a data set
    total, weight = (
        _sum_over_seeds(by_set, side) for side in (np.where(is_defined, values, 0.0), is_defined.astype(float))
    )
    for subscripts, counts in (("bjt,bdjt->bdj", truths), ("bj,bdj->bd", judges), ("bd,bd->b", sets)):
        has_weight = weight > 0
        means = np.divide(total, weight, out=np.zeros_like(total), where=has_weight)
        total, weight = (np.einsum(subscripts, counts, side) for side in (means, has_weight.astype(float)))
    return np.asarray(np.divide(total, weight, out=np.full_like(total, np.nan), where=weight > 0))


def _sum_over_seeds(counts: Floats, values: Floats) -> Floats:
    """Return sums (B, D, J, T) over the seeds of values (D, J, T, S), each drawn so often (D, B, S)."""
    n_sets, n_judges, n_truths, n_seeds = values.shape
    sums = counts @ values.reshape(n_sets, n_judges * n_truths, n_seeds).swapaxes(1, 2)
    return np.asarray(sums.swapaxes(0, 1).reshape(counts.shape[1], n_sets, n_judges, n_truths))
