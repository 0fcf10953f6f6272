"""Removal by deletion: the embedding becomes zero."""

from __future__ import annotations

from dataclasses import dataclass

from cfeval_cli.core import ABSENT, Dataset, HasEmbeddings, ModelClient, ModelSpec, Removal, Replacement
from cfeval_cli.core.removal import SingleValue


@dataclass(frozen=True)
class Zero(Removal):
    """The paper's deletion. What zero means is up to the training: a constant may be moved into it or out of it."""

    name = "zero"
    display_order = 10
    variant = "del"
    title = "del."
    arbitrary = True
    circular_truth = "signed"

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """A model without embeddings has no zero."""
        return spec.missing_ability_reason(HasEmbeddings)

    def fit(self, dataset: Dataset, model: ModelClient) -> Replacement:
        """Nothing to prepare."""
        return SingleValue(ABSENT)
