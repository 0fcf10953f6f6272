"""Whether scores add up to what removing features does (Bhatt et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import FittedRemoval, MetricInput, Score
from cfeval_cli.metric.subsets import Subsets

_CONSTANT = 1e-12  # a standard deviation of no more, in units of the largest value, is none


@dataclass(frozen=True)
class FaithfulnessCorrelation(Subsets):
    """Mean correlation, over random sets, of the sum of a set's scores with the drop that removing it causes."""

    name = "faithfulness_correlation"
    title = "Faithfulness corr."
    better = "higher"
    range = (-1.0, 1.0)
    place = 39
    empty = "nothing varies between sets"

    def of(self, inputs: MetricInput, way: FittedRemoval) -> Score:
        """Pearson's correlation; an instance where one of both is constant has none."""
        sums, drops = self.sums(inputs, way)
        parts = [side - side.mean(axis=1, keepdims=True) for side in (sums, drops)]
        sizes = [np.sqrt((part**2).mean(axis=1)) for part in parts]
        limits = [_CONSTANT * np.maximum(1e-300, np.abs(side).max(axis=1, initial=0.0)) for side in (sums, drops)]
        varies = (sizes[0] > limits[0]) & (sizes[1] > limits[1])
        both = np.where(varies, sizes[0] * sizes[1], 1.0)
        correlation = np.where(varies, (parts[0] * parts[1]).mean(axis=1), 0.0) / both
        return Score(way.removal.variant, np.clip(correlation, -1.0, 1.0), varies.astype(np.float64))
