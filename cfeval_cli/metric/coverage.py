"""Coverage: how often an explanation has k features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Access, Metric, MetricInput, Quantity, Score


@dataclass(frozen=True)
class Coverage(Metric):
    """Share of instances whose explanation has k features; it describes the scores and does not rank explainers."""

    name = "coverage"
    title = "Coverage"
    better = "none"
    role = "fact"
    quantity = Quantity.COMPLETE
    block = "truth"
    title_details = ()
    range = (0.0, 1.0)
    access = Access.NOTHING
    display_order = 99

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """Yield a score over all instances, explained or not."""
        yield Score("all", inputs.complete.astype(float), np.ones(len(inputs.complete)), over_all_instances=True)
