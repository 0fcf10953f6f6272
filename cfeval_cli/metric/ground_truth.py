"""Agreement with what is known of the white box: how much of the truth did the explainer find?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Access, Floats, Metric, MetricInput, Score
from cfeval_cli.core.ranking import compute_hit_probability, count_shared_features


def _make_score(inputs: MetricInput, truth: str, values: Floats) -> Score:
    """Return a score of the instances for which the ground truth is known."""
    rows = np.flatnonzero(~np.isnan(inputs.truth[truth]).any(axis=1))
    if len(rows) == len(values):
        return Score(truth, values, np.ones(len(values)))
    return Score(truth, values[rows], np.ones(len(rows)), positions=rows)


@dataclass(frozen=True)
class Recall(Metric):
    """Mean share of the reference features that were named."""

    name = "recall"
    title = "GroundTruth"
    better = "higher"
    role = "truth"
    block = "truth"
    title_detail = "{metric}, {variant}"
    range = (0.0, 1.0)
    access = Access.WHITE_BOX
    display_order = 90

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """One for each truth."""
        for truth in inputs.truth:
            yield _make_score(inputs, truth, count_shared_features(inputs, truth) / inputs.k)


@dataclass(frozen=True)
class Hit(Metric):
    """Share of instances with at least one reference feature named."""

    name = "hit"
    title = "GroundTruth"
    better = "higher"
    role = "truth"
    block = "truth"
    title_detail = "{metric}, {variant}"
    range = (0.0, 1.0)
    access = Access.WHITE_BOX
    display_order = 91

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """One for each truth."""
        for truth in inputs.truth:
            yield _make_score(inputs, truth, compute_hit_probability(inputs, truth))
