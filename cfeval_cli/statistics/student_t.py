"""t-intervals of means over units that were drawn independently, such as data sets."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

from cfeval_cli.core import Floats

_ROUNDING = 1e-12  # a standard error below which all units agree


@dataclass(frozen=True)
class MeanEstimate:
    """A mean over units, its confidence interval, and the two-sided p that it is zero."""

    mean: float
    low: float = nan
    high: float = nan
    p: float = nan


def compute_t_interval(values: Floats, confidence: float = 0.95) -> MeanEstimate:
    """Return the mean of the units (n,) with its t-interval; fewer than two units have no interval."""
    from scipy.stats import sem, ttest_1samp

    if len(values) < 2:
        return MeanEstimate(float(values.mean()) if len(values) else nan)
    mean = float(values.mean())
    if sem(values) < _ROUNDING:
        return MeanEstimate(mean, mean, mean, 1.0 if abs(mean) < _ROUNDING else 0.0)
    test = ttest_1samp(values, 0.0)
    interval = test.confidence_interval(confidence)
    return MeanEstimate(mean, float(interval.low), float(interval.high), float(test.pvalue))
