"""Permutation tests of the agreement of two rankings: over all orders of the explainers, or a sample of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from cfeval_cli.core import Floats, Ints
from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.ranking import compute_rank_correlations

MAX_EXACT_EXPLAINERS = 8  # which have 40,320 orders; the orders of more explainers are sampled
_N_SAMPLED_ORDERS = 20_000
_TOLERANCE = 1e-9  # for rounding: two different coefficients differ by far more
_MAX_PAIRS_PER_BLOCK = 1 << 19  # pairs of explainers held at once, which stay in the processor's cache


def compute_permutation_p_values(
    ranks: Floats, reference_ranks: Floats, max_pairs: int = _MAX_PAIRS_PER_BLOCK
) -> tuple[Floats, Floats]:
    """Return the one-sided p (R, T) of τ and of ρ, for ranks (R, E) against reference ranks (T, E).

    p is the share of orders of the reference with a coefficient at least as large as the observed one. Ties stay tied
    in every order. NaN where the coefficient is undefined.
    """
    n_explainers = reference_ranks.shape[-1]
    observed = compute_rank_correlations(ranks, reference_ranks)
    n_extreme, n_orders = [np.zeros(coefficient.shape) for coefficient in observed], 0
    for orders in _iterate_orders(n_explainers, len(reference_ranks), max_pairs):
        permuted = compute_rank_correlations(ranks, reference_ranks[:, orders].swapaxes(0, 1))
        n_orders += len(orders)
        for count, coefficients, threshold in zip(n_extreme, permuted, observed, strict=True):
            count += (coefficients >= threshold - _TOLERANCE).sum(axis=0)
    # The observed order counts as one more sampled order, so that no p is zero.
    n_added = 0 if n_explainers <= MAX_EXACT_EXPLAINERS else 1
    p_tau, p_rho = (
        np.where(np.isnan(coefficient), np.nan, (count + n_added) / (n_orders + n_added))
        for coefficient, count in zip(observed, n_extreme, strict=True)
    )
    return p_tau, p_rho


def _iterate_orders(n_explainers: int, n_rankings: int, max_pairs: int) -> Iterator[Ints]:
    """Yield all orders (n!, n) of the explainers, or a fixed sample of them, in blocks."""
    step = max(1, max_pairs // (max(1, n_rankings) * n_explainers**2))
    if n_explainers <= MAX_EXACT_EXPLAINERS:
        orders = np.array(list(permutations(range(n_explainers))), dtype=np.int64)
    else:
        identity = np.tile(np.arange(n_explainers), (_N_SAMPLED_ORDERS, 1))
        orders = make_stream(0, "permutation", n_explainers).permuted(identity, axis=1)
    yield from (orders[start : start + step] for start in range(0, len(orders), step))
