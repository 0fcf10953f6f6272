"""Sufficiency: the drop in probability with only the selected features (DeYoung et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from cfeval_cli.core import Access, FittedRemoval, MetricInput, Score
from cfeval_cli.metric.erasure import ErasureMetric, compute_effect_of_others, make_mean_score


@dataclass(frozen=True)
class Sufficiency(ErasureMetric):
    """Mean drop in the probability of the predicted class when only the selected features are kept."""

    name = "sufficiency"
    title = "Suff."
    better = "lower"
    range = (-1.0, 1.0)
    access = Access.PROBABILITY
    display_order = 20

    def score_removal(self, inputs: MetricInput, fitted: FittedRemoval) -> Score:
        """Return p(ŷ|x) - p(ŷ|only the selected features) for each instance."""
        return make_mean_score(fitted, inputs.compute_drops(compute_effect_of_others(inputs, fitted).probability))
