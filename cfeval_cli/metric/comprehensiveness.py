"""How much probability is lost without the explained features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cfeval_cli.core import Access, FittedRemoval, MetricInput, Removal, Score
from cfeval_cli.metric.erasure import Erasure, mean, removed


@dataclass(frozen=True)
class Comprehensiveness(Erasure):
    """Mean drop in probability without the explained features."""

    name = "comprehensiveness"
    title = "Comp."
    better = "higher"
    range = (-1.0, 1.0)
    access = Access.PROBABILITY
    place = 10

    def rewards(self, variant: str, k: int, removals: Mapping[str, Removal]) -> set[str]:
        """What is lost most by this way of removing."""
        return {way.finds for way in removals.values() if way.variant == variant} - {""}

    def of(self, inputs: MetricInput, way: FittedRemoval) -> Score:
        """p(ŷ|x) - p(ŷ|x without e)."""
        return mean(way, inputs.drops(removed(inputs, way)[1]))
