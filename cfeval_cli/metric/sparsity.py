"""How many features a counterfactual changes, and how many of these it need not have changed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import NO_FEATURE, AbsentScore, Access, Bools, Counterfactuals, Floats, Metric, MetricInput, Score

_EMBEDDINGS = "access does not allow to look at embeddings"


@dataclass(frozen=True)
class _Counted(Metric):
    """What both share: a mean over the counterfactuals that flip."""

    better = "lower"
    range = (0.0, float("inf"))
    access = Access.LABEL
    most = Access.GRADIENT
    needs = "counterfactual"
    measures = False
    empty = "no counterfactual flips"

    def score(self, inputs: MetricInput) -> Iterator[Score | AbsentScore]:
        """One for each level at which the search ran."""
        for level, found in inputs.counterfactuals.items():
            if found.codes is None and inputs.model.access < Access.GRADIENT:
                yield AbsentScore(level.name.lower(), _EMBEDDINGS)
            else:
                yield Score(level.name.lower(), self.count(inputs, found), found.flipped.astype(float))

    @abstractmethod
    def count(self, inputs: MetricInput, found: Counterfactuals) -> Floats:
        """How many features (n,) of each flip; 0 of what does not flip."""


@dataclass(frozen=True)
class Sparsity(_Counted):
    """Mean number of features changed, of the counterfactuals that flip."""

    name = "sparsity"
    title = "Sparsity"
    place = 53

    def count(self, inputs: MetricInput, found: Counterfactuals) -> Floats:
        """Those that are changed."""
        return np.asarray(found.flipped.astype(float) * changed(inputs, found).sum(axis=1))


@dataclass(frozen=True)
class Redundant(_Counted):
    """Mean number of changed features of which each alone could be put back without losing the flip."""

    name = "redundant"
    title = "Redundant"
    place = 54

    def count(self, inputs: MetricInput, found: Counterfactuals) -> Floats:
        """Those that can be put back, each alone."""
        return _kept(inputs, found)


def changed(inputs: MetricInput, found: Counterfactuals) -> Bools:
    """Which of the features (n, k) that were open to the edit it has changed."""
    there = found.features != NO_FEATURE
    features = np.where(there, found.features, 0)
    own = np.take_along_axis(inputs.codes, features, axis=1)
    if found.codes is not None:
        return np.asarray(there & (np.take_along_axis(found.codes, features, axis=1) != own))
    if found.vectors is None:
        raise ValueError("an edit exchanges values or moves embeddings")
    before = inputs.model.embed_features(features.ravel(), own.ravel()).reshape(found.vectors.shape)
    return np.asarray(there & (before != found.vectors).any(axis=2))


def _kept(inputs: MetricInput, found: Counterfactuals) -> Floats:
    """How many changed features (n,) of each flip can be put back, each alone."""
    moved = changed(inputs, found) & found.flipped[:, None]
    rows, places = np.nonzero(moved & (moved.sum(axis=1) > 1)[:, None])  # one alone leads back to x, which is no flip
    features, labels = found.features[rows, places], inputs.labels[rows]
    if found.codes is not None:
        reset = found.codes[rows]
        reset[np.arange(len(rows)), features] = inputs.codes[rows, features]
        after = inputs.model.predict_labels(reset)
    elif found.vectors is not None:
        left = found.features[rows].copy()
        left[np.arange(len(rows)), places] = NO_FEATURE
        after = inputs.model.evaluate_moved(inputs.codes[rows], left, found.vectors[rows], labels)[0]
    else:
        raise ValueError("an edit exchanges values or moves embeddings")
    return np.bincount(rows, after != labels, minlength=len(inputs)).astype(np.float64)
