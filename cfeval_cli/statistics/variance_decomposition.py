"""Decomposition of the variance of a value into the shares that factors explain."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import factorial

import numpy as np
import pandas as pd

from cfeval_cli.core import Floats


def decompose_variance(rows: pd.DataFrame, name: str, factors: Sequence[str]) -> dict[str, float]:
    """Return the Shapley value of each factor: what it adds to R² of a sum of effects, averaged over all orders.

    The shares sum to the R² of all factors, whatever the design; each is 0 if there is no variance.
    """
    complete = rows[rows[name].notna()]
    indicators = {factor: _encode_indicators(complete[factor]) for factor in factors}
    values, n_factors = complete[name].to_numpy(float), len(factors)
    r_squared = {
        frozenset(subset): compute_r_squared(values, [indicators[factor] for factor in subset])
        for size in range(n_factors + 1)
        for subset in combinations(factors, size)
    }
    shares = dict.fromkeys(factors, 0.0)
    for factor in factors:
        other_factors = [other for other in factors if other != factor]
        for size in range(n_factors):
            weight = factorial(size) * factorial(n_factors - 1 - size) / factorial(n_factors)
            for subset in combinations(other_factors, size):
                shares[factor] += weight * (r_squared[frozenset((*subset, factor))] - r_squared[frozenset(subset)])
    return shares


def compute_interaction_share(rows: pd.DataFrame, name: str, factors: Sequence[str], pair: tuple[str, str]) -> float:
    """Return what the interaction of two factors adds to R² of the sum of all effects."""
    complete = rows[rows[name].notna()]
    values, effects = complete[name].to_numpy(float), [_encode_indicators(complete[factor]) for factor in factors]
    interaction = _encode_indicators(complete[pair[0]].astype(str) + "\0" + complete[pair[1]].astype(str))
    return compute_r_squared(values, [*effects, interaction]) - compute_r_squared(values, effects)


def _encode_indicators(column: pd.Series) -> Floats:
    """Return a 0/1 column for each value."""
    codes, levels = pd.factorize(column, sort=True)
    return np.eye(len(levels))[codes]


def compute_r_squared(values: Floats, columns: Sequence[Floats]) -> float:
    """Return R² of the least squares fit to a constant and some columns (n, c)."""
    centred = values - values.mean() if len(values) else values
    total = float(centred @ centred)
    if not columns or total <= 1e-15 * max(1, len(values)):
        return 0.0
    design = np.concatenate([np.ones((len(values), 1)), *columns], axis=1)
    # Indicators are linearly dependent, so the solution needs a pseudoinverse.
    coefficients = np.linalg.pinv(design.T @ design, hermitian=True) @ (design.T @ centred)
    return float(1 - ((centred - design @ coefficients) ** 2).sum() / total)
