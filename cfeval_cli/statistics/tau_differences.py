"""Paired differences between the correlations of two metrics with a truth, with Holm's correction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from cfeval_cli.core import Bools, Floats, Ints
from cfeval_cli.statistics.bootstrap import Bootstrap, compute_percentile_interval
from cfeval_cli.statistics.correlation import GRADED, RankCorrelations
from cfeval_cli.statistics.hypothesis_tests import adjust_holm, compute_bootstrap_p_values
from cfeval_cli.statistics.resampled_values import ResampledValues

_VALUE_COLUMNS = ("difference", "low", "high", "p", "p_holm", "same")
COLUMNS = [
    "family", "truth", "agreement", "subset", "metric", "variant", "than_metric", "than_variant", *_VALUE_COLUMNS,
]  # fmt: skip

_PAIRS_PER_BLOCK = 16  # pairs of metrics with resamples that fit the cache of the processor


def tabulate_tau_differences(
    correlations: Sequence[RankCorrelations], resampled: ResampledValues, bootstrap: Bootstrap
) -> Iterator[dict[str, Any]]:
    """Yield rows of differences.csv: for every two metrics, the difference of their τ, by subset of the explainers.

    The metric with the larger τ over all explainers, the first of the subsets, comes first in the rows of each subset.
    Graded controls have no rows: a resample is noisier than the sample, so that among many close explainers the τ
    of resamples are too small, the more so the noisier the metric is, and two metrics that both tend to 1 would seem
    to differ.
    """
    family = correlations[0].family
    if not bootstrap.n_resamples or family.name == GRADED:
        return
    metrics = [resampled.metrics[metric] for metric in family.judged]
    for t, reference in enumerate(family.references):
        tau = correlations[0].tau[0, :, t]
        defined = np.flatnonzero(~np.isnan(tau))
        pairs = np.array(
            [(a, b) if tau[a] >= tau[b] else (b, a) for a, b in combinations(defined.tolist(), 2)], dtype=int
        )
        if not len(pairs):
            continue
        for part in correlations:
            values = dict(zip(_VALUE_COLUMNS, _compare_pairs(part, t, pairs, bootstrap), strict=True))
            for i, (a, b) in enumerate(pairs.tolist()):
                yield {
                    "family": family.name, "truth": reference.name, "agreement": reference.agreement,
                    "subset": part.family.subset, "metric": metrics[a][0], "variant": metrics[a][1],
                    "than_metric": metrics[b][0], "than_variant": metrics[b][1],
                    **{name: array[i] for name, array in values.items()},
                }  # fmt: skip


def _compare_pairs(
    correlations: RankCorrelations, t: int, pairs: Ints, bootstrap: Bootstrap
) -> tuple[Floats | Bools, ...]:
    """Return for each pair of metrics: difference of τ, interval ends, p, Holm-adjusted p, and whether all τ are equal.

    Equal means: in the sample and in every resample. Two τ over different explainers, or from too few instances for an
    interval, have no difference.
    """
    tau, is_ranked, (first, second) = correlations.tau[:, :, t], correlations.is_ranked[:, t], pairs.T
    ranks_others = (is_ranked[first] != is_ranked[second]).any(axis=1)
    is_insufficient = ~(correlations.is_sufficient[first, t] & correlations.is_sufficient[second, t])
    difference = np.where(ranks_others | is_insufficient, np.nan, tau[0, first] - tau[0, second])
    is_absent = np.isnan(difference)
    low, high, p = np.full((3, len(pairs)), np.nan)
    resampled = np.ascontiguousarray(tau[1:].T)
    compared = np.flatnonzero(~is_absent)
    for block in (compared[start : start + _PAIRS_PER_BLOCK] for start in range(0, len(compared), _PAIRS_PER_BLOCK)):
        differences = (resampled[first[block]] - resampled[second[block]]).T
        low[block], high[block] = compute_percentile_interval(differences, bootstrap.confidence)
        p[block] = compute_bootstrap_p_values(differences)
    group = find_identical_metrics(np.concatenate([tau, is_ranked.T]))
    is_same = ~is_absent & (group[first] == group[second])
    # Metrics with the same τ in every resample are one hypothesis, not several.
    hypotheses = [frozenset(pair) for pair in zip(group[first].tolist(), group[second].tolist(), strict=True)]
    tested = {hypotheses[i]: i for i in np.flatnonzero(~is_same & ~np.isnan(p)).tolist()}
    adjusted = dict(zip(tested, adjust_holm(p[list(tested.values())]), strict=True))
    p_holm = np.where(is_absent, np.nan, [adjusted.get(hypothesis, 1.0) for hypothesis in hypotheses])
    return difference, low, high, p, p_holm, is_same


def find_identical_metrics(tau: Floats) -> Ints:
    """Return for each column (J,) of τ (1 + B, J) the index of the first identical column."""
    first: dict[bytes, int] = {}
    columns = np.ascontiguousarray(np.nan_to_num(tau, nan=-9.0).T) + 0.0  # turns -0 into 0
    return np.array([first.setdefault(column.tobytes(), i) for i, column in enumerate(columns)])
