"""Resampling instances: the same draws for every explainer and metric, so that differences are paired."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from cfeval_cli.seeding import stream
from cfeval_cli.types import Floats

_BLOCK = 1 << 22  # counts held at once, 32 MB
_FEW = 64  # resamples drawn at once


def draws(size: int, resamples: int, seed: int) -> Iterator[Floats]:
    """How often each of `size` instances is drawn, in blocks (b, N) of resamples."""
    if resamples * size <= _BLOCK:
        yield _once(size, resamples, seed)
        return
    rng = stream(seed, "bootstrap")
    step = max(1, _BLOCK // max(1, size))
    for start in range(0, resamples, step):
        yield _counts(rng, size, min(step, resamples - start))


@lru_cache(maxsize=1)
def _once(size: int, resamples: int, seed: int) -> Floats:
    """All draws, if they fit into one block: several parts of a run ask for the same."""
    return _counts(stream(seed, "bootstrap"), size, resamples)


def _counts(rng: np.random.Generator, size: int, resamples: int) -> Floats:
    counts = np.empty((resamples, size))
    for start in range(0, resamples, _FEW):  # memory that is touched for the first time costs more than the draws
        few = min(_FEW, resamples - start)
        drawn = rng.integers(0, size, (few, size))
        drawn += np.arange(few)[:, None] * size
        counts[start : start + few] = np.bincount(drawn.ravel(), minlength=few * size).reshape(few, size)
    return counts


def sums(matrices: Sequence[Callable[[], Floats]], size: int, resamples: int, seed: int) -> list[Floats]:
    """For each matrix (N, C) the sums (B, C) of its columns over every resample of its rows.

    A matrix is made when it is needed, so that not all are in memory at once.
    """
    found = [[np.zeros((0, matrix().shape[1]))] for matrix in matrices]
    for counts in draws(size, resamples, seed):
        for kept, matrix in zip(found, matrices, strict=True):
            kept.append(counts @ matrix())
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
