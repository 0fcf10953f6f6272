"""Comprehensiveness: the drop in probability without the selected features (DeYoung et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cfeval_cli.core import Access, FittedRemoval, MetricInput, Removal, Score
from cfeval_cli.metric.erasure import ErasureMetric, make_mean_score, remove_selected


@dataclass(frozen=True)
class Comprehensiveness(ErasureMetric):
    """Mean drop in the probability of the predicted class when the selected features are removed."""

    name = "comprehensiveness"
    title = "Comp."
    better = "higher"
    range = (-1.0, 1.0)
    access = Access.PROBABILITY
    place = 10

    def rewards(self, variant: str, k: int, removals: Mapping[str, Removal]) -> set[str]:
        """Return the truths whose top features lose most when they are removed in this way."""
        return {removal.finds for removal in removals.values() if removal.variant == variant} - {""}

    def score_removal(self, inputs: MetricInput, fitted: FittedRemoval) -> Score:
        """Return p(ŷ|x) - p(ŷ|x without the selected features) for each instance."""
        return make_mean_score(fitted, inputs.drops(remove_selected(inputs, fitted).left))
