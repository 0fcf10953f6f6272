"""Removal by what is usual: the embedding becomes its mean over the training set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import (
    ABSENT,
    Codes,
    Dataset,
    Floats,
    HasGradient,
    Ints,
    ModelClient,
    ModelSpec,
    Removal,
    Replacement,
)


@dataclass(frozen=True)
class Mean(Removal):
    """As deletion, but to the middle of the training set: a constant that is moved into zero moves along."""

    name = "mean"
    display_order = 25
    variant = "mean"
    title = "mean"
    circular_truth = "shapley"

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """An embedding that is no value's can be put only before a model that takes embeddings."""
        return spec.missing_ability_reason(HasGradient)

    def fit(self, dataset: Dataset, model: ModelClient) -> Replacement:
        """The means."""
        means = []
        for j in range(dataset.n_features):
            seen = np.flatnonzero(dataset.frequencies[j]).astype(np.int32)
            means.append(dataset.frequencies[j][seen] @ model.embed_values(j, seen))
        return _Usual(np.stack(means))


@dataclass(frozen=True)
class _Usual:
    vectors: Floats  # (M, d)
    value: None = None

    def sample(self, features: Ints) -> tuple[Codes, Floats]:
        """No value stands for them."""
        return np.full((1, len(features)), ABSENT, dtype=np.int32), np.ones(1)
