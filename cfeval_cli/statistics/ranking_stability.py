"""Whether a metric ranks the explainers alike in two runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cfeval_cli.core import Bools, Floats, Ints
from cfeval_cli.statistics.ranking import compute_rank_correlations, compute_ranks

ANY_SETTING = "all"  # pairs of runs that differ in anything


@dataclass(frozen=True)
class RunPairs:
    """Every two runs, and the settings in which they differ."""

    one: Ints  # (P,)
    other: Ints  # (P,)
    differ: Bools  # (P, K)

    @staticmethod
    def of(settings: Ints) -> RunPairs:
        """From the settings (R, K) of the runs, each value as a number."""
        one, other = np.triu_indices(len(settings), 1)
        return RunPairs(one, other, settings[one] != settings[other])

    def only(self, key: int) -> Bools:
        """The pairs (P,) that differ in one setting and in no other."""
        return np.asarray(self.differ[:, key] & (self.differ.sum(axis=1) == 1))


def _tied_in_both(standing: Floats, one: Ints, other: Ints) -> Floats:
    """The share of pairs of explainers that are tied in both of two runs: ordered alike, though τ does not say so."""
    first, second = np.triu_indices(standing.shape[1], 1)
    tied = standing[:, first] == standing[:, second]
    return np.asarray((tied[one] & tied[other]).mean(axis=1))


@dataclass(frozen=True)
class RankingStability:
    """How alike one metric ranks the explainers in every two runs."""

    there: Bools  # (P,) both runs have the metric
    tau: Floats  # (P,) NaN where the two cannot be compared
    same: Bools  # (P,) all ranks, ties included
    same_best: Bools  # (P,)

    @staticmethod
    def of(values: Floats, better: Literal["higher", "lower"], pairs: RunPairs) -> RankingStability:
        """From a metric's values (R, E), NaN for none; two runs are compared by the explainers that both have."""
        has = ~np.isnan(values)
        common = has[pairs.one] & has[pairs.other]
        tau = np.full(len(common), np.nan)
        same, same_best = np.zeros((2, len(common)), dtype=bool)
        for pattern in np.unique(common, axis=0) if common.size else ():  # seldom more than one
            if pattern.sum() < 2:
                continue
            mine = (common == pattern).all(axis=1)
            one, other = pairs.one[mine], pairs.other[mine]
            standing = compute_ranks(values[:, pattern], better)
            tied = np.asarray((standing == standing[:, :1]).all(axis=1))
            best = standing == standing.min(axis=1, keepdims=True)
            # two rankings that say nothing do not contradict each other, though their τ is 0
            like = compute_rank_correlations(standing, standing)[0][one, other] + _tied_in_both(standing, one, other)
            tau[mine] = np.where(tied[one] & tied[other], np.nan, like)
            same[mine] = (standing[one] == standing[other]).all(axis=1)
            same_best[mine] = (best[one] == best[other]).all(axis=1)
        present = np.asarray(has.any(axis=1))
        return RankingStability(present[pairs.one] & present[pairs.other], tau, same, same_best)

    def line(self, some: Bools) -> dict[str, Any]:
        """The part of a row of stability.csv that tells of some of the pairs."""
        compared = some & ~np.isnan(self.tau)
        told: dict[str, Any] = {"pairs": int(compared.sum()), "left_out": int((some & self.there & ~compared).sum())}
        if compared.any():
            tau = self.tau[compared]
            told |= {"tau": tau.mean(), "tau_lowest": tau.min()}
            told |= {"same": self.same[compared].mean(), "same_best": self.same_best[compared].mean()}
        return told
