"""Agreement with what is known of the white box: how much of the gold did the explainer find?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.truth.ranking import top
from cfeval_cli.types import NONE, Access, Case, Ints, Metric, Score
from cfeval_cli.types.explanation import named


def shared(case: Case, definition: str) -> Ints:
    """How many of the k gold features the explanation names, for each instance."""
    there = named(case.codes, case.features)
    best = top(case.truth[definition], case.k)
    return np.asarray((np.take_along_axis(there, best, axis=1) & (best != NONE)).sum(axis=1))


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

    def score(self, case: Case) -> Iterator[Score]:
        """One for each definition of gold."""
        for definition in case.truth:
            yield Score(definition, shared(case, definition) / case.k, np.ones(len(case.codes)))


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

    def score(self, case: Case) -> Iterator[Score]:
        """One for each definition of gold."""
        for definition in case.truth:
            yield Score(definition, (shared(case, definition) > 0).astype(float), np.ones(len(case.codes)))
