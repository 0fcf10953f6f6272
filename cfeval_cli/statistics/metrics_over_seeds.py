"""Which metrics agree with the truth whichever seeds and instances are drawn, and what it would take to tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.core import Floats
from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.hypothesis_tests import adjust_holm
from cfeval_cli.statistics.seeds import (
    compute_required_seeds,
    compute_seed_interval,
    compute_seed_p_values,
    resample_seed_means,
)
from cfeval_cli.statistics.tau_differences import find_identical_metrics

COLUMNS = ["low", "high", "p", "p_holm", "needed", "behind", "p_behind"]

_RESAMPLES = 4000
_CONFIDENCE = 0.95


def compare_metrics_over_seeds(
    values: Floats, draws: Sequence[Floats], key: str, ranked: Sequence[str] | None = None
) -> pd.DataFrame:
    """A line for each of J metrics, from its τ (S, J) in each seed and in resamples of each seed's instances (B, J).

    Metrics that some seed has no τ of are left empty. Those that are alike in every seed and resample are one
    hypothesis, not several. `behind` is how much the largest mean is larger, `p_behind` that of its being so: among the
    metrics that have the same under `ranked` (J,), since a τ over other explainers is another figure.
    """
    found = pd.DataFrame(np.nan, index=range(values.shape[1]), columns=COLUMNS)
    there = np.flatnonzero(
        ~np.isnan(values).any(axis=0) & ~np.array([np.isnan(d).any(axis=0) for d in draws]).any(axis=0)
    )
    if len(values) < 2 or not len(there):
        return found
    mine, again_ = values[:, there], [drawn[:, there] for drawn in draws]
    drawn = resample_seed_means(mine, again_, _RESAMPLES, make_stream(0, f"seeds.{key}"))
    kinds = np.unique(np.array(ranked or [""] * values.shape[1])[there], return_inverse=True)[1].ravel()
    first = find_identical_metrics(np.concatenate([mine, *again_, kinds[None].astype(float)]))
    mean, deviation = mine.mean(axis=0), mine.std(axis=0, ddof=1)
    # for each metric the one with the largest mean among those that rank the same explainers
    best = np.array([np.argmax(np.where(kinds == kind, mean, -np.inf)) for kind in kinds])
    low, high = (np.clip(end, -1, 1) for end in compute_seed_interval(mine, drawn, _CONFIDENCE))  # no τ is beyond
    told: dict[str, Any] = {"low": low, "high": high}
    p, behind = compute_seed_p_values(mine, drawn), compute_seed_p_values(mine[:, best] - mine, drawn[:, best] - drawn)
    told |= {"p": p, "p_holm": _corrected(p, first), "behind": mean[best] - mean}
    others = first != first[best]
    told["p_behind"] = np.where(others, _corrected(np.where(others, behind, np.nan), first), np.nan)
    tests = len(np.unique(first))
    told["needed"] = [
        np.nan if number is None else float(number)
        for number in (
            compute_required_seeds(m, d, tests) for m, d in zip(mean.tolist(), deviation.tolist(), strict=True)
        )
    ]
    found.loc[there, COLUMNS] = pd.DataFrame(told)[COLUMNS].to_numpy()
    return found


def _corrected(p: Floats, first: Any) -> Floats:
    """Holm's correction over those that differ; alike ones share theirs, and what is no test stays none."""
    result = np.full(len(p), np.nan)
    kinds = [kind for kind in np.unique(first) if not np.isnan(p[kind])]
    for kind, adjusted in zip(kinds, adjust_holm(p[kinds]), strict=True):
        result[first == kind] = adjusted
    return result
