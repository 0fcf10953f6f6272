"""Means over data sets, judges, truths and seeds, and how sure they are: each factor is drawn as what it is.

Data sets and judges are crossed: every judge is trained on every data set, and each is one of many that could have been
taken. Truths belong to a judge, seeds to a data set, whose split they draw for all judges alike.
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
MIN_FACTOR_LEVELS = 3  # data sets, and judges, below which nothing is said of others
N_RESAMPLES = 2000

FactorLevels = Sequence[Sequence[object]]  # the values of each factor


@dataclass(frozen=True)
class HierarchicalMean:
    """A mean with its interval, and what it is taken over."""

    mean: float
    low: float
    high: float
    rows: int
    data: int
    judges: int

    @property
    def known(self) -> bool:
        """Whether there is anything to say of other data sets and judges."""
        return not np.isnan(self.low)


def list_factor_levels(rows: pd.DataFrame) -> FactorLevels:
    """The values of each factor that some rows have, in order."""
    return [sorted(set(rows[name])) for name in FACTORS]


@dataclass(frozen=True)
class CrossedValues:
    """Values by data set, judge, truth and seed (D, J, T, S); NaN where there is none."""

    values: Floats
    rows: int = 0

    @staticmethod
    def of(rows: pd.DataFrame, name: str, among: FactorLevels | None = None) -> CrossedValues:
        """From rows with a value each; what they differ in beyond the four factors, such as k, is averaged.

        Cells among the same levels are drawn alike, so that their differences are paired.
        """
        figures = rows[name].to_numpy(float)
        known = ~np.isnan(figures)
        among = list_factor_levels(rows[known]) if among is None else among
        shape = [len(level) for level in among]
        columns = [rows[factor].to_numpy(object)[known] for factor in FACTORS]
        places = [_places(level, one) for level, one in zip(among, columns, strict=True)]
        flat = np.ravel_multi_index(tuple(places), shape) if known.any() else np.zeros(0, dtype=np.int64)
        size = int(np.prod(shape))
        totals, counts = (np.bincount(flat, of, size).astype(float) for of in (figures[known], None))
        return CrossedValues(divide_or_nan(totals, counts).reshape(shape), int(known.sum()))

    @property
    def there(self) -> Bools:
        """Where there is a value."""
        return ~np.isnan(self.values)

    @property
    def sets(self) -> int:
        """How many data sets have a value."""
        return int(self.there.any(axis=(1, 2, 3)).sum())

    @property
    def judges(self) -> int:
        """How many judges have a value."""
        return int(self.there.any(axis=(0, 2, 3)).sum())

    def mean(self) -> float:
        """Of the data sets' means over judges, of their means over truths, of their means over seeds."""
        sets, judges, truths, seeds = self.values.shape
        once = (np.ones((1, sets)), np.ones((1, judges)), np.ones((1, judges, truths)), np.ones((1, sets, seeds)))
        return float(_nested(self.values, *once)[0])

    def told(self, seed: int = 0, confidence: float = 0.95, draws: int = N_RESAMPLES) -> HierarchicalMean:
        """The mean with its interval; none of fewer data sets or judges than say anything of others."""
        low = high = float("nan")
        if draws and min(self.sets, self.judges) >= MIN_FACTOR_LEVELS:
            low, high = (float(end) for end in compute_percentile_interval(self.drawn(seed, draws), confidence))
        return HierarchicalMean(self.mean(), low, high, self.rows, self.sets, self.judges)

    def drawn(self, seed: int = 0, draws: int = N_RESAMPLES) -> Floats:
        """The mean (B,) when data sets, judges, truths within judges and seeds within data sets are drawn again.

        NaN where nothing that is there was drawn.
        """
        there = self.there
        if not there.any():
            return np.full(draws, np.nan)
        some = [np.asarray(there.any(axis=axes)) for axes in ((1, 2, 3), (0, 2, 3), (0, 3), (1, 2))]
        return _nested(self.values, *_drawn(seed, draws, *((one.tobytes(), one.shape) for one in some)))


@lru_cache(maxsize=16)
def _drawn(seed: int, draws: int, *there: tuple[bytes, tuple[int, ...]]) -> tuple[Floats, ...]:
    """How often each data set, judge, truth of a judge and seed of a data set is drawn, of those that are there."""
    rng = make_stream(seed, "hierarchical")
    sets, judges, truths, seeds = (np.frombuffer(one, dtype=bool).reshape(shape) for one, shape in there)
    of_sets, of_judges = _counts(rng, draws, sets), _counts(rng, draws, judges)
    of_truths = np.stack([_counts(rng, draws, some) for some in truths], axis=1)
    of_seeds = np.stack([_counts(rng, draws, some) for some in seeds], axis=1)
    return of_sets, of_judges, of_truths, of_seeds


def _places(level: Sequence[object], column: Sequence[object]) -> list[int]:
    known = {value: place for place, value in enumerate(level)}
    return [known[value] for value in column]


def _counts(rng: np.random.Generator, draws: int, some: Bools) -> Floats:
    """How often each of those (n,) that are there is drawn (B, n).

    One fewer is drawn than there are: as many would spread less than such a mean does, which with four judges matters.
    """
    size = int(some.sum())
    counts = np.zeros((draws, len(some)))
    if size:
        counts[:, some] = rng.multinomial(max(1, size - 1), np.full(size, 1 / size), size=draws)
    return counts


def _nested(values: Floats, sets: Floats, judges: Floats, truths: Floats, seeds: Floats) -> Floats:
    """Means (B,) of means, each level over what is there of what was drawn, weighted by how often."""
    there = ~np.isnan(values)
    first = seeds.swapaxes(0, 1)  # (D, B, S), by which a matrix product does all draws of a data set at once
    total, weight = (_by_set(first, side) for side in (np.where(there, values, 0.0), there.astype(float)))
    for spelled, drawn in (("bjt,bdjt->bdj", truths), ("bj,bdj->bd", judges), ("bd,bd->b", sets)):
        has = weight > 0
        means = np.divide(total, weight, out=np.zeros_like(total), where=has)
        total, weight = (np.einsum(spelled, drawn, side) for side in (means, has.astype(float)))
    return np.asarray(np.divide(total, weight, out=np.full_like(total, np.nan), where=weight > 0))


def _by_set(seeds: Floats, values: Floats) -> Floats:
    """Sums over seeds (B, D, J, T) of values (D, J, T, S), drawn so often (D, B, S)."""
    sets, judges, truths, many = values.shape
    sums = seeds @ values.reshape(sets, judges * truths, many).swapaxes(1, 2)
    return np.asarray(sums.swapaxes(0, 1).reshape(seeds.shape[1], sets, judges, truths))


def compute_resampling_p_value(drawn: Floats, at: float = 0.0) -> float:
    """Two-sided: how often a mean that is drawn lies beyond a value, on the rarer side; NaN of nothing."""
    known = drawn[~np.isnan(drawn)]
    if not len(known):
        return float("nan")
    sides = ((known <= at).sum(), (known >= at).sum())
    return float(min(1.0, 2 * (1 + min(sides)) / (1 + len(known))))
