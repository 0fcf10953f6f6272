"""Removal by deletion: the embedding becomes zero."""

from __future__ import annotations

from dataclasses import dataclass

from cfeval_cli.core import ABSENT, Dataset, HasEmbeddings, ModelClient, ModelSpec, Removal, Replacement
from cfeval_cli.core.removal import SingleValue


@dataclass(frozen=True)
class Zero(Removal):
    """Replace the embedding of a feature by zero, as in the paper; what zero means depends on the parametrisation."""

    name = "zero"
    display_order = 10
    variant = "del"
    title = "del."
    arbitrary = True
    circular_truth = "signed"

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason for models without embeddings."""
        return spec.missing_ability_reason(HasEmbeddings)

    def fit(self, dataset: Dataset, model: ModelClient) -> Replacement:
        """Return the code whose embedding is zero."""
        return SingleValue(ABSENT)
