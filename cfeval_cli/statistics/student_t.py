"""Student's t over units that were drawn independently, such as data sets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Floats

_ROUNDING = 1e-12  # a standard error below which all units agree


@dataclass(frozen=True)
class MeanEstimate:
    """A mean over units, its confidence interval, and the two-sided p of its being zero."""

    mean: float
    low: float
    high: float
    p: float


def compute_t_interval(values: Floats, confidence: float = 0.95) -> MeanEstimate:
    """Return the mean of the units (n,) with its t-interval; fewer than two units have no interval."""
    from scipy.stats import t

    if not len(values):
        return MeanEstimate(*[float("nan")] * 4)
    mean = float(values.mean())
    if len(values) < 2:
        return MeanEstimate(mean, float("nan"), float("nan"), float("nan"))
    error = float(values.std(ddof=1)) / np.sqrt(len(values))
    if error < _ROUNDING:
        return MeanEstimate(mean, mean, mean, 1.0 if abs(mean) < _ROUNDING else 0.0)
    half = float(t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    return MeanEstimate(mean, mean - half, mean + half, float(2 * t.sf(abs(mean) / error, len(values) - 1)))
