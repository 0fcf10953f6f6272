"""Sparsity: how many features a counterfactual changes, and how many of these changes are redundant."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import NO_FEATURE, AbsentScore, Access, Bools, Counterfactuals, Floats, Metric, MetricInput, Score


@dataclass(frozen=True)
class FeatureCountMetric(Metric):
    """Base of the metrics that count features of the counterfactuals that flip."""

    better = "lower"
    range = (0.0, float("inf"))
    access = Access.LABEL
    max_access = Access.GRADIENT
    needs = "counterfactual"
    uses_distances = False
    zero_denominator_note = "no counterfactual flips"

    def score(self, inputs: MetricInput) -> Iterator[Score | AbsentScore]:
        """Yield a score for each access level of the search."""
        for level, counterfactuals in inputs.counterfactuals.items():
            if counterfactuals.codes is None and inputs.model.access < Access.GRADIENT:
                yield AbsentScore(level.name.lower(), "needs access to embeddings (access=gradient)")
            else:
                counts = self.count_features(inputs, counterfactuals)
                yield Score(level.name.lower(), counts, counterfactuals.flipped.astype(float))

    @abstractmethod
    def count_features(self, inputs: MetricInput, counterfactuals: Counterfactuals) -> Floats:
        """Return the number of features (n,) of each flip, and 0 where the label does not change."""


@dataclass(frozen=True)
class Sparsity(FeatureCountMetric):
    """Mean number of features that a flipping counterfactual changes."""

    name = "sparsity"
    title = "Sparsity"
    display_order = 53

    def count_features(self, inputs: MetricInput, counterfactuals: Counterfactuals) -> Floats:
        """Return the number of changed features."""
        n_changed = find_changes(inputs, counterfactuals).sum(axis=1)
        return np.asarray(counterfactuals.flipped.astype(float) * n_changed)


@dataclass(frozen=True)
class Redundant(FeatureCountMetric):
    """Mean number of changed features that a flipping counterfactual keeps its label without, each reset alone."""

    name = "redundant"
    title = "Redundant"
    display_order = 54

    def count_features(self, inputs: MetricInput, counterfactuals: Counterfactuals) -> Floats:
        """Return the number of changed features that can be reset alone without losing the flip."""
        is_changed = find_changes(inputs, counterfactuals) & counterfactuals.flipped[:, None]
        # Resetting the only change restores the instance itself, which is not a flip.
        positions, columns = np.nonzero(is_changed & (is_changed.sum(axis=1) > 1)[:, None])
        features, labels = counterfactuals.features[positions, columns], inputs.predicted_classes[positions]
        if counterfactuals.codes is not None:
            reset = counterfactuals.codes[positions]
            reset[np.arange(len(positions)), features] = inputs.codes[positions, features]
            labels_after_reset = inputs.model.predict_labels(reset)
        elif counterfactuals.vectors is not None:
            moved = counterfactuals.features[positions].copy()
            moved[np.arange(len(positions)), columns] = NO_FEATURE
            vectors = counterfactuals.vectors[positions]
            labels_after_reset = inputs.model.evaluate_embeddings(inputs.codes[positions], moved, vectors, labels)[0]
        else:
            raise ValueError("counterfactuals must have codes or vectors")
        return np.bincount(positions, labels_after_reset != labels, minlength=len(inputs)).astype(np.float64)


def find_changes(inputs: MetricInput, counterfactuals: Counterfactuals) -> Bools:
    """Return which of the features (n, k) that were open to the edit have changed."""
    is_feature = counterfactuals.features != NO_FEATURE
    features = np.where(is_feature, counterfactuals.features, 0)
    codes = np.take_along_axis(inputs.codes, features, axis=1)
    if counterfactuals.codes is not None:
        return np.asarray(is_feature & (np.take_along_axis(counterfactuals.codes, features, axis=1) != codes))
    if counterfactuals.vectors is None:
        raise ValueError("counterfactuals must have codes or vectors")
    vectors = inputs.model.embed_features(features.ravel(), codes.ravel()).reshape(counterfactuals.vectors.shape)
    return np.asarray(is_feature & (vectors != counterfactuals.vectors).any(axis=2))
