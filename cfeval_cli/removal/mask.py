"""Removal by the mask token."""

from __future__ import annotations

from dataclasses import dataclass

from cfeval_cli.core import Dataset, ModelClient, ModelSpec, Removal, Replacement
from cfeval_cli.core.removal import SingleValue


@dataclass(frozen=True)
class Mask(Removal):
    """Replace a word by the mask token, which also encodes unknown words; tables have none."""

    name = "mask"
    display_order = 20
    variant = "mask"
    title = "mask"

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason for data without a mask token."""
        return f"{spec.dataset.name} has no mask token" if spec.dataset.mask_code is None else None

    def fit(self, dataset: Dataset, model: ModelClient) -> Replacement:
        """Return the mask token."""
        return SingleValue(dataset.mask)
