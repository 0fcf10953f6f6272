"""The subsets of explainers that metrics are judged by: the values of the column `subset`."""

from __future__ import annotations

import pandas as pd

ALL_EXPLAINERS = "all"
WITHOUT_CONTROLS = "without_controls"


def select_subset(lines: pd.DataFrame, subset: str = ALL_EXPLAINERS) -> pd.DataFrame:
    """Return the rows of one subset of explainers."""
    return pd.DataFrame(lines[lines["subset"] == subset])


def has_controls(correlations: pd.DataFrame) -> bool:
    """Return whether fewer explainers are ranked without controls than with them."""
    ranked = correlations.groupby("subset")["explainers"].sum()
    return WITHOUT_CONTROLS in ranked and bool(ranked[WITHOUT_CONTROLS] < ranked[ALL_EXPLAINERS])
