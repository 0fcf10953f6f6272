"""How much of the variance of a figure each factor explains."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import factorial

import numpy as np
import pandas as pd

from cfeval_cli.core import Floats


def decompose_variance(rows: pd.DataFrame, name: str, factors: Sequence[str]) -> dict[str, float]:
    """For each factor what it adds to R² of a sum of effects, on average over the orders in which factors could enter.

    They sum to the R² of all of them, whatever the design; 0 for each if there is no variance.
    """
    known = rows[rows[name].notna()]
    sets = {factor: _dummies(known[factor]) for factor in factors}
    explained: dict[frozenset[str], float] = {}
    values = known[name].to_numpy(float)
    for size in range(len(factors) + 1):
        for some in combinations(factors, size):
            explained[frozenset(some)] = compute_r_squared(values, [sets[factor] for factor in some])
    found, many = dict.fromkeys(factors, 0.0), len(factors)
    for factor in factors:
        others = [one for one in factors if one != factor]
        for size in range(many):
            weight = factorial(size) * factorial(many - 1 - size) / factorial(many)
            for some in combinations(others, size):
                found[factor] += weight * (explained[frozenset((*some, factor))] - explained[frozenset(some)])
    return found


def compute_interaction_share(rows: pd.DataFrame, name: str, factors: Sequence[str], pair: tuple[str, str]) -> float:
    """What two factors together add to R² beyond the sum of all effects: how far the one depends on the other."""
    known = rows[rows[name].notna()]
    values, alone = known[name].to_numpy(float), [_dummies(known[factor]) for factor in factors]
    both = _dummies(known[pair[0]].astype(str) + "\0" + known[pair[1]].astype(str))
    return compute_r_squared(values, [*alone, both]) - compute_r_squared(values, alone)


def _dummies(column: pd.Series) -> Floats:
    codes, names = pd.factorize(column, sort=True)
    return np.eye(len(names))[codes]


def compute_r_squared(values: Floats, columns: Sequence[Floats]) -> float:
    """Of the least squares on a constant and some columns (n, c)."""
    centred = values - values.mean() if len(values) else values
    total = float(centred @ centred)
    if not columns or total <= 1e-15 * max(1, len(values)):
        return 0.0
    design = np.concatenate([np.ones((len(values), 1)), *columns], axis=1)
    # dummies are not independent of each other, so that only a pseudoinverse has an answer
    fitted = np.linalg.pinv(design.T @ design, hermitian=True) @ (design.T @ centred)
    return float(1 - ((centred - design @ fitted) ** 2).sum() / total)
