"""Ranks, and how well two rankings agree."""

from __future__ import annotations

from typing import Literal

import numpy as np

from cfeval_cli.types import Floats

_DIGITS = 12  # values that agree to this many significant digits are tied, whatever the order of their sums


def settled(values: Floats) -> Floats:
    """Values rounded so that noise in the last bits does not decide a rank."""
    return np.array([float(f"{value:.{_DIGITS - 1}e}") for value in values])


def ranks(values: Floats, better: Literal["higher", "lower"]) -> Floats:
    """Ranks from 1, the best; ties share the mean of their places; NaN stays NaN."""
    from scipy.stats import rankdata

    values = settled(values)
    return np.asarray(rankdata(-values if better == "higher" else values, nan_policy="omit"), dtype=float)


def kendall(u: Floats, v: Floats) -> float:
    """(concordant - discordant) / all pairs; a tied pair is neither."""
    first, second = np.triu_indices(len(u), 1)
    agree = np.sign(u[first] - u[second]) * np.sign(v[first] - v[second])
    return float(agree.sum() / len(first))


def spearman(u: Floats, v: Floats) -> float:
    """The correlation of average ranks; NaN if all values of one side are equal."""
    a, b = (ranks(values, "lower") - (len(values) + 1) / 2 for values in (u, v))
    spread = np.sqrt((a**2).sum() * (b**2).sum())
    return float((a * b).sum() / spread) if spread else float("nan")
