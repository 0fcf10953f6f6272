"""Comparison of the metrics over seeds: which agree with the truth whichever seeds and instances are drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from cfeval_cli.core import Floats, Ints
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

_N_MEANS = 4000  # resampled means over seeds
_CONFIDENCE = 0.95


def compare_metrics_over_seeds(
    values: Floats, resampled_taus: Sequence[Floats], key: str, ranked: Sequence[str] | None = None
) -> pd.DataFrame:
    """Return a row for each of J metrics, from its τ (S, J) in each seed and in resamples of its instances (B, J).

    A metric without τ in some seed or resample has NaN in its row; with fewer than two seeds all rows are NaN. Metrics
    with the same τ in every seed and resample are one hypothesis, not several. `behind` is the difference to the
    largest mean, `p_behind` its p, among the metrics that rank the same explainers, as `ranked` (J,) states.
    """
    table = pd.DataFrame(np.nan, index=range(values.shape[1]), columns=COLUMNS)
    is_absent = np.isnan(values).any(axis=0)
    for resampled in resampled_taus:
        is_absent |= np.isnan(resampled).any(axis=0)
    present = np.flatnonzero(~is_absent)
    if len(values) < 2 or not len(present):
        return table
    values, resampled_taus = values[:, present], [resampled[:, present] for resampled in resampled_taus]
    means = resample_seed_means(values, resampled_taus, _N_MEANS, make_stream(0, f"seeds.{key}"))
    group = pd.factorize(np.array(ranked or [""] * len(table))[present], sort=True)[0]  # same ranked explainers
    hypothesis = find_identical_metrics(np.concatenate([values, *resampled_taus, group[None].astype(float)]))
    mean, deviation = values.mean(axis=0), values.std(axis=0, ddof=1)
    best = np.array([np.argmax(np.where(group == own_group, mean, -np.inf)) for own_group in group])
    is_behind = hypothesis != hypothesis[best]
    p = compute_seed_p_values(values, means)
    p_behind = compute_seed_p_values(values[:, best] - values, means[:, best] - means)
    low, high = (np.clip(end, -1, 1) for end in compute_seed_interval(values, means, _CONFIDENCE))  # the range of τ
    n_tests = len(np.unique(hypothesis))
    needed = [
        compute_required_seeds(*moments, n_tests) for moments in zip(mean.tolist(), deviation.tolist(), strict=True)
    ]
    columns = {
        "low": low,
        "high": high,
        "p": p,
        "p_holm": _adjust_hypotheses(p, hypothesis),
        "needed": np.array(needed, dtype=float),
        "behind": mean[best] - mean,
        "p_behind": _adjust_hypotheses(np.where(is_behind, p_behind, np.nan), hypothesis),
    }
    table.loc[present, COLUMNS] = pd.DataFrame(columns)[COLUMNS].to_numpy()
    return table


def _adjust_hypotheses(p: Floats, hypothesis: Ints) -> Floats:
    """Return p-values with Holm's correction over the hypotheses, given by their first metric; NaN stays NaN."""
    adjusted = np.full(len(p), np.nan)
    tested = [first for first in np.unique(hypothesis) if not np.isnan(p[first])]
    for first, value in zip(tested, adjust_holm(p[tested]), strict=True):
        adjusted[hypothesis == first] = value
    return adjusted
