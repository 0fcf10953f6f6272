"""Decision flip ratio: how often removing the selected features changes the label."""

from __future__ import annotations

from dataclasses import dataclass

from cfeval_cli.core import Access, FittedRemoval, MetricInput, Score
from cfeval_cli.metric.erasure import ErasureMetric, compute_effect_of_selected, make_mean_score


@dataclass(frozen=True)
class Dfr(ErasureMetric):
    """Share of instances whose label changes when the selected features are removed."""

    name = "dfr"
    title = "DFR"
    better = "higher"
    range = (0.0, 1.0)
    access = Access.LABEL
    display_order = 30

    def score_removal(self, inputs: MetricInput, fitted: FittedRemoval) -> Score:
        """Return the share of replacement values with which the label of x without the selected features is not ŷ."""
        return make_mean_score(fitted, compute_effect_of_selected(inputs, fitted).flip_rate)
