"""Stability of a metric's ranking of the explainers from run to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cfeval_cli.core import Bools, Floats, Ints
from cfeval_cli.statistics.ranking import compute_rank_correlations, compute_ranks

ANY_SETTING = "all"  # pairs of runs that differ in any setting


@dataclass(frozen=True)
class RunPairs:
    """All pairs of runs, and the settings in which the two differ."""

    first: Ints  # (P,)
    second: Ints  # (P,)
    differs: Bools  # (P, K)

    @staticmethod
    def from_settings(settings: Ints) -> RunPairs:
        """Return the pairs of runs with these settings (R, K), encoded as numbers."""
        first, second = np.triu_indices(len(settings), 1)
        return RunPairs(first, second, settings[first] != settings[second])

    def differ_only_in(self, setting: int) -> Bools:
        """Return whether the two runs of each pair (P,) differ in this setting and in no other."""
        return np.asarray(self.differs[:, setting] & (self.differs.sum(axis=1) == 1))


@dataclass(frozen=True)
class RankingStability:
    """Agreement of one metric's rankings of the explainers in each pair of runs."""

    has_both: Bools  # (P,) both runs have the metric
    tau: Floats  # (P,) NaN where the two cannot be compared
    same_ranks: Bools  # (P,) all ranks are equal, ties included
    same_best: Bools  # (P,)

    @staticmethod
    def compute(values: Floats, better: Literal["higher", "lower"], pairs: RunPairs) -> RankingStability:
        """Compare the rankings by values (R, E); two runs are compared on the explainers that have values in both."""
        is_defined = ~np.isnan(values)
        common = is_defined[pairs.first] & is_defined[pairs.second]
        tau = np.full(len(common), np.nan)
        same_ranks, same_best = np.zeros((2, len(common)), dtype=bool)
        for pattern in np.unique(common, axis=0) if common.size else ():  # seldom more than one
            if pattern.sum() < 2:
                continue
            is_compared = (common == pattern).all(axis=1)
            first, second = pairs.first[is_compared], pairs.second[is_compared]
            ranks = compute_ranks(values[:, pattern], better)
            all_tied = np.asarray((ranks == ranks[:, :1]).all(axis=1))
            is_best = ranks == ranks.min(axis=1, keepdims=True)
            # Two rankings without any order do not contradict each other, though their τ is 0.
            agreement = compute_rank_correlations(ranks, ranks)[0][first, second] + _compute_tied_share(
                ranks, first, second
            )
            tau[is_compared] = np.where(all_tied[first] & all_tied[second], np.nan, agreement)
            same_ranks[is_compared] = (ranks[first] == ranks[second]).all(axis=1)
            same_best[is_compared] = (is_best[first] == is_best[second]).all(axis=1)
        has_metric = np.asarray(is_defined.any(axis=1))
        return RankingStability(has_metric[pairs.first] & has_metric[pairs.second], tau, same_ranks, same_best)

    def summarise(self, is_selected: Bools) -> dict[str, Any]:
        """Return the values of a row of stability.csv over some of the pairs."""
        is_compared = is_selected & ~np.isnan(self.tau)
        n_left_out = int((is_selected & self.has_both & ~is_compared).sum())
        row: dict[str, Any] = {"pairs": int(is_compared.sum()), "left_out": n_left_out}
        if is_compared.any():
            tau = self.tau[is_compared]
            row |= {"tau": tau.mean(), "tau_lowest": tau.min()}
            row |= {"same": self.same_ranks[is_compared].mean(), "same_best": self.same_best[is_compared].mean()}
        return row


def _compute_tied_share(ranks: Floats, first: Ints, second: Ints) -> Floats:
    """Return the share of pairs of explainers that are tied in both runs: ordered alike, which τ does not count."""
    a, b = np.triu_indices(ranks.shape[1], 1)
    is_tied = ranks[:, a] == ranks[:, b]
    return np.asarray((is_tied[first] & is_tied[second]).mean(axis=1))
