"""How often a search that iterates came to rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Access, Metric, MetricInput, Quantity, Score


@dataclass(frozen=True)
class Converged(Metric):
    """Share of counterfactuals at which the search converged; a fact about the scores, not a score itself."""

    name = "converged"
    title = "Converged"
    better = "none"
    role = "fact"
    quantity = Quantity.CONVERGED
    range = (0.0, 1.0)
    access = Access.NOTHING
    place = 98
    needs = "counterfactual"

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """One for each level at which the search iterated."""
        for level, found in inputs.counterfactuals.items():
            if found.converged is not None:
                yield Score(level.name.lower(), found.converged.astype(float), np.ones(len(found.converged)))
