"""How often the label changes without the explained features: the decision flip ratio."""

from __future__ import annotations

from dataclasses import dataclass

from cfeval_cli.core import Access, FittedRemoval, MetricInput, Score
from cfeval_cli.metric.erasure import Erasure, mean, removed


@dataclass(frozen=True)
class Dfr(Erasure):
    """Share of instances whose label changes without the explained features."""

    name = "dfr"
    title = "DFR"
    better = "higher"
    range = (0.0, 1.0)
    access = Access.LABEL
    place = 30

    def of(self, inputs: MetricInput, way: FittedRemoval) -> Score:
        """Whether F(x without e) ≠ ŷ; of several draws, the share."""
        return mean(way, removed(inputs, way)[0])
