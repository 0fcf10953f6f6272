"""How likely an agreement of two rankings would be by chance: all orders of the explainers, or many of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from cfeval_cli.core import Floats, Ints
from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.ranking import compute_rank_correlations

EXACT = 8  # so many explainers have 40,320 orders; of more, some are drawn
_DRAWS = 20_000
_SAME = 1e-9  # as large as the observed one, but for rounding; two coefficients differ by far more
_BLOCK = 1 << 19  # pairs held at once, which stay in the processor's own memory


def compute_permutation_p_values(ours: Floats, theirs: Floats) -> tuple[Floats, Floats]:
    """One-sided p (R, T) of τ and of ρ, for ranks (R, E) against ranks (T, E).

    p is the share of orders of `theirs` that agree with `ours` at least as well as the real one does. Ties stay tied in
    every order. NaN where the coefficient is undefined.
    """
    observed = [coefficient - _SAME for coefficient in compute_rank_correlations(ours, theirs)]
    hits = [np.zeros(observed[0].shape), np.zeros(observed[0].shape)]
    tried = 0
    for orders in _orders(theirs.shape[-1], len(theirs)):
        drawn = compute_rank_correlations(ours, theirs[:, orders].swapaxes(0, 1))
        tried += len(orders)
        for hit, coefficient, least in zip(hits, drawn, observed, strict=True):
            hit += (coefficient >= least).sum(axis=0)
    # of drawn orders the real one counts as one more, so that no p is zero
    more = 0 if theirs.shape[-1] <= EXACT else 1
    p_tau, p_rho = (
        np.where(np.isnan(o), np.nan, (h + more) / (tried + more)) for h, o in zip(hits, observed, strict=True)
    )
    return p_tau, p_rho


def _orders(size: int, rankings: int) -> Iterator[Ints]:
    """All orders (n!, n) of so many things, or some drawn with a seed of their own, in blocks for so many rankings."""
    block = max(1, _BLOCK // (max(1, rankings) * size**2))
    if size <= EXACT:
        every = np.array(list(permutations(range(size))), dtype=np.int64)
    else:
        every = make_stream(0, "permutation", size).permuted(np.tile(np.arange(size), (_DRAWS, 1)), axis=1)
    yield from (every[start : start + block] for start in range(0, len(every), block))
