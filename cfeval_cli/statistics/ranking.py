"""Ranks, and how well two rankings agree."""

from __future__ import annotations

from typing import Literal

import numpy as np

from cfeval_cli.types import Floats

_TOLERANCE = 1e-12  # relative, and absolute below 1e-3 of that: noise in the last bits of a sum


def settled(values: Floats) -> Floats:
    """Values with those that differ by no more than noise made equal, so that the order of a sum decides no rank."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    allowed = _TOLERANCE * np.maximum(np.abs(ordered[1:]), 1e-3)
    starts = np.concatenate([[True], ~(np.diff(ordered) <= allowed)]) if len(values) else np.zeros(0, bool)
    result = np.empty(len(values))
    result[order] = ordered[np.maximum.accumulate(np.where(starts, np.arange(len(values)), 0))]
    return result


def ranks(values: Floats, better: Literal["higher", "lower"]) -> Floats:
    """Ranks from 1, the best; ties share the mean of their places; NaN stays NaN."""
    values = settled(values)
    result = np.full(len(values), np.nan)
    there = ~np.isnan(values)
    # as scipy.stats.rankdata, whose import would take longer than all the rest of the scoring
    _, place, size = np.unique(
        -values[there] if better == "higher" else values[there], return_inverse=True, return_counts=True
    )
    result[there] = (np.cumsum(size) - (size - 1) / 2)[place]
    return result


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
