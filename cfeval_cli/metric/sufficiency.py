"""How much probability is lost with nothing but the explained features."""

from __future__ import annotations

from dataclasses import dataclass

from cfeval_cli.core import Access, FittedRemoval, MetricInput, Score
from cfeval_cli.metric.erasure import Erasure, mean, removed


@dataclass(frozen=True)
class Sufficiency(Erasure):
    """Mean drop in probability with nothing but the explained features."""

    name = "sufficiency"
    title = "Suff."
    better = "lower"
    range = (-1.0, 1.0)
    access = Access.PROBABILITY
    place = 20

    def of(self, inputs: MetricInput, way: FittedRemoval) -> Score:
        """p(ŷ|x) - p(ŷ|only e)."""
        return mean(way, inputs.drops(removed(inputs, way, keep=True)[1]))
