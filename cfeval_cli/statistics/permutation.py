"""How likely an agreement of two rankings would be by chance: all orders of the explainers, or many of them."""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.seeding import stream
from cfeval_cli.statistics.ranking import kendall, ranks, spearman
from cfeval_cli.types import Floats, Ints

EXACT = 8  # so many explainers have 40,320 orders; of more, some are drawn
_DRAWS = 20_000
_SAME = 1e-12  # as large as the observed one, but for rounding


def p_values(u: Floats, v: Floats) -> tuple[float, float]:
    """One-sided p of τ and of ρ: the share of orders of v that agree with u at least as well as v itself does.

    Tied values stay tied in every order. NaN where the coefficient is undefined.
    """
    first, second = np.triu_indices(len(u), 1)
    taus = _signs(v.tobytes()) @ np.sign(u[first] - u[second]) / len(first)
    exact = len(u) <= EXACT
    p_tau = _share(taus >= kendall(u, v) - _SAME, exact)
    observed = spearman(u, v)
    if np.isnan(observed):
        return p_tau, float("nan")
    a, b = (ranks(side, "lower") - (len(side) + 1) / 2 for side in (u, v))
    rhos = b[_orders(len(u))] @ a / np.sqrt((a**2).sum() * (b**2).sum())
    return p_tau, _share(rhos >= observed - _SAME, exact)


def _share(hits: NDArray[np.bool_], exact: bool) -> float:
    """Of drawn orders the observed one counts as one more, so that no p is zero."""
    return float(hits.mean()) if exact else float((hits.sum() + 1) / (len(hits) + 1))


@lru_cache(maxsize=4)
def _orders(size: int) -> Ints:
    """All orders (n!, n) of so many things, or some drawn with a seed of their own."""
    if size <= EXACT:
        return np.array(list(permutations(range(size))), dtype=np.int64)
    everyone = np.tile(np.arange(size), (_DRAWS, 1))
    return stream(0, "permutation", size).permuted(everyone, axis=1)


@lru_cache(maxsize=16)
def _signs(values: bytes) -> NDArray[np.int8]:
    """Of every order of the values, which of each pair is the larger."""
    v = np.frombuffer(values)
    first, second = np.triu_indices(len(v), 1)
    larger = np.sign(v[:, None] - v[None, :]).astype(np.int8)
    orders = _orders(len(v))
    return larger[orders[:, first], orders[:, second]]
