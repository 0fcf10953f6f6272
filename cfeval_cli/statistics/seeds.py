"""What several seeds say of one figure: its mean, its spread, and how much of the spread sampling explains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

COLUMNS = ["seeds", "mean", "deviation", "within", "between"]


def over_seeds(rows: pd.DataFrame, by: Sequence[str], value: str, error: str) -> pd.DataFrame:
    """One line for each key in the columns `by`, in their first order, from one row for each key and seed.

    `error` is the standard error over instances within one seed. Rows without a value count as no seed.
    """
    told = rows.assign(variance=np.where(rows[value].isna(), np.nan, rows[error] ** 2))
    grouped = told.groupby(list(by), sort=False)
    found = grouped[value].agg(seeds="count", mean="mean", deviation="std")
    found["within"] = np.sqrt(grouped["variance"].mean())
    # a variance cannot be negative, its estimate can
    found["between"] = np.sqrt(np.maximum(0, found["deviation"] ** 2 - found["within"] ** 2))
    return found.reset_index()[[*by, *COLUMNS]]
