"""The size of an effect."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Dataset, Floats, HasAdditiveEffects, HasEmbeddings, ModelClient, ModelSpec, Rows, Truth


@dataclass(frozen=True)
class Absolute(Truth):
    """How much a value adds to the predicted class or takes from it. Moving a constant into a feature changes it."""

    name = "absolute"
    question = "paper"
    arbitrary = True

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Sums of effects that begin at an origin, which embeddings have."""
        return spec.missing_ability_reason(HasAdditiveEffects, HasEmbeddings)

    def importance(self, dataset: Dataset, model: ModelClient, rows: Rows) -> Floats:
        """|c_j(x_j)|."""
        return np.abs(model.compute_effects(rows.codes, rows.labels))
