"""Which metric is really closer to the truth than which: paired differences, with Holm's correction."""

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

_FEW = 16  # pairs whose resamples are looked at together: so many stay in the processor's own memory
_FIGURES = ("difference", "low", "high", "p", "p_holm", "same")
COLUMNS = [
    "family", "truth", "agreement", "subset", "metric", "variant", "than_metric", "than_variant", *_FIGURES,
]  # fmt: skip


def tabulate_tau_differences(
    agreements: Sequence[RankCorrelations], drawn: ResampledValues, how: Bootstrap
) -> Iterator[dict[str, Any]]:
    """Rows of differences.csv: for every two metrics, the difference of their τ, by subset of the explainers.

    The metric with the larger τ over all explainers, the first of the subsets, comes first in the rows of each subset.
    Not for a ladder: a resample is noisier than the sample, so that among many close explainers τ* is too small, the
    more so the noisier the metric is, and two metrics that both tend to 1 would seem to differ.
    """
    family = agreements[0].family
    if not how.resamples or family.name == GRADED:
        return
    rows = [drawn.rows[row] for row in family.judged]
    for t, truth in enumerate(family.truths):
        tau = agreements[0].tau[0, :, t]
        defined = np.flatnonzero(~np.isnan(tau))
        pairs = np.array(
            [(a, b) if tau[a] >= tau[b] else (b, a) for a, b in combinations(defined.tolist(), 2)], dtype=int
        )
        if not len(pairs):
            continue
        for one in agreements:
            figures = dict(zip(_FIGURES, _compared(one, t, pairs, how), strict=True))
            for i, (a, b) in enumerate(pairs.tolist()):
                yield {
                    "family": family.name, "truth": truth.name, "agreement": truth.agreement,
                    "subset": one.family.subset,
                    "metric": rows[a][0], "variant": rows[a][1], "than_metric": rows[b][0], "than_variant": rows[b][1],
                    **{name: of[i] for name, of in figures.items()},
                }  # fmt: skip


def _compared(found: RankCorrelations, t: int, pairs: Ints, how: Bootstrap) -> tuple[Floats | Bools, ...]:
    """For each pair of metrics: the gap between their τ with one truth, its interval, p, p after Holm, whether none.

    Two τ over unlike explainers, or from too few instances for an interval, have no gap.
    """
    tau, there, (first, second) = found.tau[:, :, t], found.there[:, t], pairs.T
    unlike = (there[first] != there[second]).any(axis=1)
    few = ~(found.enough[first, t] & found.enough[second, t])
    gap = np.where(unlike | few, np.nan, tau[0, first] - tau[0, second])
    absent = np.isnan(gap)
    low, high, p = np.full((3, len(pairs)), np.nan)
    drawn = np.ascontiguousarray(tau[1:].T)
    known = np.flatnonzero(~absent)
    for some in (known[start : start + _FEW] for start in range(0, len(known), _FEW)):
        gaps = (drawn[first[some]] - drawn[second[some]]).T
        low[some], high[some] = compute_percentile_interval(gaps, how.confidence)
        p[some] = compute_bootstrap_p_values(gaps)
    twin = find_identical_metrics(np.concatenate([tau, there.T]))
    same = ~absent & (twin[first] == twin[second])
    # metrics that agree in every resample are one hypothesis, not several
    of = [frozenset(pair) for pair in zip(twin[first].tolist(), twin[second].tolist(), strict=True)]
    hypotheses = {of[i]: i for i in np.flatnonzero(~same & ~np.isnan(p)).tolist()}
    adjusted = dict(zip(hypotheses, adjust_holm(p[list(hypotheses.values())]), strict=True))
    p_holm = np.where(absent, np.nan, [adjusted.get(one, 1.0) for one in of])
    return gap, low, high, p, p_holm, same


def find_identical_metrics(tau: Floats) -> Ints:
    """For each metric the first one that has the same τ (1 + B, J) in every resample."""
    first: dict[bytes, int] = {}
    columns = np.ascontiguousarray(np.nan_to_num(tau, nan=-9.0).T) + 0.0  # no -0
    return np.array([first.setdefault(column.tobytes(), place) for place, column in enumerate(columns)])
