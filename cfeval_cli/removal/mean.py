"""Removal by the mean embedding of the training set."""

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
    """Replace the embedding of a feature by its mean; unlike zero, the mean does not depend on the parametrisation."""

    name = "mean"
    display_order = 25
    variant = "mean"
    title = "mean"
    circular_truth = "shapley"

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason for models that cannot be evaluated on embeddings."""
        return spec.missing_ability_reason(HasGradient)

    def fit(self, dataset: Dataset, model: ModelClient) -> Replacement:
        """Compute the means."""
        means = []
        for j in range(dataset.n_features):
            values = np.flatnonzero(dataset.frequencies[j]).astype(np.int32)
            means.append(dataset.frequencies[j][values] @ model.embed_values(j, values))
        return _MeanEmbedding(np.stack(means))


@dataclass(frozen=True)
class _MeanEmbedding:
    vectors: Floats  # (M, d)
    value: None = None

    def sample(self, features: Ints) -> tuple[Codes, Floats]:
        """Return ABSENT, because no value has the mean embedding."""
        return np.full((1, len(features)), ABSENT, dtype=np.int32), np.ones(1)
