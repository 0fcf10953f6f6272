"""Plausibility: whether a counterfactual lies among training rows of its own class (yNN)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import AbsentScore, Access, Codes, Counterfactuals, Floats, Metric, MetricInput, ModelSpec, Score
from cfeval_cli.core.neighbours import compute_class_shares, predict_training_classes
from cfeval_cli.core.space import Scaled
from cfeval_cli.errors import check_int


@dataclass(frozen=True)
class Plausible(Metric):
    """Mean share of the nearest training rows of a flipping counterfactual that the model assigns to its class."""

    neighbours: int = 5

    name = "plausible"
    title = "Plausible"
    better = "higher"
    range = (0.0, 1.0)
    access = Access.LABEL
    display_order = 55
    needs = "counterfactual"
    uses_distances = False
    zero_denominator_note = "no counterfactual flips"

    def __post_init__(self) -> None:
        check_int("neighbours", self.neighbours, 1)

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason for texts, which have no columns to compute neighbours in."""
        return "needs the columns of a table" if spec.dataset.padded else super().not_applicable_reason(spec)

    def score(self, inputs: MetricInput) -> Iterator[Score | AbsentScore]:
        """Yield a score for each access level of the search, or the reason if the search moves embeddings."""
        for level, counterfactuals in inputs.counterfactuals.items():
            if counterfactuals.codes is None:
                yield AbsentScore(level.name.lower(), "a moved embedding is not a row of the table")
            else:
                shares = self._compute_shares(inputs, counterfactuals, counterfactuals.codes)
                yield Score(level.name.lower(), shares, counterfactuals.flipped.astype(float))

    def _compute_shares(self, inputs: MetricInput, counterfactuals: Counterfactuals, edited: Codes) -> Floats:
        """Return the share of neighbours of the new class for each flip, and zero for other instances."""
        positions = np.flatnonzero(counterfactuals.flipped)
        # NumPy strips trailing zero bytes from such keys, so each key ends with a one.
        keys = np.ascontiguousarray(np.pad(edited[positions] + 1, ((0, 0), (0, 1)), constant_values=1))
        keys = keys.astype(">i4").view(f"S{4 * keys.shape[1]}").ravel()
        votes = inputs.memory.get_or_compute(
            repr(self), keys, lambda new_indices: self._compute_votes(inputs, edited[positions[new_indices]])
        )
        shares = np.zeros(len(inputs))
        shares[positions] = votes[np.arange(len(positions)), counterfactuals.labels[positions]]
        return shares

    def _compute_votes(self, inputs: MetricInput, codes: Codes) -> Floats:
        """Return the share of each class (n, C) among the nearest training rows."""
        train, classes, space = inputs.memory.get_or_create("training rows", lambda: _embed_training_rows(inputs))
        return compute_class_shares(space.flatten_rows(codes), train, classes, self.neighbours)


def _embed_training_rows(inputs: MetricInput) -> tuple[Floats, Floats, Scaled]:
    """Return the training rows as points, their predicted classes one-hot encoded (N, C), and the space."""
    space, codes = Scaled(inputs.dataset), inputs.dataset.train.codes
    return space.flatten_rows(codes), np.eye(len(inputs.dataset.classes))[predict_training_classes(inputs)], space
