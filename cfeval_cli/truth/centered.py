"""What a value contributes, against what is usual."""

from __future__ import annotations

from dataclasses import dataclass

from cfeval_cli.core import Dataset, Floats, ModelClient, Rows, Truth


@dataclass(frozen=True)
class Centered(Truth):
    """The effect of a value less the feature's mean over the training set: the Shapley value of an additive logit."""

    name = "centered"
    place = 20
    question = "contribution"
    also = "shapley"

    def importance(self, dataset: Dataset, model: ModelClient, rows: Rows) -> Floats:
        """s·(c_j(x_j) - mean of c_j)."""
        return model.compute_effects(rows.codes, rows.labels) - model.compute_mean_effects()[rows.labels]
