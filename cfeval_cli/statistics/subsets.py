"""The subsets of explainers that metrics are judged by: the values of the column `subset`."""

from __future__ import annotations

import pandas as pd

ALL_EXPLAINERS = "all"
WITHOUT_CONTROLS = "without_controls"
SUBSETS = (ALL_EXPLAINERS, WITHOUT_CONTROLS)


def select_subset(lines: pd.DataFrame, subset: str = ALL_EXPLAINERS) -> pd.DataFrame:
    """Return the rows of one subset of explainers."""
    return pd.DataFrame(lines[lines["subset"] == subset])


def has_controls(correlations: pd.DataFrame) -> bool:
    """Return whether fewer explainers are ranked without controls than with them."""
    of_all, without_controls = select_subset(correlations), select_subset(correlations, WITHOUT_CONTROLS)
    return len(without_controls) > 0 and bool(without_controls["explainers"].sum() < of_all["explainers"].sum())
