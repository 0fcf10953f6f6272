"""Ranks, and how well two rankings agree; everything works along the last axis, for many rankings at once."""

from __future__ import annotations

from typing import Literal

import numpy as np

from cfeval_cli.core import Floats

_TOLERANCE = 1e-12  # relative, and absolute below 1e-3 of that: noise in the last bits of a sum


def compute_ranks(values: Floats, better: Literal["higher", "lower"]) -> Floats:
    """Ranks from 1, the best; ties share the mean of their places; NaN stays NaN.

    Values that differ by no more than noise are tied, so that the order of a sum decides no rank.
    """
    order = np.argsort(values, axis=-1, kind="stable")  # NaN last
    ordered = np.take_along_axis(values, order, axis=-1)
    with np.errstate(invalid="ignore"):  # infinite values are as far apart as NaN
        gaps = np.diff(ordered, axis=-1)
    apart = ~(gaps <= _TOLERANCE * np.maximum(np.abs(ordered[..., 1:]), 1e-3))
    edge = np.ones((*apart.shape[:-1], 1), dtype=bool)
    place = np.arange(values.shape[-1])
    first = np.maximum.accumulate(np.where(np.concatenate([edge, apart], axis=-1), place, 0), axis=-1)
    last = np.where(np.concatenate([apart, edge], axis=-1), place, place[-1:])
    last = np.minimum.accumulate(last[..., ::-1], axis=-1)[..., ::-1]
    result = np.empty(values.shape)
    np.put_along_axis(result, order, 1 + (first + last) / 2, axis=-1)
    there = ~np.isnan(values)
    if better == "higher":
        result = there.sum(axis=-1, keepdims=True) + 1 - result
    return np.where(there, result, np.nan)


def compute_rank_correlations(ours: Floats, theirs: Floats) -> tuple[Floats, Floats]:
    """τ and ρ (…, R, T) of ranks (…, R, E) with other ranks (…, T, E), each with each.

    τ is (concordant - discordant) / all pairs, a tied pair being neither. ρ is the correlation of average ranks,
    NaN if all of one side are tied. Both are NaN where a rank is.
    """
    size = ours.shape[-1]
    first, second = np.triu_indices(size, 1)
    # 32 bits hold ranks, and sums of so many ones, exactly
    small = [side.astype(np.float32) for side in (ours, theirs)]
    signs = [np.sign(side[..., first] - side[..., second]) for side in small]
    tau = np.matmul(signs[0], np.swapaxes(signs[1], -1, -2)).astype(float) / max(1, len(first))
    a, b = (side - (size + 1) / 2 for side in (ours, theirs))
    lengths = [np.sqrt((side**2).sum(axis=-1)) for side in (a, b)]
    spread = lengths[0][..., :, None] * lengths[1][..., None, :]
    product = np.matmul(a, np.swapaxes(b, -1, -2))
    return tau, np.divide(product, spread, out=np.full(product.shape, np.nan), where=spread > 0)
