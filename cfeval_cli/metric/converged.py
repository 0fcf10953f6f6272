"""Convergence: how often an iterative search for counterfactuals converges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Access, Metric, MetricInput, Quantity, Score


@dataclass(frozen=True)
class Converged(Metric):
    """Share of counterfactuals at which the search converged; it describes the scores and does not rank explainers."""

    name = "converged"
    title = "Converged"
    better = "none"
    role = "fact"
    quantity = Quantity.CONVERGED
    range = (0.0, 1.0)
    access = Access.NOTHING
    display_order = 98
    needs = "counterfactual"

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """Yield a score for each access level at which the search is iterative."""
        for level, counterfactuals in inputs.counterfactuals.items():
            if counterfactuals.converged is not None:
                yield Score(level.name.lower(), counterfactuals.converged.astype(float), np.ones(len(inputs)))
