"""Agreement with the ground truth: how many of the most important features an explanation selects."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Access, Floats, Metric, MetricInput, Score
from cfeval_cli.core.explanation import mark_selected
from cfeval_cli.core.ranking import compute_hit_probability, count_shared_features


@dataclass(frozen=True)
class GroundTruthMetric(Metric):
    """Base of the metrics that compare selected features with the reference features of each ground truth."""

    title = "GroundTruth"
    better = "higher"
    role = "truth"
    block = "truth"
    title_details = ("{metric}", "{variant}")
    range = (0.0, 1.0)
    access = Access.WHITE_BOX

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """Yield a score for each ground truth, of the instances for which it is known."""
        for truth, importance in inputs.truth.items():
            values = self.compute_agreement(inputs, truth)
            positions = np.flatnonzero(~np.isnan(importance).any(axis=1))
            if len(positions) == len(values):
                yield Score(truth, values, np.ones(len(values)))
            else:
                yield Score(truth, values[positions], np.ones(len(positions)), positions=positions)

    @abstractmethod
    def compute_agreement(self, inputs: MetricInput, truth: str) -> Floats:
        """Return the agreement of each instance."""


@dataclass(frozen=True)
class Recall(GroundTruthMetric):
    """Mean share of the reference features that are selected."""

    name = "recall"
    display_order = 90

    def compute_agreement(self, inputs: MetricInput, truth: str) -> Floats:
        """Return the share of reference features that are selected."""
        is_selected = mark_selected(inputs.codes, inputs.features)
        return count_shared_features(inputs.truth[truth], is_selected, inputs.k) / inputs.k


@dataclass(frozen=True)
class Hit(GroundTruthMetric):
    """Share of instances with at least one selected reference feature."""

    name = "hit"
    display_order = 91

    def compute_agreement(self, inputs: MetricInput, truth: str) -> Floats:
        """Return the probability that a reference feature is selected; ties make it a fraction."""
        is_selected = mark_selected(inputs.codes, inputs.features)
        return compute_hit_probability(inputs.truth[truth], is_selected, inputs.k)
