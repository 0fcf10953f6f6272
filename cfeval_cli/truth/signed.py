"""Ground truth `signed`: the effect of a feature, which is weight times embedding for a linear model."""

from __future__ import annotations

from dataclasses import dataclass

from cfeval_cli.core import Dataset, Floats, HasAdditiveEffects, HasEmbeddings, ModelClient, ModelSpec, Rows, Truth


@dataclass(frozen=True)
class Signed(Truth):
    """Effect of a feature on the logit of the predicted class, as in the paper.

    It is not identifiable: moving a constant from the bias into a feature changes it, but no prediction.
    """

    name = "signed"
    question = "paper"
    arbitrary = True

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason for models without effects, or without embeddings, which define zero."""
        return spec.missing_ability_reason(HasAdditiveEffects, HasEmbeddings)

    def compute_importance(self, dataset: Dataset, model: ModelClient, rows: Rows) -> Floats:
        """Return c_j(x_j), with the sign of the predicted class."""
        return model.compute_effects(rows.codes, rows.predicted_classes)
