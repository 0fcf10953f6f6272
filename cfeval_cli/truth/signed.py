"""The paper's truth: weight times value."""

from __future__ import annotations

from dataclasses import dataclass

from cfeval_cli.core import Dataset, Floats, HasAdditiveEffects, HasEmbeddings, ModelClient, ModelSpec, Rows, Truth


@dataclass(frozen=True)
class Signed(Truth):
    """How much a value adds to the predicted class. Moving a constant from the bias into a feature changes it."""

    name = "signed"
    question = "paper"
    arbitrary = True

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Sums of effects that begin at an origin, which embeddings have."""
        return spec.missing_ability_reason(HasAdditiveEffects, HasEmbeddings)

    def importance(self, dataset: Dataset, model: ModelClient, rows: Rows) -> Floats:
        """s·c_j(x_j)."""
        return model.compute_effects(rows.codes, rows.labels)
