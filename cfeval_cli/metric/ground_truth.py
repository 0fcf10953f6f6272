"""Agreement with what is known of the white box: how much of the gold did the explainer find?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli import gold
from cfeval_cli.search.edit import explained
from cfeval_cli.types import NONE, Access, Case, Ints, Score


def shared(case: Case, definition: str) -> Ints:
    """How many of the k gold features the explanation names, for each instance."""
    named = explained(case.codes, case.features)
    best = gold.top(case.gold[definition], case.k)
    return np.asarray((np.take_along_axis(named, best, axis=1) & (best != NONE)).sum(axis=1))


@dataclass(frozen=True)
class Recall:
    """Mean share of the gold features that were named."""

    name = "recall"
    title = "GroundTruth"
    better = "higher"
    range = (0.0, 1.0)
    access = Access.WHITE_BOX
    place = 90

    def score(self, case: Case) -> Iterator[Score]:
        """One for each definition of gold."""
        for definition in case.gold:
            yield Score(definition, shared(case, definition) / case.k, np.ones(len(case.codes)))


@dataclass(frozen=True)
class Hit:
    """Share of instances with at least one gold feature named."""

    name = "hit"
    title = "GroundTruth"
    better = "higher"
    range = (0.0, 1.0)
    access = Access.WHITE_BOX
    place = 91

    def score(self, case: Case) -> Iterator[Score]:
        """One for each definition of gold."""
        for definition in case.gold:
            yield Score(definition, (shared(case, definition) > 0).astype(float), np.ones(len(case.codes)))
