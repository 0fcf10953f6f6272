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

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """Over the instances with a usable explanation."""
        if not inputs.dataset.constrained:
            return
        fixed = np.ones(len(inputs), dtype=bool)
        for j in np.unique(inputs.features[inputs.features != NO_FEATURE]).tolist():
            rows = np.flatnonzero((inputs.features == j).any(axis=1))
            fixed[rows] &= ~inputs.dataset.allowed(j, inputs.codes[rows, j]).any(axis=1)
        yield Score("all", fixed.astype(float), np.ones(len(inputs)))
