"""How sure a share is that was counted."""

from __future__ import annotations

from math import nan


def exact(hits: int, of: int, confidence: float) -> tuple[float, float]:
    """The interval of Clopper and Pearson for a share that `hits` out of `of` independent cases estimate."""
    from scipy.stats import binomtest

    if not of:
        return nan, nan
    ends = binomtest(hits, of).proportion_ci(confidence, "exact")
    return float(ends.low), float(ends.high)
