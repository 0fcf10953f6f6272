"""Rankings of too few explainers, which say little of a metric: reports show no τ of them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import pandas as pd

from cfeval_cli.statistics.correlation import EXPLAINERS
from cfeval_cli.statistics.run_statistics import RunStatistics
from cfeval_cli.statistics.subsets import WITHOUT_CONTROLS, select_subset

MIN_RANKED_EXPLAINERS = 4  # that are not controls: a random ordering of three is right with p = 0.17
SMALL_RANKING_REASON = f"fewer than {MIN_RANKED_EXPLAINERS} explainers that are not controls"

_KEYS = ["metric", "variant", "truth", "agreement"]
_COEFFICIENTS = ["tau", "tau_low", "tau_high", "tau_se", "p_tau", "rho", "rho_low", "rho_high", "rho_se", "p_rho"]


def drop_small_rankings(statistics: RunStatistics) -> RunStatistics:
    """Return the statistics without the τ and ρ of metrics that rank fewer than four explainers, controls aside."""
    correlations = statistics.correlations
    small = _find_small_rankings(correlations)
    is_small = _find_rows(correlations, small) & correlations["tau"].notna()
    if not is_small.any():
        return statistics
    correlations = correlations.copy()
    correlations.loc[is_small, _COEFFICIENTS] = float("nan")
    correlations.loc[is_small, "note"] = SMALL_RANKING_REASON
    differences, invariance = statistics.differences, statistics.invariance
    return replace(
        statistics,
        correlations=correlations,
        differences=pd.DataFrame(differences[~_find_rows(differences, small)]),
        invariance=None if invariance is None else pd.DataFrame(invariance[~_find_rows(invariance, small)]),
    )


def _find_small_rankings(correlations: pd.DataFrame) -> set[Hashable]:
    """Return metric, variant, truth and agreement of the rankings; graded controls are ranked on purpose."""
    lines = select_subset(correlations, WITHOUT_CONTROLS)
    lines = lines[(lines["family"] == EXPLAINERS) & (lines["explainers"] < MIN_RANKED_EXPLAINERS)]
    return set(lines[_KEYS].itertuples(index=False, name=None))


def _find_rows(frame: pd.DataFrame, keys: set[Hashable]) -> pd.Series:
    return pd.Series([key in keys for key in frame[_KEYS].itertuples(index=False, name=None)], frame.index, dtype=bool)
