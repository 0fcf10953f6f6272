"""Erasure metrics: an erasure is an edit like any other, scored as counterfactuals are.

Comprehensiveness is validity_soft, and the decision flip ratio is validity, of the edit that removes the explained
features; sufficiency is validity_soft of the edit that removes all others.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cfeval_cli.metric.counterfactual import drops
from cfeval_cli.removal.without import without
from cfeval_cli.types import ABSENT, Absent, Access, Bools, Case, Floats, Metric, Removed, Score
from cfeval_cli.types.explanation import named


@dataclass(frozen=True)
class Erasure(Metric):
    """What they share: a score for each way of removing."""

    only: Sequence[str] | None = None  # ways of removing, by name; None: all that the run has

    block = "erasure"
    most = Access.GRADIENT  # removal by mean moves embeddings

    def score(self, case: Case) -> Iterator[Score | Absent]:
        """One for each way of removing, or why there is none."""
        for name, way in case.removals.items():
            if self.only is not None and name not in self.only:
                continue
            if way.stand_ins is None:
                yield Absent(way.removal.variant, way.reason)
            elif way.stand_ins.vectors is not None and case.model.access < Access.GRADIENT:
                yield Absent(way.removal.variant, "access does not allow to move embeddings")
            else:
                yield Score(way.removal.variant, self.of(case, way), np.ones(len(case)))

    @abstractmethod
    def of(self, case: Case, way: Removed) -> Floats:
        """The score (n,) of each instance."""


def removed(case: Case, way: Removed, *, keep: bool = False) -> tuple[Floats, Floats | None]:
    """What became of the prediction when the explained features, or all but those, were removed."""
    if way.stand_ins is None:
        raise ValueError(way.reason)
    gone: Bools = named(case.codes, case.features)
    return without(case.model, case, (~gone if keep else gone) & (case.codes != ABSENT), way.stand_ins)


@dataclass(frozen=True)
class Comprehensiveness(Erasure):
    """Mean drop in probability without the explained features."""

    name = "comprehensiveness"
    title = "Comp."
    better = "higher"
    range = (-1.0, 1.0)
    access = Access.PROBABILITY
    place = 10

    def of(self, case: Case, way: Removed) -> Floats:
        """p(ŷ|x) - p(ŷ|x without e)."""
        return drops(case, removed(case, way)[1])


@dataclass(frozen=True)
class Sufficiency(Erasure):
    """Mean drop in probability with nothing but the explained features."""

    name = "sufficiency"
    title = "Suff."
    better = "lower"
    range = (-1.0, 1.0)
    access = Access.PROBABILITY
    place = 20

    def of(self, case: Case, way: Removed) -> Floats:
        """p(ŷ|x) - p(ŷ|only e)."""
        return drops(case, removed(case, way, keep=True)[1])


@dataclass(frozen=True)
class Dfr(Erasure):
    """Share of instances whose label changes without the explained features."""

    name = "dfr"
    title = "DFR"
    better = "higher"
    range = (0.0, 1.0)
    access = Access.LABEL
    place = 30

    def of(self, case: Case, way: Removed) -> Floats:
        """Whether F(x without e) ≠ ŷ; of several draws, the share."""
        return removed(case, way)[0]
