"""How sure a share is that was counted."""

from __future__ import annotations

from math import nan


def exact(hits: int, of: int, confidence: float) -> tuple[float, float]:
    """The interval of Clopper and Pearson for a share that `hits` out of `of` independent cases estimate."""
    from scipy.special import betaincinv  # scipy.stats takes long to import

    if not of:
        return nan, nan
    tail = (1 - confidence) / 2
    low = float(betaincinv(hits, of - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, of - hits, 1 - tail)) if hits < of else 1.0
    return low, high
