"""What several seeds say of one figure: its mean, its spread, and how much of the spread sampling explains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import pandas as pd

from cfeval_cli.statistics.difference import two_sided
from cfeval_cli.types import Floats

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


def again(values: Floats, draws: Sequence[Floats], resamples: int, rng: np.random.Generator) -> Floats:
    """Means (R, J) over seeds as they might have come out: other seeds, and other instances within each.

    `values` (S, J) has a row for each seed, `draws` for each seed what resamples of its instances gave (B, J); a seed
    without any keeps its values. Columns stay paired: all see the same seeds and the same instances.
    """
    chosen = rng.integers(len(values), size=(resamples, len(values)))
    total = np.zeros((resamples, values.shape[1]))
    for seed, (value, drawn) in enumerate(zip(values, draws, strict=True)):
        for place in range(len(values)):
            here = np.flatnonzero(chosen[:, place] == seed)
            total[here] += drawn[rng.integers(len(drawn), size=len(here))] if len(drawn) else value
    return total / len(values)


def sure(means: Floats, seeds: int) -> Floats:
    """Two-sided p (J,) that a mean over seeds is zero, from its resamples (R, J).

    Never below that of a sign test, in which all seeds agree: however clear two seeds are, two are few.
    """
    return np.maximum(two_sided(means), min(1.0, 0.5 ** (seeds - 1)))


def needed(mean: float, deviation: float, tests: int, level: float = 0.05) -> int | None:
    """How many seeds of this mean and spread would tell it from zero among so many tests; None if no number would."""
    if not mean:
        return None
    for_signs = 1 + math.log2(tests / level)
    for_spread = (NormalDist().inv_cdf(1 - level / tests / 2) * deviation / mean) ** 2
    return math.ceil(max(for_signs + 1e-9, for_spread))
