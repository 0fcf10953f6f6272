"""Ranks and rank correlations, along the last axis of arrays that hold many rankings at once."""

from __future__ import annotations

from typing import Literal

import numpy as np

from cfeval_cli.core import Floats

_TOLERANCE = 1e-12  # relative, and absolute for values below 1e-3: rounding of a sum


def compute_ranks(values: Floats, better: Literal["higher", "lower"]) -> Floats:
    """Return ranks from 1, the best; ties share the mean of their ranks; NaN stays NaN.

    Values that differ only by rounding are tied, so that no rank depends on the order of a sum.
    """
    order = np.argsort(values, axis=-1, kind="stable")  # NaN last
    ordered = np.take_along_axis(values, order, axis=-1)
    with np.errstate(invalid="ignore"):  # the gap between infinite values is NaN
        gaps = np.diff(ordered, axis=-1)
    is_gap = ~(gaps <= _TOLERANCE * np.maximum(np.abs(ordered[..., 1:]), 1e-3))
    edge = np.ones((*is_gap.shape[:-1], 1), dtype=bool)
    positions = np.arange(values.shape[-1])
    first = np.maximum.accumulate(np.where(np.concatenate([edge, is_gap], axis=-1), positions, 0), axis=-1)
    last = np.where(np.concatenate([is_gap, edge], axis=-1), positions, positions[-1:])
    last = np.minimum.accumulate(last[..., ::-1], axis=-1)[..., ::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, 1 + (first + last) / 2, axis=-1)
    is_defined = ~np.isnan(values)
    if better == "higher":
        ranks = is_defined.sum(axis=-1, keepdims=True) + 1 - ranks
    return np.where(is_defined, ranks, np.nan)


def compute_rank_correlations(ranks: Floats, reference_ranks: Floats) -> tuple[Floats, Floats]:
    """Return τ and ρ (…, R, T) of each of the ranks (…, R, E) with each of the reference ranks (…, T, E).

    τ is (concordant - discordant) / all pairs, a tied pair being neither. ρ is the correlation of average ranks,
    NaN if all ranks of one side are tied. Both are NaN where a rank is.
    """
    size = ranks.shape[-1]
    first, second = np.triu_indices(size, 1)
    # float32 holds ranks, and sums of signs, exactly.
    compact = [side.astype(np.float32) for side in (ranks, reference_ranks)]
    signs = [np.sign(side[..., first] - side[..., second]) for side in compact]
    tau = np.matmul(signs[0], np.swapaxes(signs[1], -1, -2)).astype(float) / max(1, len(first))
    a, b = (side - (size + 1) / 2 for side in (ranks, reference_ranks))
    lengths = [np.sqrt((side**2).sum(axis=-1)) for side in (a, b)]
    scale = lengths[0][..., :, None] * lengths[1][..., None, :]
    product = np.matmul(a, np.swapaxes(b, -1, -2))
    return tau, np.divide(product, scale, out=np.full(product.shape, np.nan), where=scale > 0)
