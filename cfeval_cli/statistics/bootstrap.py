"""Resampling instances: the same draws for every explainer and metric, so that differences are paired."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core import Bools, Floats
from cfeval_cli.core.scratch import iterate_slabs
from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.hypothesis_tests import SIGNIFICANCE_LEVEL

DEFAULT_RESAMPLES = 2000  # intervals need no more
MIN_INSTANCES = 30  # a smaller sample has no intervals

DrawCounts = NDArray[np.uint8]  # an instance is drawn 256 times with a probability below 1e-500

# With the smallest sufficient number, only a difference that has the same sign in every resample is significant after
# Holm's correction. Twice as many allow one resample with the opposite sign.
_RESAMPLES_FACTOR = 2
_MAX_ADDITIONS = 1 << 32  # additions of a score, over all resamples
_MAX_VALUES = 1 << 25  # values of all resamples held at once, 256 MB
_MAX_DRAWS_PER_BLOCK = 1 << 22  # 32 MB
_MIN_RESAMPLES_PER_BLOCK = 64  # the scores are read once for each block
_INSTANCES_PER_SLAB = 1 << 16  # added up at once


def choose_n_resamples(n_metrics: int, n_scores: int, n_values: int) -> int:
    """Return the number of resamples B with which a difference between two metrics can be significant.

    The smallest p-value of B resamples is 2 / (B + 1), and Holm's correction multiplies it by the number of pairs of
    metrics. Time and memory limit B: a resample adds up all scores (`n_scores`) and holds one value per metric and
    explainer (`n_values`). B is never below the default.
    """
    n_pairs = n_metrics * (n_metrics - 1) // 2
    affordable = min(_MAX_ADDITIONS // max(1, n_scores), _MAX_VALUES // max(1, n_values))
    return max(DEFAULT_RESAMPLES, min(ceil(_RESAMPLES_FACTOR * 2 * n_pairs / SIGNIFICANCE_LEVEL), affordable))


@dataclass(frozen=True)
class Bootstrap:
    """The settings of a bootstrap over instances."""

    seed: int
    n_resamples: int = DEFAULT_RESAMPLES  # 0: no intervals
    confidence: float = 0.95
    min_instances: int = MIN_INSTANCES
    # Only the tests with Holm's correction need more resamples than this. None: intervals use all resamples.
    max_interval_resamples: int | None = None

    @property
    def for_intervals(self) -> Bootstrap:
        """The settings for values that have an interval but no corrected test: only the first resamples are used."""
        if self.max_interval_resamples is None:
            return self
        return replace(self, n_resamples=min(self.n_resamples, self.max_interval_resamples))

    def compute_interval(self, values: Floats, is_sufficient: Bools | bool = True) -> tuple[Floats, Floats, Floats]:
        """Return the low end, the high end and the standard error of values (B, …) over the resamples.

        All three are NaN where the number of instances is not sufficient.
        """
        if not len(values):
            empty = np.full(values.shape[1:], np.nan)
            return empty, empty, empty
        low, high = compute_percentile_interval(values, self.confidence)
        return (
            np.where(is_sufficient, low, np.nan),
            np.where(is_sufficient, high, np.nan),
            np.where(is_sufficient, compute_standard_deviation(values), np.nan),
        )


def draw_counts(size: int, n_resamples: int, seed: int, max_draws: int = _MAX_DRAWS_PER_BLOCK) -> Iterator[DrawCounts]:
    """Yield how often each of `size` instances is drawn, in blocks (b, N) of resamples."""
    if n_resamples * size <= max_draws:
        yield _draw_single_block(size, n_resamples, seed)
        return
    rng = make_stream(seed, "bootstrap")
    step = max(_MIN_RESAMPLES_PER_BLOCK, max_draws // max(1, size))
    for start in range(0, n_resamples, step):
        yield _draw_block(rng, size, min(step, n_resamples - start))


@lru_cache(maxsize=1)
def _draw_single_block(size: int, n_resamples: int, seed: int) -> DrawCounts:
    """Draw all resamples at once; several parts of a run use the same."""
    return _draw_block(make_stream(seed, "bootstrap"), size, n_resamples)


def _draw_block(rng: np.random.Generator, size: int, n_resamples: int) -> DrawCounts:
    counts = np.empty((n_resamples, size), dtype=np.uint8)
    # Few resamples at a time: memory that is touched for the first time costs more than the draws.
    step = max(1, min(_MIN_RESAMPLES_PER_BLOCK, _MAX_DRAWS_PER_BLOCK // max(1, size)))
    for start in range(0, n_resamples, step):
        n_rows = min(step, n_resamples - start)
        draws = rng.integers(0, size, (n_rows, size))
        draws += np.arange(n_rows)[:, None] * size
        counts[start : start + n_rows] = np.bincount(draws.ravel(), minlength=n_rows * size).reshape(n_rows, size)
    return counts


def compute_resampled_sums(
    row_readers: Sequence[Callable[[slice], Floats]],
    size: int,
    n_resamples: int,
    seed: int,
    *,
    max_draws: int = _MAX_DRAWS_PER_BLOCK,
    instances_per_slab: int = _INSTANCES_PER_SLAB,
) -> list[Floats]:
    """Return for each matrix (N, columns) the sums (B, columns) over every resample of its rows.

    A matrix is given by a function that returns the rows of a slice, so that only one slice is in memory at a time.
    """
    sums = [[np.zeros((0, read_rows(slice(0, 0)).shape[1]))] for read_rows in row_readers]
    for counts in draw_counts(size, n_resamples, seed, max_draws):
        for slab in iterate_slabs(size, instances_per_slab):
            weights = counts[:, slab].astype(np.float64)
            for blocks, read_rows in zip(sums, row_readers, strict=True):
                summand = weights @ read_rows(slab)
                if slab.start:
                    blocks[-1] += summand
                else:
                    blocks.append(summand)
        del counts, weights  # before the next counts are drawn
    return [np.concatenate(blocks) for blocks in sums]


def divide_halves(totals: Floats) -> Floats:
    """Divide the numerators (first half of the last axis) by the denominators (second half); NaN where these are 0."""
    numerator, denominator = np.split(totals, 2, axis=-1)
    return divide_or_nan(numerator, denominator)


def divide_or_nan(numerator: Floats, denominator: Floats) -> Floats:
    """Divide; NaN where the denominator is zero."""
    return np.asarray(np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator != 0))


def compute_percentile_interval(values: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Return both ends of the percentile interval over the first axis, linearly interpolated; NaN are left out."""
    ordered = np.sort(values, axis=0)  # NaN last
    n_defined = (~np.isnan(values)).sum(axis=0)
    ends = []
    for quantile in ((1 - confidence) / 2, (1 + confidence) / 2):
        position = np.maximum(n_defined - 1, 0) * quantile
        below = np.floor(position).astype(int)
        above = np.minimum(below + 1, np.maximum(n_defined - 1, 0))
        low, high = (np.take_along_axis(ordered, index[None], axis=0)[0] for index in (below, above))
        ends.append(low + (high - low) * (position - below))
    return ends[0], ends[1]


def compute_standard_deviation(values: Floats) -> Floats:
    """Return the standard deviation over the first axis; NaN are left out."""
    n_defined = (~np.isnan(values)).sum(axis=0)
    mean = np.nansum(values, axis=0) / np.maximum(n_defined, 1)
    squares = np.nansum((values - mean) ** 2, axis=0)
    return np.asarray(np.sqrt(divide_or_nan(squares, np.maximum(n_defined - 1.0, 0.0))))
