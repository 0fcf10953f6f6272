"""Ground truth `used`: whether the model uses a feature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Dataset, Floats, HasUsedFeatures, ModelClient, ModelSpec, Rows, Truth


@dataclass(frozen=True)
class UsedFeatures(Truth):
    """1 if the model uses the feature, else 0, for models that were trained without some of the features."""

    name = "used"
    question = "either"

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason for models that are trained with all features, and for trained models that use all."""
        if spec.blind and spec.supports(HasUsedFeatures):
            return None
        return "needs a model that was trained without some of the features (model.blind)"

    def compute_importance(self, dataset: Dataset, model: ModelClient, rows: Rows) -> Floats:
        """Return the same values for every row."""
        is_used = model.get_used_features()
        importance = np.ones(dataset.n_features) if is_used is None else is_used.astype(np.float64)
        return np.tile(importance, (len(rows), 1))
