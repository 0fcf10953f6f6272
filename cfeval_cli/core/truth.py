"""Truths: how much each feature really matters to a model that can be asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from cfeval_cli.core.client import ModelClient
from cfeval_cli.core.data import ABSENT, Dataset, Floats, Rows
from cfeval_cli.core.model import Access, ModelSpec

# what made the prediction come out so; what would make it come out otherwise; both; or as the paper defines it
TruthQuestion = Literal["contribution", "change", "either", "paper"]


@dataclass(frozen=True)
class TruthEstimate:
    """How much each feature matters, and how well that is known."""

    importance: Floats  # (n, M), -inf where a feature is absent; NaN of a row that it is not known of
    # (n,) the largest standard error among the features of each row, NaN if it is not known; None: the values are exact
    error: Floats | None = None
    method: str = "exact"  # how it was computed, for the report


class Truth(ABC):
    """A definition of importance; its fields are its settings."""

    name: ClassVar[str]
    question: ClassVar[TruthQuestion]
    arbitrary: ClassVar[bool] = False  # whether it depends on a constant that no prediction depends on
    access: ClassVar[Access] = Access.WHITE_BOX

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Why such a model has no such truth; None if it has."""
        return spec.missing_access_reason(self.access)

    def evaluates_model(self, spec: ModelSpec) -> bool:
        """Whether it puts many rows before such a model, so that instances are shared out among the workers."""
        return False

    def count_evaluations(self, spec: ModelSpec) -> int:
        """How many rows an instance takes at most, where it asks the model."""
        return 1

    @abstractmethod
    def compute_importance(self, dataset: Dataset, model: ModelClient, rows: Rows) -> Floats:
        """Importance (n, M) of each feature for the prediction of each row."""

    def estimate(self, dataset: Dataset, model: ModelClient, rows: Rows) -> TruthEstimate:
        """The same with its error, where it is not exact."""
        return TruthEstimate(self.compute_masked_importance(dataset, model, rows))

    def compute_masked_importance(self, dataset: Dataset, model: ModelClient, rows: Rows) -> Floats:
        """The same, -inf where a feature is absent."""
        return np.where(rows.codes == ABSENT, -np.inf, self.compute_importance(dataset, model, rows))
