"""Comprehensiveness: the drop in probability without the selected features (DeYoung et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cfeval_cli.core import Access, CircularRelation, FittedRemoval, MetricInput, ModelSpec, Removal, Score
from cfeval_cli.metric.erasure import ErasureMetric, compute_effect_of_selected, make_mean_score


@dataclass(frozen=True)
class Comprehensiveness(ErasureMetric):
    """Mean drop in the probability of the predicted class when the selected features are removed."""

    name = "comprehensiveness"
    title = "Comp."
    better = "higher"
    range = (-1.0, 1.0)
    access = Access.PROBABILITY
    display_order = 10

    def circular_with(self, spec: ModelSpec, k: int, variant: str, removals: Mapping[str, Removal]) -> CircularRelation:
        """Return the truth that the removal of this variant approximates."""
        matching_removals = [removal for removal in removals.values() if removal.variant == variant]
        return CircularRelation(
            truths={removal.circular_truth for removal in matching_removals if removal.circular_truth}
        )

    def score_removal(self, inputs: MetricInput, fitted: FittedRemoval) -> Score:
        """Return p(ŷ|x) - p(ŷ|x without the selected features) for each instance."""
        return make_mean_score(fitted, inputs.compute_drops(compute_effect_of_selected(inputs, fitted).probability))
