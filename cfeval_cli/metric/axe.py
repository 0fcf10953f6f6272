"""AXE: whether the selected features alone predict what the model predicts (2025)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Access, Bools, Floats, Ints, Metric, MetricInput, ModelSpec, Score
from cfeval_cli.core.evaluation_cache import make_set_keys
from cfeval_cli.core.explanation import mark_selected
from cfeval_cli.core.neighbours import compute_class_shares, predict_training_classes
from cfeval_cli.core.space import Scaled
from cfeval_cli.errors import check_int

_TIE_TOLERANCE = 1e-9  # vote shares that differ by no more are tied


@dataclass(frozen=True)
class Axe(Metric):
    """Accuracy with which the nearest training rows in the selected features predict the label of the model."""

    neighbours: int = 5

    name = "axe"
    title = "AXE"
    better = "higher"
    range = (0.0, 1.0)
    access = Access.LABEL
    block = "features"
    title_details = ()
    display_order = 38

    def __post_init__(self) -> None:
        check_int("neighbours", self.neighbours, 1)

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason for texts, which have no columns to compute neighbours in."""
        return "needs the columns of a table" if spec.dataset.padded else super().not_applicable_reason(spec)

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """Yield 1 where most votes are for ŷ; of t tied classes each counts 1/t."""
        is_selected = mark_selected(inputs.codes, inputs.features)
        accuracy = inputs.memory.get_or_compute(
            repr(self),
            make_set_keys(is_selected, inputs.ids),
            lambda new_indices: self._compute_accuracy(inputs, new_indices, is_selected[new_indices]),
        )
        yield Score("nearest", accuracy, np.ones(len(inputs)))

    def _compute_accuracy(self, inputs: MetricInput, positions: Ints, is_selected: Bools) -> Floats:
        """Return the scores of some instances; those with the same selected features are scored together."""
        train, classes = inputs.dataset.train.codes, predict_training_classes(inputs)
        accuracy = np.zeros(len(positions))
        sets, set_numbers = np.unique(make_set_keys(is_selected), return_inverse=True)
        space = Scaled(inputs.dataset)
        for number in range(len(sets)):
            members = np.flatnonzero(set_numbers.ravel() == number)
            features = np.flatnonzero(is_selected[members[0]])
            train_points, train_inverse = np.unique(train[:, features], axis=0, return_inverse=True)
            counts = np.zeros((len(train_points), len(inputs.dataset.classes)))
            np.add.at(counts, (train_inverse.ravel(), classes), 1.0)
            points, inverse = np.unique(inputs.codes[positions[members]][:, features], axis=0, return_inverse=True)
            votes = compute_class_shares(
                space.flatten_values(features, points),
                space.flatten_values(features, train_points),
                counts,
                self.neighbours,
            )
            accuracy[members] = _compute_vote_accuracy(
                votes[inverse.ravel()], inputs.predicted_classes[positions[members]]
            )
        return accuracy


def _compute_vote_accuracy(votes: Floats, labels: Ints) -> Floats:
    """Return 1 where a label (n,) has most of the votes (n, C), 1/t if t classes are tied, and else 0."""
    is_winner = votes >= votes.max(axis=1, keepdims=True) - _TIE_TOLERANCE
    return np.asarray(is_winner[np.arange(len(labels)), labels] / is_winner.sum(axis=1))
