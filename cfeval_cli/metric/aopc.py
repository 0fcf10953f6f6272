"""AOPC: the mean drop in probability as features are removed in the order of the explanation (DeYoung et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import FittedRemoval, MetricInput, Score
from cfeval_cli.metric.curve import ErasureCurveMetric, rank_features
from cfeval_cli.metric.erasure import make_mean_score


@dataclass(frozen=True)
class Aopc(ErasureCurveMetric):
    """Mean drop in the probability of the predicted class when the first 1, 2, … features are removed."""

    name = "aopc"
    title = "AOPC"
    better = "higher"
    display_order = 33

    def score_removal(self, inputs: MetricInput, fitted: FittedRemoval) -> Score:
        """Return the mean over i of p(ŷ|x) - p(ŷ|x without the first i features)."""
        drops = self.compute_mean_drops(inputs, fitted, np.arange(len(inputs)), rank_features(inputs))
        return make_mean_score(fitted, drops)


@dataclass(frozen=True)
class AopcSufficiency(ErasureCurveMetric):
    """Mean drop in the probability of the predicted class when only the first 1, 2, … features are kept."""

    name = "aopc_suff"
    title = "AOPC suff."
    better = "lower"
    display_order = 34

    def score_removal(self, inputs: MetricInput, fitted: FittedRemoval) -> Score:
        """Return the mean over i of p(ŷ|x) - p(ŷ|only the first i features)."""
        drops = self.compute_mean_drops(inputs, fitted, np.arange(len(inputs)), rank_features(inputs), keep=True)
        return make_mean_score(fitted, drops)
