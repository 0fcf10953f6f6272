"""Whether the named features alone tell what the model predicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Access, Bools, Floats, Ints, Metric, MetricInput, ModelSpec, Score
from cfeval_cli.core.explanation import named
from cfeval_cli.core.memory import keys_of
from cfeval_cli.core.neighbours import nearest, training_classes
from cfeval_cli.core.space import Scaled
from cfeval_cli.errors import check_int

_TIED = 1e-9  # shares of votes that differ by no more are the same


@dataclass(frozen=True)
class Axe(Metric):
    """Accuracy of a vote of the training rows nearest in the named features, on what the model predicts (AXE, 2025)."""

    neighbours: int = 5

    name = "axe"
    title = "AXE"
    better = "higher"
    range = (0.0, 1.0)
    access = Access.LABEL
    block = "features"
    detail = ""
    place = 38

    def __post_init__(self) -> None:
        check_int("neighbours", self.neighbours, 1)

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Sentences have no neighbours by position."""
        return "needs the columns of a table" if spec.dataset.padded else super().not_applicable_reason(spec)

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """1 where most votes are for ŷ; a tie of t classes counts 1/t."""
        explained = named(inputs.codes, inputs.features)
        told = inputs.memory.ask(
            repr(self), keys_of(explained, inputs.ids), lambda new: self._right(inputs, new, explained[new])
        )
        yield Score("nearest", told, np.ones(len(inputs)))

    def _right(self, inputs: MetricInput, rows: Ints, explained: Bools) -> Floats:
        """The score of some rows, those with the same features together."""
        train, classes = inputs.dataset.train.codes, training_classes(inputs)
        right = np.zeros(len(rows))
        sets, which = np.unique(keys_of(explained), return_inverse=True)
        space = Scaled(inputs.dataset)
        for number in range(len(sets)):
            mine = np.flatnonzero(which.ravel() == number)
            features = np.flatnonzero(explained[mine[0]])
            kinds, kind = np.unique(train[:, features], axis=0, return_inverse=True)
            counts = np.zeros((len(kinds), len(inputs.dataset.classes)))
            np.add.at(counts, (kind.ravel(), classes), 1.0)
            own, of = np.unique(inputs.codes[rows[mine]][:, features], axis=0, return_inverse=True)
            places = space.block(features, own), space.block(features, kinds)
            right[mine] = _vote(nearest(*places, counts, self.neighbours)[of.ravel()], inputs.labels[rows[mine]])
        return right


def _vote(votes: Floats, labels: Ints) -> Floats:
    """Whether most votes (n, C) are for a label (n,), as a share if classes are tied."""
    most = votes >= votes.max(axis=1, keepdims=True) - _TIED
    return np.asarray(most[np.arange(len(labels)), labels] / most.sum(axis=1))
