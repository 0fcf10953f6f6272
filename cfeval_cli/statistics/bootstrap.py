"""Resampling instances: the same draws for every explainer and metric, so that differences are paired."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core import Floats
from cfeval_cli.core.scratch import slabs
from cfeval_cli.seeding import make_stream

Counts = NDArray[np.uint8]  # nobody is drawn 256 times: the chance of that is below 1e-500

_BLOCK = 1 << 22  # draws made at once, 32 MB
_FEW = 64  # resamples drawn at once, and held at least: whatever is added up is read once for so many
_SLAB = 1 << 16  # instances added up at once


def draws(size: int, resamples: int, seed: int) -> Iterator[Counts]:
    """How often each of `size` instances is drawn, in blocks (b, N) of resamples."""
    if resamples * size <= _BLOCK:
        yield _once(size, resamples, seed)
        return
    rng = make_stream(seed, "bootstrap")
    step = max(_FEW, _BLOCK // max(1, size))
    for start in range(0, resamples, step):
        yield _counts(rng, size, min(step, resamples - start))


@lru_cache(maxsize=1)
def _once(size: int, resamples: int, seed: int) -> Counts:
    """All draws, if they fit into one block: several parts of a run ask for the same."""
    return _counts(make_stream(seed, "bootstrap"), size, resamples)


def _counts(rng: np.random.Generator, size: int, resamples: int) -> Counts:
    counts = np.empty((resamples, size), dtype=np.uint8)
    most = max(1, min(_FEW, _BLOCK // max(1, size)))
    for start in range(0, resamples, most):  # memory that is touched for the first time costs more than the draws
        few = min(most, resamples - start)
        drawn = rng.integers(0, size, (few, size))
        drawn += np.arange(few)[:, None] * size
        counts[start : start + few] = np.bincount(drawn.ravel(), minlength=few * size).reshape(few, size)
    return counts


def sums(matrices: Sequence[Callable[[slice], Floats]], size: int, resamples: int, seed: int) -> list[Floats]:
    """For each matrix (N, C) the sums (B, C) of its columns over every resample of its rows.

    Some rows of a matrix are made when they are needed, so that few are in memory at once.
    """
    found = [[np.zeros((0, matrix(slice(0, 0)).shape[1]))] for matrix in matrices]
    for counts in draws(size, resamples, seed):
        for slab in slabs(size, _SLAB):
            times = counts[:, slab].astype(np.float64)
            for kept, matrix in zip(found, matrices, strict=True):
                added = times @ matrix(slab)
                if slab.start:
                    kept[-1] += added
                else:
                    kept.append(added)
        del counts, times  # before the next ones are drawn
    return [np.concatenate(kept) for kept in found]


def ratios(totals: Floats) -> Floats:
    """Numerators over denominators, which are the second half of the last axis; NaN where nothing was drawn."""
    numerator, denominator = np.split(totals, 2, axis=-1)
    return divided(numerator, denominator)


def divided(numerator: Floats, denominator: Floats) -> Floats:
    """NaN where the denominator is zero."""
    return np.asarray(np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator != 0))


def interval(values: Floats, confidence: float) -> tuple[Floats, Floats]:
    """The percentile interval over the first axis, linearly interpolated; NaN are left out."""
    ordered = np.sort(values, axis=0)  # NaN last
    there = (~np.isnan(values)).sum(axis=0)
    ends = []
    for share in ((1 - confidence) / 2, (1 + confidence) / 2):
        place = np.maximum(there - 1, 0) * share
        below = np.floor(place).astype(int)
        above = np.minimum(below + 1, np.maximum(there - 1, 0))
        low, high = (np.take_along_axis(ordered, at[None], axis=0)[0] for at in (below, above))
        ends.append(low + (high - low) * (place - below))
    return ends[0], ends[1]


def deviation(values: Floats) -> Floats:
    """The standard deviation over the first axis; NaN are left out."""
    there = (~np.isnan(values)).sum(axis=0)
    mean = np.nansum(values, axis=0) / np.maximum(there, 1)
    squares = np.nansum((values - mean) ** 2, axis=0)
    return np.asarray(np.sqrt(divided(squares, np.maximum(there - 1.0, 0.0))))
