"""Infidelity: the squared difference between sums of scores and the drops in probability (Yeh et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import FittedRemoval, MetricInput, Score
from cfeval_cli.metric.erasure import make_mean_score
from cfeval_cli.metric.subsets import RandomSubsetMetric


@dataclass(frozen=True)
class Infidelity(RandomSubsetMetric):
    """Mean squared difference between the scaled sum of the scores of a random feature set and the drop it causes."""

    name = "infidelity"
    title = "Infidelity"
    better = "lower"
    range = (0.0, 1.0)
    display_order = 40

    def score_removal(self, inputs: MetricInput, fitted: FittedRemoval) -> Score:
        """Return the mean of (β Σ scores - drop)² for each instance, with β by least squares; 0 if all sums are 0."""
        sums, drops = self.compute_sums_and_drops(inputs, fitted)
        squares = (sums**2).sum(axis=1)
        scale = np.divide((sums * drops).sum(axis=1), squares, out=np.zeros(len(sums)), where=squares > 0)
        return make_mean_score(fitted, ((scale[:, None] * sums - drops) ** 2).mean(axis=1))
