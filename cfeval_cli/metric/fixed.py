"""How often an explanation names nothing that may change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import NO_FEATURE, Access, Metric, MetricInput, Score


@dataclass(frozen=True)
class Fixed(Metric):
    """Share of explanations that no search can flip, since none of their features may change: a fact about the scores.

    Only data with constraints have it.
    """

    name = "fixed"
    title = "Fixed"
    better = "none"
    role = "fact"
    detail = ""
    range = (0.0, 1.0)
    access = Access.NOTHING
    place = 97

    def score(self, case: MetricInput) -> Iterator[Score]:
        """Over the instances with a usable explanation."""
        if not case.dataset.constrained:
            return
        fixed = np.ones(len(case), dtype=bool)
        for j in np.unique(case.features[case.features != NO_FEATURE]).tolist():
            rows = np.flatnonzero((case.features == j).any(axis=1))
            fixed[rows] &= ~case.dataset.allowed(j, case.codes[rows, j]).any(axis=1)
        yield Score("all", fixed.astype(float), np.ones(len(case)))
