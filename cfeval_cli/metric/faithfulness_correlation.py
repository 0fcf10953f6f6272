"""Faithfulness correlation between sums of scores and the drops that removing features causes (Bhatt et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import FittedRemoval, MetricInput, Score
from cfeval_cli.metric.subsets import RandomSubsetMetric

_MIN_RELATIVE_DEVIATION = 1e-12  # standard deviations below this share of the largest value are rounding errors


@dataclass(frozen=True)
class FaithfulnessCorrelation(RandomSubsetMetric):
    """Mean correlation between the sum of the scores of a random feature set and the drop when the set is removed."""

    name = "faithfulness_correlation"
    title = "Faithfulness corr."
    better = "higher"
    range = (-1.0, 1.0)
    display_order = 39
    zero_denominator_note = "scores or drops do not vary between the feature sets"

    def score_removal(self, inputs: MetricInput, fitted: FittedRemoval) -> Score:
        """Return Pearson's correlation of each instance whose sums and drops both vary."""
        sums, drops = self.compute_sums_and_drops(inputs, fitted)
        deviations = [values - values.mean(axis=1, keepdims=True) for values in (sums, drops)]
        scales = [np.sqrt((deviation**2).mean(axis=1)) for deviation in deviations]
        limits = [
            _MIN_RELATIVE_DEVIATION * np.maximum(1e-300, np.abs(values).max(axis=1, initial=0.0))
            for values in (sums, drops)
        ]
        varies = (scales[0] > limits[0]) & (scales[1] > limits[1])
        product = np.where(varies, scales[0] * scales[1], 1.0)
        correlation = np.where(varies, (deviations[0] * deviations[1]).mean(axis=1), 0.0) / product
        return Score(fitted.removal.variant, np.clip(correlation, -1.0, 1.0), varies.astype(np.float64))
