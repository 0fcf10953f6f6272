"""Ground truth `absolute`: the absolute effect of a feature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Dataset, Floats, HasAdditiveEffects, HasEmbeddings, ModelClient, ModelSpec, Rows, Truth


@dataclass(frozen=True)
class Absolute(Truth):
    """Absolute value of the effect of a feature on the logit of the predicted class.

    It is not identifiable: moving a constant from the bias into a feature changes it, but no prediction.
    """

    name = "absolute"
    question = "paper"
    arbitrary = True

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason for models without effects, or without embeddings, which define zero."""
        return spec.missing_ability_reason(HasAdditiveEffects, HasEmbeddings)

    def compute_importance(self, dataset: Dataset, model: ModelClient, rows: Rows) -> Floats:
        """Return |c_j(x_j)|."""
        return np.abs(model.compute_effects(rows.codes, rows.predicted_classes))
