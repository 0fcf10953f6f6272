"""How often an explainer named as many features as were asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Access, Metric, MetricInput, Quantity, Score


@dataclass(frozen=True)
class Coverage(Metric):
    """Share of instances with a complete explanation; a fact about the scores, not a score itself."""

    name = "coverage"
    title = "Coverage"
    better = "none"
    role = "fact"
    quantity = Quantity.COMPLETE
    block = "truth"
    detail = ""
    range = (0.0, 1.0)
    access = Access.NOTHING
    place = 99

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """Over all instances."""
        yield Score("all", inputs.complete.astype(float), np.ones(len(inputs.complete)), everyone=True)
