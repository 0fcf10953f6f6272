"""Agreement with what is known of the white box: how much of the gold did the explainer find?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Access, Floats, Metric, MetricInput, Score
from cfeval_cli.core.ranking import met, shared


def _known(inputs: MetricInput, definition: str, values: Floats) -> Score:
    """A score of the instances of which this truth is known."""
    some = np.flatnonzero(~np.isnan(inputs.truth[definition]).any(axis=1))
    if len(some) == len(values):
        return Score(definition, values, np.ones(len(values)))
    return Score(definition, values[some], np.ones(len(some)), some=some)


@dataclass(frozen=True)
class Recall(Metric):
    """Mean share of the gold features that were named."""

    name = "recall"
    title = "GroundTruth"
    better = "higher"
    role = "truth"
    block = "truth"
    detail = "{metric}, {variant}"
    range = (0.0, 1.0)
    access = Access.WHITE_BOX
    place = 90

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """One for each definition of gold."""
        for definition in inputs.truth:
            yield _known(inputs, definition, shared(inputs, definition) / inputs.k)


@dataclass(frozen=True)
class Hit(Metric):
    """Share of instances with at least one gold feature named."""

    name = "hit"
    title = "GroundTruth"
    better = "higher"
    role = "truth"
    block = "truth"
    detail = "{metric}, {variant}"
    range = (0.0, 1.0)
    access = Access.WHITE_BOX
    place = 91

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """One for each definition of gold."""
        for definition in inputs.truth:
            yield _known(inputs, definition, met(inputs, definition))
