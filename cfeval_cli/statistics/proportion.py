"""Exact confidence intervals of proportions."""

from __future__ import annotations

from math import nan


def compute_proportion_interval(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a proportion; NaN without trials."""
    from scipy.stats import binomtest  # importing it takes half a second

    if not trials:
        return nan, nan
    interval = binomtest(successes, trials).proportion_ci(confidence, method="exact")
    return float(interval.low), float(interval.high)
