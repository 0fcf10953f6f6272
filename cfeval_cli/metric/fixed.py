"""Fixed explanations: how often constraints forbid to change every selected feature."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import NO_FEATURE, Access, Metric, MetricInput, Score


@dataclass(frozen=True)
class Fixed(Metric):
    """Share of explanations without a feature that may change; it describes the scores and does not rank explainers.

    It exists only for data with constraints (dataset.immutable, dataset.only). No search can flip such an explanation.
    """

    name = "fixed"
    title = "Fixed"
    better = "none"
    role = "fact"
    title_details = ()
    range = (0.0, 1.0)
    access = Access.NOTHING
    display_order = 97

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """Yield a score over the instances with an explanation, if the data have constraints."""
        if not inputs.dataset.has_constraints:
            return
        is_fixed = np.ones(len(inputs), dtype=bool)
        for j in np.unique(inputs.features[inputs.features != NO_FEATURE]).tolist():
            positions = np.flatnonzero((inputs.features == j).any(axis=1))
            is_fixed[positions] &= ~inputs.dataset.find_allowed(j, inputs.codes[positions, j]).any(axis=1)
        yield Score("all", is_fixed.astype(float), np.ones(len(inputs)))
