"""Whether a counterfactual lies among training rows that the model gives the same class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import AbsentScore, Access, Codes, Counterfactuals, Floats, Metric, MetricInput, ModelSpec, Score
from cfeval_cli.core.neighbours import nearest, training_classes
from cfeval_cli.core.space import Scaled
from cfeval_cli.errors import check_int


@dataclass(frozen=True)
class Plausible(Metric):
    """Share of the nearest training rows of a counterfactual that have its class, of those that flip (yNN)."""

    neighbours: int = 5

    name = "plausible"
    title = "Plausible"
    better = "higher"
    range = (0.0, 1.0)
    access = Access.LABEL
    place = 55
    needs = "counterfactual"
    measures = False
    empty = "no counterfactual flips"

    def __post_init__(self) -> None:
        check_int("neighbours", self.neighbours, 1)

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Sentences have no neighbours by position."""
        return "needs the columns of a table" if spec.dataset.padded else super().not_applicable_reason(spec)

    def score(self, inputs: MetricInput) -> Iterator[Score | AbsentScore]:
        """One for each level at which the search ran and exchanged values."""
        for level, found in inputs.counterfactuals.items():
            if found.codes is None:
                yield AbsentScore(level.name.lower(), "a moved embedding is no row of a table")
            else:
                yield Score(level.name.lower(), self._of(inputs, found, found.codes), found.flipped.astype(float))

    def _of(self, inputs: MetricInput, found: Counterfactuals, edited: Codes) -> Floats:
        """For each flip the share of its own class, zero for the others."""
        rows = np.flatnonzero(found.flipped)
        keys = np.ascontiguousarray(np.pad(edited[rows] + 1, ((0, 0), (0, 1)), constant_values=1))  # no zero at the end
        keys = keys.astype(">i4").view(f"S{4 * keys.shape[1]}").ravel()
        votes = inputs.memory.ask(repr(self), keys, lambda new: self._shares(inputs, edited[rows[new]]))
        scores = np.zeros(len(inputs))
        scores[rows] = votes[np.arange(len(rows)), found.labels[rows]]
        return scores

    def _shares(self, inputs: MetricInput, codes: Codes) -> Floats:
        """The share of each class (n, C) among the nearest training rows."""
        train, counts, space = inputs.memory.once("training rows", lambda: _train(inputs))
        return nearest(space.rows(codes), train, counts, self.neighbours)


def _train(inputs: MetricInput) -> tuple[Floats, Floats, Scaled]:
    """The training rows as points, their predicted classes (N, C) as ones among zeros, and the space."""
    space, codes = Scaled(inputs.dataset), inputs.dataset.train.codes
    return space.rows(codes), np.eye(len(inputs.dataset.classes))[training_classes(inputs)], space
